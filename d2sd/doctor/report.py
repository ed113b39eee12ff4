"""An examination as Markdown, for a bug report. Names and token texts come from others and are written as code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor

from d2sd.__about__ import __version__
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.sentences import decimal, signed_decimal, with_interval
from d2sd.doctor.changes import TOKEN_IDS, Variant
from d2sd.doctor.examination import TOKENS, Examination
from d2sd.doctor.probes import SAID, alpha_figure
from d2sd.doctor.signs import REPEATED
from d2sd.errors import InputError
from d2sd.folders.drafters import MAPS, eagle3_name, is_eagle3, own_name, published_config
from d2sd.folders.weights import read_weights, weight_files
from d2sd.trace.text import escaped

MARKS = {"good": "ok", "note": "note", "fault": "FAULT"}
CONVENTIONS = (
    "α is the number of tokens committed per step. It includes the bonus token, which the target adds after the accepted ones, so it is at least 1. Without it, the accepted length is α − 1.",
    "Rates are per position, among the steps that accepted all earlier tokens. They are not accepted ÷ drafted tokens, which falls as γ grows.",
    "γ counts the anchor: a block of γ has γ − 1 drafted tokens. A drafter that reads fill has γ rows, one that reads next has γ − 1.",
    "Temperature 0. A softmax temperature changes no greedy draft, so none is tried; Calibrate suggests one for the confidence.",
)


def markdown(examinations: Sequence[Examination]) -> str:
    """Returns the report, one section per drafter."""
    lines = [f"# Why is it rejected? (d2sd {__version__})", ""]
    for examination in examinations:
        lines += _section(examination)
    return "\n".join([*lines, "## How to read the figures", "", *(f"* {line}" for line in CONVENTIONS), ""])


def _section(e: Examination) -> Iterator[str]:
    yield f"## {code(e.drafter)} for {code(e.target)}"
    yield ""
    if not e.checks:
        yield from ("**Not examined: the command was stopped before.**", "")
        return
    if e.diagnosis is not None:
        yield f"**{text(e.diagnosis.said)}**"
        if e.diagnosis.mend:
            yield f"To mend: {code(e.diagnosis.mend)}"
    else:
        yield "**Stopped before the end: no cause is named.**"
    yield from ("", "### The folder", "", "| check | | what was found |", "| --- | --- | --- |")
    for check in e.checks:
        yield f"| {check.what} | {MARKS[check.state]} | {text(check.said)} |"
    if e.walks:
        yield from _run(e)
    yield ""


def _run(e: Examination) -> Iterator[str]:
    found, (kind, at) = e.positions, e.shape
    asked = "in the chat template" if e.chat else "as they are, without a chat template"
    yield from ("", "### A short run", "")
    shown = f", each draft after {e.visible} tokens that it was shown" if e.visible else ""
    yield f"{len(e.walks)} prompts {asked}, up to {TOKENS} tokens each{shown}: α {with_interval(alpha_figure(e.walks), decimal, '[]')}. {e.seconds:.0f} s."
    yield ""
    yield f"{SAID[kind]}{f' Here it is position {at}.' if at else ''}"
    if (share := e.signs.repeated) is not None:
        more = " Repetitive text is easy to draft: α is lower on other text." if share > REPEATED else ""
        yield f"\n{share:.0%} of the generated 4-token sequences occur earlier in the same text.{more}"
    yield from (
        "",
        "| position | " + " | ".join(str(p.number) for p in found) + " |",
        "| --- |" + " --- |" * len(found),
    )
    yield "| accepted | " + " | ".join(f"{p.share:.2f}" for p in found) + " |"
    yield "| of steps | " + " | ".join(str(p.steps) for p in found) + " |"
    if e.tried:
        yield from _probes(e)
    for asked_again in e.asked:
        change = with_interval(asked_again.change, signed_decimal, "[]")
        yield f"* Other texts, with {text(asked_again.template.said)}: α {asked_again.alpha:.2f}, change {change}, {asked_again.texts} prompts."


def _probes(e: Examination) -> Iterator[str]:
    yield from ("", "### One thing changed, drafted again on the same texts", "")
    yield (
        f"{len(e.tried)} changes, {e.masks} mask tokens looked at. Gain: of the tokens that a draft brings, over all places of the "
        "texts (geometric mean). Brackets: 95% intervals over prompts, for all changes together. "
        f"No α: it was looked at in some places of a few texts, and others were better. Windows that are longer than the texts ({e.longest} tokens) cannot be told."
    )
    yield from ("", "| change | α | gain | texts | |", "| --- | --- | --- | --- | --- |")
    for t in sorted(e.tried, key=lambda t: -(t.change.value or 0.0)):
        shown = "–" if t.alpha is None else f"{t.alpha:.2f}"
        yield f"| {text(t.variant.said)} | {shown} | {share(t.change)} | {t.texts} | {'**helps**' if t.helps else ''} |"
    yield ""


def share(f: Estimate) -> str:
    """Returns a change as a percentage, with its interval."""
    if f.value is None or f.low is None or f.high is None:
        return "–" if f.value is None else f"{f.value:+.1%}"
    return f"{f.value:+.1%} [{f.low:+.1%} to {f.high:+.1%}]"


def code(value: str) -> str:
    """Returns untrusted text as code on one line."""
    return f"`{escaped(value).replace('`', 'ˋ').replace('|', '¦')}`"


def text(value: str) -> str:
    """Returns a sentence with quoted untrusted text, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&$])", r"\\\1", escaped(value))


