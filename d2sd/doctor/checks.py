"""Checks a drafter's folder without running the drafter. Most faults are reported with a fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from d2sd.doctor.changes import FolderEdit
from d2sd.errors import InputError, first_line
from d2sd.folders.drafters import (
    BORROWED,
    MAPS,
    drafter_config_of,
    eagle3_name,
    is_eagle3,
    own_name,
    published_config,
    read_config,
    token_ids,
)
from d2sd.folders.weights import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import refuse_others, refuse_tensors
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm, read_form
from d2sd.nets.models import late_taps
from d2sd.nets.target import Target

State = Literal["good", "note", "fault"]
Shapes = Mapping[str, tuple[int, ...]]
Naming = Callable[[str], str | None]  # maps a tensor's published name to its name in d2sd
MOST_NAMES = 4  # largest number of tensors that are reported for one fault
MIN_SIMILARITY = 0.5  # similarity to a missing tensor's name from which an unknown tensor counts as misnamed
LAYER = re.compile(r"layers\.(\d+)\.")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    name: name of the check, in a word or two.
    state: a "fault" prevents the drafter from running or makes it draft wrongly; a "note" is a difference that may be intended.
    finding: the result, as a clause.
    fix: what to change; None if unknown, or if nothing is wrong.
    mend: an edit of the folder that carries out the fix; None if no edit can, or if the right edit is uncertain.
    """

    name: str
    state: State
    finding: str
    fix: str | None = None
    mend: FolderEdit | None = None


def check_drafter_folder(source: str, target: Target, second: bool = False) -> list[Check]:
    """Returns the checks of a drafter (folder or hub id) for this target. If the folder is unreadable, the last check is a fault.

    second: whether the drafter is checked as a second drafter.
    """
    checks: list[Check] = []
    try:
        checks += _check_parts(source, published_config(source), target, second)
    except InputError as error:
        checks.append(Check("config.json", "fault", str(error), "correct the key named above in config.json"))
    except Exception as error:
        finding = f"it cannot be read: {first_line(error)}"
        checks.append(Check("folder", "fault", finding, "use a folder with config.json and safetensors files"))
    return checks


def _check_parts(source: str, raw: Mapping[str, Any], target: Target, second: bool) -> Iterator[Check]:
    refuse_others(raw)
    if is_eagle3(raw):
        level = read_config(raw, target.config, source)
        yield Check("layout", "good", "EAGLE-3: one layer, which drafts level by level")
        made: Callable[[Shapes], nn.Module] = lambda held: Eagle3DraftModel(level, "embedding.weight" in held)  # noqa: E731
        yield from _check_weights(source, made, eagle3_name, level.draft_vocab_size, target)
        yield from _check_shared(level.layer.to_dict(), target.config)
    else:
        form = read_form(raw)
        yield Check("layout", "good", f"{form.layout} config of a block drafter, kind {form.kind}")
        config = drafter_config_of(form)
        made = lambda held: DFlashDraftModel(config, form, [p for p in BORROWED if f"{p}.weight" in held])  # noqa: E731
        yield from _check_weights(source, made, own_name, form.draft_vocabulary, target)
        yield from _check_form(form, target)
        if form.second_role and not second:
            finding = "its config says that it is a VP-Drafter, which must be the second drafter"
            yield Check("role", "fault", finding, "pass this drafter as --vp, and another one as first drafter")


def _check_weights(
    source: str, make: Callable[[Shapes], nn.Module], own: Naming, drafted: int | None, target: Target
) -> Iterator[Check]:
    """Checks names and shapes of the tensors. Reads no values except the map of the draft vocabulary.

    make: builds the network, given the folder's tensors.
    drafted: size of the draft vocabulary; None without one.
    """
    try:
        files = weight_files(source)
        shapes = tensor_shapes(files)
    except InputError as error:
        yield Check("tensors", "fault", str(error), "use a folder with all of its safetensors files")
        return
    held = {name: shape for key, shape in shapes.items() if (name := own(key)) is not None and name not in MAPS}
    with torch.device("meta"):
        made = make(held)
    wanted = {name: tuple(weight.shape) for name, weight in made.named_parameters()}
    if adapter := next((name for name in held if "lora_" in name), None):
        finding = f"it holds an adapter that was never merged into the weights ({adapter})"
        yield Check("tensors", "fault", finding, "merge the adapter, such as with peft's merge_and_unload")
        return
    if wanted.keys() - held.keys() and (part := _inserted(shapes, own, wanted)):
        finding = f"the names of its tensors contain {part}, as after saving a wrapper"
        fix = f"remove {part} from the tensor names"
        mend = FolderEdit(fix, lambda tensors: {key.replace(part, "", 1): w for key, w in tensors.items()})
        yield Check("tensors", "fault", finding, fix, mend)
        return
    if left := sorted({path.name for path in files[0].parent.glob("*.safetensors")} - {path.name for path in files}):
        finding = f"its index leaves out {', '.join(left[:MOST_NAMES])}"
        yield Check("files", "note", finding)
    yield from _check_tensors(wanted, held, own, target.config.hidden_size)
    if drafted is not None:
        yield from _check_map(files, drafted, target.config.vocab_size)


