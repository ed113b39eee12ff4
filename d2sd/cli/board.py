"""Replay all drafters saved by a training run over the same texts, and show α of each checkpoint and which one is best.

The target writes the texts once. Texts and results are kept in FOLDER, so running the command again measures only new checkpoints.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from d2sd.bench.prompts import Prompt, digest, read_prompts
from d2sd.calibration import Estimate
from d2sd.calibration.replays import (
    DrafterFigures,
    best,
    compare_checkpoints,
    drafter_verdict,
    first_position,
    how_replayed,
)
from d2sd.calibration.sentences import count, decimal, signed_decimal, with_interval
from d2sd.cli.common import add_output, add_text_arguments, ended_at_once, print_json, record_runs, tell_of_template
from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.loading import load_models
from d2sd.folders.weights import parts
from d2sd.nets.models import Models
from d2sd.trace.files import write_whole
from d2sd.trace.text import printable
from d2sd.trace.trace import Trace
from d2sd.train.acceptance import (
    RESULTS,
    TEXTS,
    Board,
    Checkpoint,
    DrafterResults,
    checkpoints,
    text_paths,
    with_checkpoint,
)

Done = Sequence[tuple[Checkpoint, DrafterResults]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder that `d2sd train … --keep-every N` wrote (its --out)"
    )
    parser.add_argument("--target", required=True, metavar="FOLDER|HUB-ID|FILE.gguf|NAME", help="target that the drafters were trained for")  # fmt: skip
    parser.add_argument("--drafter", metavar="FOLDER|HUB-ID", help="first drafter, needed if the checkpoints are VP-Drafters: α is measured for both drafters together, with method d2sd")  # fmt: skip
    parser.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl|ORG/NAME:SPLIT:COLUMN", help="prompt set, as for calibrate; choose prompts that were not trained on")  # fmt: skip
    add_text_arguments(parser)
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="maximum tokens of a text (default: 128)")  # fmt: skip
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: figures, tables, origin")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Measures new checkpoints, then prints a table. After Ctrl-C, the table has only the measured checkpoints."""
    a = arguments
    found = checkpoints(a.folder)
    prompts = read_prompts(a.prompts, a.limit)
    models = load_models(target=a.target, drafter=a.drafter, dtype=a.dtype, device=a.device)
    with_checkpoint(models, found[0], a.dtype)  # checks that the models fit before any text is written
    done: list[tuple[Checkpoint, DrafterResults]] = []
    try:
        texts, source = _written(a, models, prompts)
        texts = _drafted(texts, a.chat)
        board = Board(models, texts, a.folder / RESULTS, a.dtype)
        for checkpoint in found:
            done.append((checkpoint, board.measure(checkpoint)))
    except KeyboardInterrupt:
        print(
            f"Stopped: {len(done)} of {count(len(found), 'checkpoint')} measured. The results are kept in "
            f"{printable(str(a.folder))}; the same command continues from them.",
            file=sys.stderr,
        )
        if not done:
            return 130
    stopped = len(done) < len(found)
    done = _merged(done)
    rows = compare_checkpoints([c.name for c, _ in done], [m.committed for _, m in done], [m.cut for _, m in done])
    origin = _origin(a, models, source, board.texts_digest, done)
    if a.html:
        write_whole(a.html, _page(rows, done, texts, origin, a.drafter is not None))
        print(f"{a.html}: a report of {count(len(rows), 'checkpoint')}", file=sys.stderr)
    if a.json:
        print_json(_json(rows, done, origin))
    else:
        print(printable(_table(rows, len(texts))))
    return 130 if stopped else 0


def _merged(done: Done) -> list[tuple[Checkpoint, DrafterResults]]:
    """Merges the last two checkpoints if the final drafter equals the drafter of the last saved step."""
    found = list(done)
    if len(found) > 1 and found[-1][1].weights == found[-2][1].weights:
        (step, measured), (final, _) = found[-2:]
        found[-2:] = [(replace(step, name=f"{step.name} ({final.name})"), measured)]
    return found