# Writes a drafter's folder again with the changes that restored its acceptance.


SHARD = "5GB"
OTHERS = (".json", ".md", ".txt", ".model", ".jinja")  # files beside the weights that are copied


def mend(source: str, changes: Sequence[Variant], out: Path) -> None:
    """Write the folder or hub id ``source`` to ``out`` with these changes, applied in order.

    Weights keep their published names and dtype. Raises ``InputError`` if ``out`` exists or a change cannot be written.
    """
    if out.exists():
        raise InputError(f"{out} is there already; name a folder that is not")
    if (other := next((v for v in changes if not v.writable), None)) is not None:
        raise InputError(
            f"no folder can say it ({other.said}); {other.mend or 'the weights have to be fetched or trained again'}"
        )
    config: dict[str, Any] = json.loads(json.dumps(published_config(source)))
    rename = eagle3_name if is_eagle3(config) else own_name
    files = weight_files(source)
    stored = read_weights(files)
    names = {own: key for key in stored if (own := rename(key)) is not None}
    weights = {own: stored[key] for own, key in names.items() if own not in MAPS}
    if "d2t" in names:
        weights[TOKEN_IDS] = stored[names["d2t"]].long() + torch.arange(len(stored[names["d2t"]]))
    for change in changes:
        config = config if change.rewrite is None else change.rewrite(config)
        if change.edit is not None:
            weights |= change.edit(weights)
    stored |= _published(weights, names, stored)
    out.mkdir(parents=True)
    for path in files[0].parent.iterdir():
        if path.is_file() and path.suffix in OTHERS and not path.name.endswith(".index.json"):
            shutil.copyfile(path, out / path.name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_torch_state_dict({k: v.contiguous().clone() for k, v in stored.items()}, out, max_shard_size=SHARD)


def _published(weights: dict[str, Tensor], names: dict[str, str], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Changed weights by their published names, in their type; the map of a draft vocabulary as differences."""
    found = {names[own]: w.to(stored[names[own]].dtype).cpu() for own, w in weights.items() if own in names}
    if (ids := weights.get(TOKEN_IDS)) is not None:
        found[names["d2t"]] = (ids - torch.arange(len(ids))).to(stored[names["d2t"]].dtype)
        if "t2d" in names:
            found[names["t2d"]] = torch.zeros_like(stored[names["t2d"]]).index_fill(0, ids, True)
    return found