def _inserted(shapes: Shapes, own: Naming, wanted: Shapes) -> str | None:
    """Returns the text that must be removed from published names to obtain all wanted names; None if there is none."""
    tried = set[str]()
    for key, name in product(filter(None, map(own, shapes)), wanted):
        at = next((n for n, pair in enumerate(zip(key, name, strict=False)) if len(set(pair)) > 1), len(name))
        part = key[at : len(key) - len(name) + at]
        if not part.endswith(".") or part in tried or key != name[:at] + part + name[at:]:
            continue
        tried.add(part)
        if wanted.keys() <= {own(k.replace(part, "", 1)) for k in shapes}:
            return part
    return None


def _check_map(files: Iterable[Path], count: int, vocabulary: int) -> Iterator[Check]:
    """Checks the map of a draft vocabulary. Reports a fault if the map is invalid and exactly one common mistake explains it."""
    held = read_weights(files, lambda key: own_name(key) in MAPS)
    d2t, t2d = (next((w for key, w in held.items() if own_name(key) == part), None) for part in MAPS)
    if d2t is None or d2t.shape != (count,) or _possible(d2t, t2d, count, vocabulary):
        return
    numbers = torch.arange(count)
    others = {"holds target ids instead of differences": d2t.long() - numbers, "is too small by 1 in every entry": d2t + 1, "is too large by 1 in every entry": d2t - 1}  # fmt: skip
    right = [words for words, w in others.items() if bool(((w + numbers).diff() > 0).all()) and _possible(w, t2d, count, vocabulary)]  # fmt: skip
    if len(right) == 1:
        fix, other = "d2t: target id − draft id for each token of the draft vocabulary", others[right[0]]
        mend = FolderEdit(fix, lambda tensors: {k: other.to(w.dtype) if own_name(k) == "d2t" else w for k, w in tensors.items()})  # fmt: skip
        yield Check("d2t", "fault", f"its d2t {right[0]}", fix, mend)


def _possible(d2t: Tensor, t2d: Tensor | None, count: int, vocabulary: int) -> bool:
    try:
        token_ids(d2t, t2d, count, vocabulary)
    except InputError:
        return False
    return True


def _check_tensors(wanted: Shapes, held: Shapes, own: Naming, width: int) -> Iterator[Check]:
    """``width``: the target's hidden size."""
    wrong = [n for n in sorted(wanted.keys() & held.keys()) if wanted[n] != held[n]]
    for name in wrong[:MOST_NAMES]:
        there, needed = list(held[name]), list(wanted[name])
        finding = f"{name} has shape {there}, but the config implies {needed}"
        if name == "fc.weight" and there[:1] == needed[:1] and not there[1] % width:
            finding += f": it reads {there[1] // width} layers of the target, and the config names {needed[1] // width}"
        swapped = there == needed[::-1]
        fix = f"transpose {name}" if swapped else "correct the sizes or the taps in config.json"
        yield Check("shapes", "fault", finding + ", as if it was transposed" * swapped, fix)
    missing, surplus = sorted(wanted.keys() - held.keys()), sorted(held.keys() - wanted.keys())
    if (missing or surplus) and (fault := _known_form(held, wanted, own)):
        yield fault
        return
    misnamed = _misnamed(missing, surplus, wanted, held)
    mend = None
    if len(misnamed) == len(missing):
        mend = FolderEdit("tensors renamed", lambda tensors: {misnamed.get(str(own(k)), k): w for k, w in tensors.items()})  # fmt: skip
    meant = {name: other for other, name in misnamed.items()}
    for name in missing[:MOST_NAMES]:
        other = meant.get(name)
        finding = f", but the unknown tensor {other} has the same shape and a similar name" if other else ""
        if surplus and not other:
            finding = f"; the files hold unknown tensors instead, such as {surplus[0]}"
        fix = f"rename {other} to {name}" if other else f"use a folder that has {name}"
        yield Check("tensors", "fault", f"{name} is missing{finding}", fix, mend)
    if surplus and not missing:
        try:
            refuse_tensors(surplus)
        except InputError as error:
            yield Check("tensors", "fault", str(error), "use an engine that reads these tensors")
    if not missing and not surplus and not wrong:
        yield Check("tensors", "good", f"all {len(wanted)} are present, and no others")