def _written(a: argparse.Namespace, models: Models, prompts: Sequence[Prompt]) -> tuple[list[Trace], str]:
    """Returns the target's texts for these prompts, and a description of the prompts and settings."""
    config = DecodeConfig("autoregressive", a.max_new_tokens, chat=a.chat, inspect=False)
    engine, name = Engine(Models(models.target, name=models.name)), a.prompts
    tell_of_template(engine, config)
    encoded = [(prompt, engine.encode(prompt.text, config)) for prompt in prompts]
    paths = text_paths(engine, [ids for _, ids in encoded], config, a.folder / TEXTS)
    texts = list(record_runs(engine, encoded, config, "texts", paths, reuse=True))
    template = ", in the chat template" if a.chat else ""
    return texts, (
        f"{count(len(prompts), 'prompt')} of {_public(name)} (sha256 {digest(name, prompts)[:16]}){template}, "
        f"at most {a.max_new_tokens} tokens per answer"
    )


def _drafted(texts: Sequence[Trace], templated: bool) -> list[Trace]:
    """Returns the texts with more than one token, since shorter ones have no draft. Raises ``InputError`` if there are none."""
    used = [text for text in texts if len(text.token_ids) > 1]
    note = ended_at_once(len(texts) - len(used), len(texts), templated)
    if not used:
        raise InputError(f"no text is long enough for a draft. {note}")
    if note:
        print(note, file=sys.stderr)
    return used


def _public(word: str) -> str:
    """Returns a word of the command line. Cuts an absolute path to its last part, since reports may be published."""
    return Path(word).name if Path(word).is_absolute() else word


def _origin(a: argparse.Namespace, models: Models, source: str, texts: str, done: Done) -> dict[str, str]:
    loaded = {"target": "Target", "first_drafter": "First drafter"}
    described = {
        loaded[part]: f"{f['name']} (weights {f['weights']}, {f['dtype']})" for part, f in parts(models).items()
    }
    return {
        **described,
        "Role": "second drafter, method d2sd" if a.drafter else "first drafter",
        "Texts": f"greedy answers to {source}; fingerprint {texts}",
        "Command": f"d2sd {shlex.join(map(_public, a.argv))}",
        "Measured": " and ".join(sorted({f"{m.date} with {m.versions}" for _, m in done})),
    }


def _table(rows: Sequence[DrafterFigures], texts: int) -> str:
    shown = [("checkpoint", "α", "first position", "difference from the last")]
    for row in rows:
        against = with_interval(row.whole.difference or Estimate(None), signed_decimal, "[]")
        shown.append((row.name, with_interval(row.whole.alpha, decimal, "[]"), first_position(row), against))
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}s}" for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in shown
    ]
    lines[1 + rows.index(best(rows))] += "  ← highest α"
    return "\n".join([*lines, drafter_verdict(rows), f"{count(texts, 'text')}. {how_replayed(rows, texts)}"])


def _page(
    rows: Sequence[DrafterFigures], done: Done, texts: Sequence[Trace], origin: dict[str, str], second: bool
) -> str:
    from d2sd.figures.measured import board_panels
    from d2sd.figures.report import report_page, settings
    from d2sd.figures.style import FigureTable

    weights = [(f"Weights of {row.name}", measured.weights) for row, (_, measured) in zip(rows, done, strict=True)]
    return report_page(
        f"Checkpoints: {count(len(rows), 'drafter')} over {count(len(texts), 'text')}",
        [drafter_verdict(rows), how_replayed(rows, len(texts))],
        board_panels(rows, [checkpoint.step for checkpoint, _ in done], second),
        facts=[
            ("Origin of the figures", FigureTable(("", ""), (*origin.items(), *weights))),
            *((f"The texts’ {name.lower()}", table) for name, table in settings([text.header for text in texts])),
        ],
    )


def _json(rows: Sequence[DrafterFigures], done: Done, origin: dict[str, str]) -> dict[str, Any]:
    return {
        "verdict": drafter_verdict(rows),
        "best": best(rows).name,
        "checkpoints": [
            {
                "name": row.name,
                "step": checkpoint.step,
                "weights": measured.weights,
                "alpha": row.whole.alpha,
                "first_position": row.reached[0] if row.reached else None,
                "against_last": row.whole.difference,
                "steps": row.whole.steps,
            }
            for row, (checkpoint, measured) in zip(rows, done, strict=True)
        ],
        "origin": origin,
    }
