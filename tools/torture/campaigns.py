"""Campaigns that run in this process. For every case, they yield None if it passed, otherwise a description of the fault."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx
from safetensors.torch import load_file, save_file

import d2sd
from app import links, presets
from app.calibrate import measure
from app.guard import control_value, event_data
from app.layout import build
from app.runs import recordings as uploads
from app.runs.recordings import Recording, Recordings
from app.runs.view import runs_drawing
from app.session import History, Session
from d2sd import METHODS, DecodeConfig, InputError
from d2sd.figures.viewer import standalone_page
from d2sd.folders.model_sets import BUNDLED
from d2sd.replay.outcomes import recorded_config
from d2sd.trace.graph import graph
from tools.torture import material

Cases = Iterator[str | None]
STEPS = 4  # maximum number of steps in a mutated trace


def one_sentence(error: InputError) -> str | None:
    """Returns None if an error message is one short line, otherwise a description of the fault."""
    said = str(error)
    return None if said and "\n" not in said and len(said) < 600 else f"not one short line: {said[:200]!r}"


def traces(rng: random.Random) -> Cases:
    """Passes mutated traces to all code that reads traces."""
    recorded = [json.loads(line) for line in presets.opening().lines()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        while True:
            path.write_bytes(_mutated(rng, recorded))
            try:
                yield _read_everywhere(path)
            except Exception as error:
                yield f"{type(error).__name__}: {str(error)[:150]} ({path.read_bytes()[:200]!r})"


def _mutated(rng: random.Random, recorded: list[dict[str, Any]]) -> bytes:
    lines: list[Any] = json.loads(
        json.dumps([*recorded[: 2 + rng.randrange(STEPS + 1)], *recorded[-1:] * rng.randrange(2)])
    )
    for _ in range(rng.randrange(1, 4)):
        if lines:
            at = rng.randrange(len(lines))
            kind = rng.random()
            if kind < 0.7:
                material.change(rng, lines[at], material.value(rng))
            elif kind < 0.8:
                del lines[at]
            elif kind < 0.9:
                lines.insert(rng.randrange(len(lines) + 1), lines[at])
            else:
                lines[at] = material.value(rng)
    raw = [material.to_json(line) for line in lines]
    if raw and rng.random() < 0.15:
        at, deep = rng.randrange(len(raw)), material.nested(rng)
        raw[at] = rng.choice((deep, raw[at].replace(b":", b":" + deep + b',"x":', 1), b'{"event":"Baseline","tokens_per_second":' + deep + b"}"))  # fmt: skip
    whole = b"\n".join(raw) + rng.choice((b"", b"\n", b"\n\n", b"\r\n"))
    kind = rng.random()
    if kind < 0.1:
        whole = whole[: rng.randrange(len(whole) + 1)]
    elif kind < 0.2:
        at = rng.randrange(len(whole) + 1)
        whole = whole[:at] + rng.randbytes(rng.randrange(8)) + whole[at + rng.randrange(4) :]
    return gzip.compress(whole, 1)[: rng.choice((None, None, -5))] if rng.random() < 0.2 else whole


def _read_everywhere(path: Path) -> str | None:
    try:
        run = uploads.read_all(path)[0][0]
    except InputError as error:
        return one_sentence(error)
    trace, header = run.trace(), run.header
    try:
        whole = d2sd.load_trace(path)
    except InputError as error:  # a file of several runs; the page shows the first
        return one_sentence(error)
    if list(trace.steps) != list(whole.steps):
        return "the page shows other steps than the file contains"
    for step in trace.steps:
        "".join(networkx.generate_graphml(graph(step)))
    links.Link({"prompt": "x"}).fits(header)
    runs_drawing(Session(shown=run, history=History(runs=[Recording("x", run)])))
    try:
        recorded_config(trace)
    except InputError as error:
        if fault := one_sentence(error):
            return fault
    json.loads(measure.measure_shown(Recordings(), run))
    standalone_page(run, "x")
    return None if run.ended in (True, False) and run.segment() else "no segment"


def query_strings(rng: random.Random) -> Cases:
    """Reads links with random query strings. The ignored values must be reported in one short line."""
    names = ["prompt", "model", "method", "step", "node", *(s.name for s in links.SETTINGS), "nosuch"]
    header = presets.opening().header
    while True:
        query = {rng.choice(names): material.text(rng) if rng.random() < 0.7 else str(rng.choice(material.NUMBERS[:-5])) for _ in range(rng.randrange(8))}  # fmt: skip
        try:
            link = links.read_link(query)
            link.fits(header)
            json.dumps([link.values, link.selection])
            yield (
                None
                if "\n" not in link.sentence and len(link.sentence) < 3000
                else f"not one short line: {link.sentence[:200]!r}"
            )
        except Exception as error:
            yield f"{type(error).__name__}: {str(error)[:150]} ({query!r:.200})"


def controls(rng: random.Random) -> Cases:
    """Sends values of every type to every control. The result must be a valid value or a one-line error."""
    page = build()
    known = {id(b): b for call in page.fns.values() for b in call.inputs}
    parts = [b for b in known.values() if not getattr(b, "stateful", False)]
    while True:
        part, given = rng.choice(parts), material.value(rng)
        try:
            json.dumps(event_data(given)).encode()
            got = control_value(part, given)
            json.dumps(got, allow_nan=False).encode()
            str(got).encode()
            yield None
        except InputError as error:
            yield one_sentence(error)
        except Exception as error:
            yield f"{type(part).__name__}: {type(error).__name__}: {str(error)[:150]} ({given!r:.200})"


def folders(rng: random.Random) -> Cases:
    """Changes configs of model folders, and truncates weights or makes them non-finite. Each must run or give a one-line error."""
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(10**6):
            folder = Path(shutil.copytree(BUNDLED / "tiny", Path(scratch) / f"own{number}"))
            try:
                yield _break_and_run(rng, folder)
            except InputError as error:
                yield one_sentence(error)
            except Exception as error:
                yield f"{type(error).__name__}: {str(error)[:200]}"
            finally:
                shutil.rmtree(folder)


def _break_and_run(rng: random.Random, folder: Path) -> None:
    part = folder / rng.choice(("target", "dflash", "vp", "draft"))
    kind = rng.random()
    weights = rng.choice(sorted(part.glob("*.safetensors")))
    if kind < 0.6:
        path = rng.choice(sorted(part.glob("*config.json")))
        data = json.loads(path.read_bytes())
        number = rng.choice((0, -1, 1, 3, 7, 10**6, 10**12, 10**30, 0.5, float("nan"), "x", None, [], {}, True))
        material.change(rng, data, number if rng.random() < 0.7 else material.value(rng))
        path.write_text(json.dumps(data), encoding="utf-8")
    elif kind < 0.7:
        path = rng.choice([p for p in part.iterdir() if p.suffix == ".json"])
        raw = path.read_bytes()
        path.write_bytes(rng.choice((b"", raw[: rng.randrange(len(raw))], material.nested(rng), rng.randbytes(300))))
    elif kind < 0.85:
        tensors = load_file(weights)
        name = rng.choice(sorted(tensors))
        tensors[name].flatten()[rng.randrange(tensors[name].numel())] = rng.choice((float("nan"), float("inf")))
        save_file(tensors, weights, metadata={"format": "pt"})
    else:
        raw = weights.read_bytes()
        weights.write_bytes(
            rng.choice((b"", raw[: rng.randrange(len(raw))], rng.randbytes(8) + raw[8:], rng.randbytes(5000)))
        )
    engine = d2sd.load(str(folder))
    for method in ("d2sd", "draft_model"):
        engine.generate("One day", DecodeConfig(method, 4, num_branches=2))


def losslessness(rng: random.Random) -> Cases:
    """Generates from random bytes, code, emoji and other languages. Every method must give the text of plain decoding."""
    engine = d2sd.load("tiny")
    while True:
        prompt = (material.text(rng) + material.text(rng))[:200]
        temperature = rng.choice((0.0, 0.0, 0.9))
        expected: Any = None
        for method in sorted(METHODS, key=lambda m: m != "autoregressive"):
            config = DecodeConfig(
                method, 12, temperature=temperature, seed=rng.randrange(1000) if not temperature else 7
            )
            try:
                got = engine.generate(prompt, config).token_ids
                expected = got if expected is None else expected
                yield None if got == expected else f"{method} at temperature {temperature} differs for {prompt!r:.100}"
            except InputError as error:
                yield one_sentence(error)
            except Exception as error:
                yield f"{method}: {type(error).__name__}: {str(error)[:150]} ({prompt!r:.100})"


def archives(rng: random.Random) -> Cases:
    """Opens files that are not traces, or that unpack to more than the limit. Each must be rejected with a one-line error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl.gz"
        while True:
            block = rng.choice(
                (bytes(1 << 20), b"\n" * (1 << 20), b" " * (1 << 20), b"{}\n" * (1 << 18), b"[" * (1 << 20))
            )
            packed = io.BytesIO()
            with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
                file.write((presets.opening().lines()[0] + "\n").encode() if rng.random() < 0.5 else b"")
                for _ in range(rng.choice((1, 8, 120))):
                    file.write(block)
            raw = packed.getvalue()
            path.write_bytes(
                rng.choice((raw, raw[: len(raw) // 2], raw + rng.randbytes(50), b"PK\x03\x04" + raw, b"\x7fELF" + raw))
            )
            try:
                uploads.read_all(path)
                yield "the file was not rejected"
            except InputError as error:
                yield one_sentence(error)
            except Exception as error:
                yield f"{type(error).__name__}: {str(error)[:150]}"


IN_PROCESS = {
    "traces": traces,
    "links": query_strings,
    "controls": controls,
    "archives": archives,
    "model folders": folders,
    "losslessness": losslessness,
}