def _known_form(held: Shapes, wanted: Shapes, own: Naming) -> Check | None:
    """Returns the fault if tensors have the names of another known form: fused matrices or other layer numbers."""
    if fused := [part for part in FUSED if any(name.endswith(f"{part}.weight") for name in held)]:
        finding = f"its files hold fused matrices ({', '.join(fused)}), as some engines keep them"
        fix = f"split {' and '.join(fused)} into {' and '.join(', '.join(FUSED[part]) for part in fused)}"
        return Check("tensors", "fault", finding, fix, FolderEdit(fix, partial(_split, wanted, own)))
    there, needed = (sorted({int(m[1]) for name in names if (m := LAYER.match(name))}) for names in (held, wanted))
    if there == needed or not there or not needed:
        return None
    if len(there) != len(needed):
        finding = f"the files hold the layers {', '.join(map(str, there))}, but num_hidden_layers is {len(needed)}"
        whole = there == list(range(len(there)))
        setting = f"num_hidden_layers: {len(there)}, with layer_types of {len(there)} entries"
        return Check("layers", "fault", finding, setting if whole else None)
    numbers = dict(zip(there, needed, strict=True))
    finding = f"its layers are numbered {there[0]} to {there[-1]} instead of 0 to {len(needed) - 1}"
    fix = "number the layers from 0"

    def renumber(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            re.sub(r"\blayers\.(\d+)", lambda m: f"layers.{numbers[int(m[1])]}", key): w for key, w in tensors.items()
        }

    return Check("layers", "fault", finding, fix, FolderEdit(fix, renumber))


def _split(wanted: Shapes, own: Naming, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors with fused matrices split into their parts."""
    found = dict(tensors)
    for part, parts in FUSED.items():
        for key in [key for key in tensors if key.endswith(f"{part}.weight")]:
            names = [key.replace(part, one) for one in parts]
            rows = [wanted[str(own(name))][0] for name in names]
            found |= zip(names, tensors[key].split(rows), strict=True)
            del found[key]
    return found


def _misnamed(missing: Sequence[str], surplus: Sequence[str], wanted: Shapes, held: Shapes) -> dict[str, str]:
    """Returns the missing name for each unknown tensor that is the only one with this shape and a similar name."""
    found: dict[str, str] = {}
    for name in missing:
        alike = [s for s in surplus if held[s] == wanted[name]]
        near = difflib.get_close_matches(name, alike, 2, MIN_SIMILARITY)
        if len(near) == 1:
            found[near[0]] = name
    return found


def _check_form(form: DrafterForm, target: Target) -> Iterator[Check]:
    layers, taps = target.config.num_hidden_layers, list(form.taps)
    named, late = form.shape.get("num_target_layers", layers), late_taps(taps, layers)
    notes = {
        f"the config was made for a target with {named} layers": named != layers,
        "a layer is named twice": len(set(taps)) < len(taps),
        "not in ascending order, unlike published taps": taps != sorted(taps),
        f"it {late}": bool(late),
    }
    said = [words for words, true in notes.items() if true]
    yield Check("taps", "note" if said else "good", "; ".join([f"{taps}, of the target's layers 0 to {layers - 1}", *said]))  # fmt: skip
    yield _check_mask(form, target)
    drafted = form.block_size - 1
    yield Check(
        "block", "good", f"{form.rows} rows per block ({form.reads} convention): {drafted} drafted tokens per step"
    )
    inside = "causal" if any(form.causal) else "bidirectional"
    widths = sorted({w for w in form.windows if w is not None})
    narrowed = f"{sum(w is not None for w in form.windows)} of {len(form.windows)} layers see only the last {' or '.join(map(str, widths))} positions"  # fmt: skip
    finding = f"{narrowed if widths else 'no window'}; attention within the block is {inside}"
    yield Check("window", "note" if widths else "good", finding)
    yield from _check_shared(form.shape, target.config)
    if form.draft_vocabulary is not None:
        yield Check(
            "vocabulary",
            "note",
            f"it can draft {form.draft_vocabulary} of the target's {target.config.vocab_size} tokens",
        )


def _check_shared(shape: Mapping[str, Any], target: Any) -> Iterator[Check]:
    """Reports settings that differ from the target's. This is right only if the drafter was trained with them."""
    for name in ("rope_parameters", "rms_norm_eps", "hidden_act"):
        own, theirs = shape.get(name), getattr(target, name, None)
        if theirs is not None and own != theirs:
            yield Check(name, "note", f"{own}; the target's is {theirs}")


def _check_mask(form: DrafterForm, target: Target) -> Check:
    mask, tokenizer = form.mask_token, target.tokenizer
    if mask >= len(tokenizer):
        return Check("mask token", "good", f"token {mask}, which is not in the tokenizer, so no text contains it")
    finding = f"token {mask}, {str(tokenizer.convert_ids_to_tokens(mask))[:40]!r}"
    ordinary = mask in (*target.end_ids, tokenizer.pad_token_id) or mask not in tokenizer.added_tokens_decoder
    return Check(
        "mask token", "note" if ordinary else "good", finding + ", which occurs in texts or ends them" * ordinary
    )
