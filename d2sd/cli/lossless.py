"""``bench --check-lossless``: every method under many settings against plain greedy decoding."""

from __future__ import annotations

import argparse
from typing import Any

import orjson

from d2sd.bench.baselines import make_baselines, stock_twin
from d2sd.bench.check import BRANCHES, GAMMAS, grid, run_check, tally
from d2sd.bench.lossless import DEFAULT_MARGIN, MARGIN_REASON
from d2sd.bench.processes import Processes
from d2sd.bench.provenance import as_markdown, provenance
from d2sd.bench.report import markdown_table, remarks, to_json, write_files
from d2sd.bench.runner import entry
from d2sd.bench.settings import runnable
from d2sd.cli.common import decode_config, prepare
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the check."""
    parser.add_argument(
        "--check-lossless", action="store_true", help="compare all texts with plain decoding, without timing"
    )
    lists = {"gamma": (GAMMAS, "γ"), "branches": (BRANCHES, "K, each where it is at most γ−1")}
    for name, (default, sentence) in lists.items():
        parser.add_argument(
            f"--{name}", type=whole_numbers, default=default, metavar="A,B,…",
            help=f"--check-lossless: values of {sentence} (default {','.join(map(str, default))})",
        )  # fmt: skip
    parser.add_argument(
        "--margin", type=float, default=DEFAULT_MARGIN, metavar="X",
        help=f"--check-lossless in another type than float32: how far below the favourite a token may be "
        f"(default {DEFAULT_MARGIN}); {MARGIN_REASON}",
    )  # fmt: skip


def whole_numbers(text: str) -> tuple[int, ...]:
    """``2,5,16`` as numbers."""
    return tuple(int(part) for part in text.split(","))


def run(arguments: argparse.Namespace, processes: Processes) -> int:
    """Check and print one row per setting; 1 if any failed."""
    base = decode_config(arguments, "autoregressive", inspect=False)
    if base.temperature > 0:
        raise InputError("--check-lossless compares greedy texts; leave out --temperature")
    if arguments.preset or arguments.sweep or arguments.baselines:
        raise InputError("--check-lossless lays out its own settings; leave out --preset, --sweep and --baselines")
    methods = list(METHODS) if arguments.methods == "all" else [m.strip() for m in arguments.methods.split(",")]
    wanted = grid(["autoregressive", *methods], arguments.gamma, arguments.branches, base)
    engine, prompts = prepare(arguments, base, processes.device)
    settings, left_out = runnable(engine, wanted, lenient=True)
    for method in methods if arguments.methods != "all" else ():
        if method not in {s.config.method for s in settings}:
            reasons = [reason for label, reason in left_out.items() if label.split(":")[0] == method]
            raise InputError(reasons[0] if reasons else f"no K of --branches is below a γ of --gamma for {method}")
    asked, seeds = [prompt for prompt, _ in prompts], {"decoding": base.seed}
    origin = provenance(engine, arguments.argv, arguments.prompts, asked, seeds, processes.count)
    plain, *others = [entry(engine, s) for s in settings]
    twin = stock_twin(engine.models.target)
    (stock,), _ = make_baselines(engine, twin, ["generate"], base.max_new_tokens)
    numbers = engine.models.target.numbers
    exact = numbers in ("float32", "mixed")  # in mixed numbers the stock model's text may be another one
    entries = [stock, *others] if numbers == "float32" else others if exact else [plain, stock, *others]
    mine = processes.share([(number, ids) for number, (_, ids) in enumerate(prompts)])
    results, stopped = processes.collect(
        lambda progress: run_check(plain, entries, mine, twin, exact, progress),
        len(entries) * len(mine),
        "lossless",
    )
    if not processes.main:
        return 130 if stopped else 0
    if not results:
        raise KeyboardInterrupt
    rows = tally(results, [c.label for c in entries], None if exact else arguments.margin)
    passed = all(row["passed"] for row in rows)
    result = {
        "model": engine.models.name, "prompts_asked": len(prompts),
        **dict.fromkeys(("prompts_done", "prompts_counted"), len({r.prompt for r in results})),
        "stopped": stopped, "margin": None if exact else arguments.margin, "left_out": left_out, "passed": passed,
        "rows": rows, "provenance": origin,
    }  # fmt: skip
    text = body(result, engine.texts)
    if arguments.out:
        files = {"lossless.json": to_json(result), "lossless.md": f"{text}\n\n{as_markdown(origin)}\n"}
        write_files(arguments.out, files)
    print(orjson.dumps(result).decode() if arguments.json else printable(text))
    return 130 if stopped else 0 if passed else 1


def body(result: dict[str, Any], texts: Any) -> str:
    """The table of settings and a verdict in words. ``texts`` maps token ids to their text."""
    margin = result["margin"]
    head = ["setting", "identical / texts", "tokens", "first divergence", *([] if margin is None else ["shortfall"])]
    lines = []
    for row in result["rows"]:
        line = [row["label"], f"{row['identical']} / {row['texts']}", str(row["tokens"]), _divergence(row, texts)]
        if margin is not None:
            far = row["largest_shortfall"]
            line.append("–" if far is None else f"{far:.3f}{'' if far <= margin else ' > margin'}")
        lines.append(line)
    count, good = len(lines), sum(row["passed"] for row in result["rows"])
    rule = (
        "every text must equal plain greedy decoding (method autoregressive) id for id"
        if margin is None
        else f"every token must be at most {margin} below the favourite of one teacher-forced pass; {MARGIN_REASON}"
    )
    verdict = (
        f"{good} of {count} settings pass on {result['prompts_done']} of {result['prompts_asked']} prompts: {rule}."
    )
    return "\n\n".join([markdown_table(head, lines), *remarks(result), verdict])


def _divergence(row: dict[str, Any], texts: Any) -> str:
    at = row["first_divergence"]
    if at is None:
        return "–"
    expected, got = ("end" if i is None else repr(texts[i]) for i in (at["expected"], at["got"]))
    gap = "" if at["gap"] is None else f", logit gap {at['gap']:.2g}"
    return f"prompt {at['prompt'] + 1}, token {at['position'] + 1}: {expected} → {got}{gap}"
