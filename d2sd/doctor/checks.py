"""Checks a drafter's folder without running the drafter. Most faults are reported with a fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from d2sd.doctor.changes import FolderEdit
from d2sd.doctor.settings import config_line, config_values, with_setting
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
from d2sd.nets.drafter import DFlashDraftModel, default_target_layers
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm, read_form
from d2sd.nets.models import late_taps
from d2sd.nets.target import Target

State = Literal["good", "note", "fault"]
Shapes = Mapping[str, tuple[int, ...]]
Naming = Callable[[str], str | None]  # maps a tensor's published name to its name in d2sd
FIRST = "fc.weight"  # a tensor that every drafter has
MOST_NAMES = 4  # largest number of tensors that are reported for one fault
# Similarity to a missing tensor's name from which an unknown tensor counts as misnamed, and lead over other tensors of its shape.
MIN_SIMILARITY, MIN_LEAD = 0.5, 0.05
LAYER = re.compile(r"layers\.(\d+)\.")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
MARKERS = ("<|im_start|>", "<|start_header_id|>")  # tokens that begin a turn of a chat


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    name: name of the check, in a word or two.
    state: a "fault" prevents the drafter from running or makes it draft wrongly; a "note" is a difference that may be intended.
    finding: the result, as a clause.
    kind: kind of the fault; becomes ``Diagnosis.cause``.
    fix: what to change; None if unknown, or if nothing is wrong.
    mend: an edit of the folder that carries out the fix; None if no edit can, or if the right edit is uncertain.
    """

    name: str
    state: State
    finding: str
    kind: str = "folder"
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
        checks.append(Check("config.json", "fault", str(error), fix="correct the key named above in config.json"))
    except Exception as error:
        finding = f"it cannot be read: {first_line(error)}"
        checks.append(Check("folder", "fault", finding, fix="use a folder with config.json and safetensors files"))
    return checks


def _check_parts(source: str, raw: Mapping[str, Any], target: Target, second: bool) -> Iterator[Check]:
    refuse_others(raw)
    if is_eagle3(raw):
        level = read_config(raw, target.config, source)
        yield Check("layout", "good", "EAGLE-3: one layer, which drafts level by level")
        yield from _check_weights(
            source, partial(Eagle3DraftModel, level), eagle3_name, level.draft_vocab_size, target, None, raw
        )
        yield from _check_calculation(level.layer.to_dict(), target.config)
        yield from _check_ends(raw, target)
        return
    form = read_form(raw)
    yield Check("layout", "good", f"{form.layout} config of a block drafter, kind {form.kind}")
    made = partial(DFlashDraftModel, drafter_config_of(form), form)
    yield from _check_weights(source, made, own_name, form.draft_vocabulary, target, form, raw)
    yield from _check_form(form, raw, target)
    if form.second_role:
        finding, fix = (
            "its config says that it is a VP-Drafter, which must be the second drafter",
            "pass this drafter as --vp, and another one as first drafter",
        )
        yield Check("role", "good", finding) if second else Check("role", "fault", finding, "role", fix)
    yield from _check_ends(raw, target)


def _check_weights(
    source: str, make: Callable[[Any], nn.Module], own: Naming, drafted: int | None, target: Target,
    form: DrafterForm | None, raw: Mapping[str, Any],
) -> Iterator[Check]:  # fmt: skip
    """Checks names and shapes of the tensors. Reads no values except the map of the draft vocabulary.

    make: builds the network, given which parts of ``BORROWED`` the folder has (for EAGLE-3: whether the folder has an embedding).
    drafted: size of the draft vocabulary; None without one.
    form: form of a block drafter; None for EAGLE-3.
    """
    try:
        files = weight_files(source)
        shapes = tensor_shapes(files)
    except InputError as error:
        yield Check("tensors", "fault", str(error), "tensors", "use a folder with all of its safetensors files")
        return
    held = {name: shape for key, shape in shapes.items() if (name := own(key)) is not None and name not in MAPS}
    with torch.device("meta"):
        if form is None:
            made = make("embedding.weight" in held)
        else:
            made = make(tuple(part for part in BORROWED if f"{part}.weight" in held))
    wanted = {name: tuple(weight.shape) for name, weight in made.named_parameters()}
    if prefix := _common_prefix(shapes, own, wanted):
        finding, fix = (
            f"the names of its tensors begin with {prefix}, as if they were saved from a wrapper module",
            f"remove {prefix} from the tensor names",
        )
        mend = FolderEdit(fix, lambda tensors: {key.removeprefix(prefix): w for key, w in tensors.items()})
        yield Check("tensors", "fault", finding, "tensors", fix, mend)
        return
    yield from _check_tensors(wanted, held, own, form, target, raw)
    if drafted is not None:
        yield from _check_map(files, drafted, target.config.vocab_size)


def _common_prefix(shapes: Shapes, own: Naming, wanted: Shapes) -> str | None:
    """Returns the prefix that must be removed from published names to obtain all wanted names; None if no prefix does this."""
    for prefix in [key.removesuffix(FIRST) for key in shapes if key.endswith(FIRST)]:
        if own(prefix + FIRST) != FIRST and wanted.keys() <= {own(k.removeprefix(prefix)) for k in shapes}:
            return prefix
    return None


def _check_map(files: Iterable[Path], count: int, vocabulary: int) -> Iterator[Check]:
    """Checks the map of a draft vocabulary. Reports a fault if the map is invalid and exactly one common mistake explains it."""
    held = read_weights(files, lambda key: own_name(key) in MAPS)
    d2t, t2d = (next((w for key, w in held.items() if own_name(key) == part), None) for part in MAPS)
    if d2t is None or d2t.shape != (count,) or _possible(d2t, t2d, count, vocabulary):
        return
    numbers = torch.arange(count)
    others = {
        "holds target ids instead of differences": d2t.long() - numbers,
        "is too small by 1 in every entry": d2t + 1,
        "is too large by 1 in every entry": d2t - 1,
    }
    right = [
        (words, other)
        for words, other in others.items()
        if bool(((other + numbers).diff() > 0).all()) and _possible(other, t2d, count, vocabulary)
    ]
    if len(right) == 1:
        words, other = right[0]
        fix = "d2t: target id − draft id for each token of the draft vocabulary"
        mend = FolderEdit(fix, lambda tensors: {k: other.to(w.dtype) if own_name(k) == "d2t" else w for k, w in tensors.items()})  # fmt: skip
        yield Check("d2t", "fault", f"its d2t {words}", "map", fix, mend)


def _possible(d2t: Tensor, t2d: Tensor | None, count: int, vocabulary: int) -> bool:
    try:
        token_ids(d2t, t2d, count, vocabulary)
    except InputError:
        return False
    return True


def _check_tensors(
    wanted: Shapes, held: Shapes, own: Naming, form: DrafterForm | None, target: Target, raw: Mapping[str, Any]
) -> Iterator[Check]:
    if form is not None:
        yield from _check_fc(form, held, target, raw)
    wrong = [
        n for n in sorted(wanted.keys() & held.keys()) if wanted[n] != held[n] and (n != "fc.weight" or form is None)
    ]
    for name in wrong[:MOST_NAMES]:
        swapped = held[name] == wanted[name][::-1]
        finding = f"{name} has shape {list(held[name])}, but the config implies {list(wanted[name])}{', as if it was transposed' * swapped}"
        yield Check("shapes", "fault", finding, "tensors", f"transpose {name}" if swapped else "correct the sizes in config.json")  # fmt: skip
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
        yield Check("tensors", "fault", f"{name} is missing{finding}", "tensors", fix, mend)
    if surplus and not missing:
        try:
            refuse_tensors(surplus)
        except InputError as error:
            yield Check("tensors", "fault", str(error), "tensors", "use an engine that reads these tensors")
    if not missing and not surplus and not wrong:
        yield Check("tensors", "good", f"all {len(wanted)} are present, and no others")


def _known_form(held: Shapes, wanted: Shapes, own: Naming) -> Check | None:
    """Returns the fault if tensors have the names of another known form: an adapter, fused matrices or other layer numbers."""
    if adapter := next((name for name in held if "lora_" in name), None):
        finding = f"it holds an adapter that was never merged into the weights ({adapter})"
        return Check("tensors", "fault", finding, "tensors", "merge the adapter, such as with peft's merge_and_unload")
    if fused := [part for part in FUSED if any(name.endswith(f"{part}.weight") for name in held)]:
        finding = f"its files hold fused matrices ({', '.join(fused)}), as some engines keep them"
        fix = f"split {' and '.join(fused)} into {' and '.join(', '.join(FUSED[part]) for part in fused)}"
        return Check("tensors", "fault", finding, "tensors", fix, FolderEdit(fix, partial(_split, wanted, own)))
    there, needed = (sorted({int(m[1]) for name in names if (m := LAYER.match(name))}) for names in (held, wanted))
    if there == needed or not there or not needed:
        return None
    if len(there) != len(needed):
        finding = f"the files hold the layers {', '.join(map(str, there))}, but num_hidden_layers is {len(needed)}"
        whole = there == list(range(len(there)))
        setting = f"num_hidden_layers: {len(there)}, with layer_types of {len(there)} entries"
        return Check("layers", "fault", finding, "layers", setting if whole else None)
    numbers = dict(zip(there, needed, strict=True))
    finding = f"its layers are numbered {there[0]} to {there[-1]} instead of 0 to {len(needed) - 1}"
    fix = "number the layers from 0"

    def renumber(tensors: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
        return {
            re.sub(r"\blayers\.(\d+)", lambda m: f"layers.{numbers[int(m[1])]}", key): w for key, w in tensors.items()
        }

    return Check("layers", "fault", finding, "layers", fix, FolderEdit(fix, renumber))


def _split(wanted: Shapes, own: Naming, tensors: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Returns the tensors with fused matrices split into their parts."""
    found: dict[str, Tensor | None] = {}
    for key, w in tensors.items():
        part = next((part for part in FUSED if key.endswith(f"{part}.weight")), None)
        names = [key] if part is None else [key.replace(part, one) for one in FUSED[part]]
        rows = [wanted[str(own(name))][0] for name in names] if part else [len(w)]
        found |= dict(zip(names, w.split(rows), strict=True)) if part else {key: w}
    return found


def _misnamed(missing: Sequence[str], surplus: Sequence[str], wanted: Shapes, held: Shapes) -> dict[str, str]:
    """Returns the missing name for each unknown tensor that can only be meant for one of the missing tensors."""
    found: dict[str, str] = {}
    for name in missing:
        alike = [s for s in surplus if held[s] == wanted[name]]
        near = sorted(((difflib.SequenceMatcher(None, name, s).ratio(), s) for s in alike), reverse=True)
        rivals = [other for other in missing if near and wanted[other] == held[near[0][1]]]
        alone = len(near) == 1 and len(rivals) == 1
        clear = len(near) > 1 and near[0][0] >= max(MIN_SIMILARITY, near[1][0] + MIN_LEAD)
        if alone or clear or (len(near) == 1 and near[0][0] >= MIN_SIMILARITY):
            found[near[0][1]] = name
    return found


def _check_fc(form: DrafterForm, held: Shapes, target: Target, raw: Mapping[str, Any]) -> Iterator[Check]:
    shape, hidden, count = held.get("fc.weight"), form.shape["hidden_size"], len(form.taps)
    if shape is None or len(shape) != 2 or shape == (hidden, count * hidden):
        return
    reads, rest = divmod(shape[1], hidden)
    finding = (
        f"fc.weight has shape {list(shape)}: it reads {reads} layers of width {hidden}, but the config names {count}"
    )
    if rest or shape[0] != hidden or not 0 < reads < target.config.num_hidden_layers:
        yield Check("fc", "fault", f"fc.weight has shape {list(shape)}, but {count} taps need {[hidden, count * hidden]}", "taps", "correct hidden_size or the taps")  # fmt: skip
        return
    even = default_target_layers(target.config.num_hidden_layers, reads)
    named = f"; the usual, evenly spaced taps are {even}" if len(even) == reads else ""
    yield Check("fc", "fault", finding + named, "taps", _taps_line(form, even, raw))


def _check_form(form: DrafterForm, raw: Mapping[str, Any], target: Target) -> Iterator[Check]:
    c, layers = target.config, target.config.num_hidden_layers
    if form.shape["hidden_size"] != c.hidden_size:
        yield Check("sizes", "fault", f"its hidden size is {form.shape['hidden_size']}, but the target's is {c.hidden_size}: it was made for another target", "target", "use the target that it was trained for")  # fmt: skip
    if form.shape["vocab_size"] != c.vocab_size:
        yield Check("sizes", "fault", f"its vocabulary has {form.shape['vocab_size']} tokens, but the target's has {c.vocab_size}: it was made for another target", "target", "use the target that it was trained for")  # fmt: skip
    yield _check_taps(form, layers, raw)
    named = form.shape.get("num_target_layers")
    if named is not None and named != layers:
        yield Check("taps", "fault", f"its num_target_layers is {named}, but the target has {layers} layers", "target", f"num_target_layers: {layers}, or use the target that it was trained for")  # fmt: skip
    yield _check_mask(form, target)
    drafted = form.block_size - 1
    yield Check("block", "good", f"{form.rows} rows per block ({form.reads} convention): {drafted} drafted tokens per step; with the bonus token, at most {drafted + 1} are committed")  # fmt: skip
    inside = "causal" if any(form.causal) else "bidirectional"
    if widths := sorted({w for w in form.windows if w is not None}):
        narrowed = sum(w is not None for w in form.windows)
        last = " or ".join(map(str, widths))
        yield Check("window", "note", f"{narrowed} of {len(form.windows)} layers see only the last {last} positions; attention within the block is {inside}. This is right only if the drafter was trained this way")  # fmt: skip
    else:
        yield Check("window", "good", f"no window; attention within the block is {inside}")
    own, theirs = dict(form.shape["rope_parameters"]), dict(c.rope_parameters)
    if own == theirs:
        finding = f"base {own.get('rope_theta'):g}, type {own.get('rope_type')}, the same as the target's"
        yield Check("RoPE", "good", finding)
    else:
        yield Check("RoPE", "note", f"base {own.get('rope_theta'):g}, type {own.get('rope_type')}; the target has base {theirs.get('rope_theta'):g}, type {theirs.get('rope_type')}")  # fmt: skip
    yield from _check_calculation(form.shape, c)
    if form.draft_vocabulary is not None:
        finding = (
            f"it can draft {form.draft_vocabulary} of the target's {c.vocab_size} tokens; any other token ends a draft"
        )
        yield Check("vocabulary", "note", finding)
    stored, run = raw.get("dtype") or raw.get("torch_dtype") or "an unnamed dtype", target.numbers
    yield Check("numbers", "good", f"its weights are stored in {str(stored)[:20]}; the target runs in {run}")


def _check_calculation(shape: Mapping[str, Any], target: Any) -> Iterator[Check]:
    """Reports ``rms_norm_eps`` and ``hidden_act`` if they differ from the target's."""
    for name in ("rms_norm_eps", "hidden_act"):
        own, theirs = shape.get(name), getattr(target, name, None)
        if theirs is not None and own != theirs:
            yield Check(
                name, "note", f"{own}; the target's is {theirs}. This is right only if the drafter was trained this way"
            )


def _check_taps(form: DrafterForm, layers: int, raw: Mapping[str, Any]) -> Check:
    taps = list(form.taps)
    outside = [n for n in taps if n >= layers]
    if outside:
        return Check("taps", "fault", f"it reads layer {outside[0]}, but the target has layers 0 to {layers - 1}", "taps", _taps_line(form, default_target_layers(layers, len(taps)), raw))  # fmt: skip
    if len(set(taps)) < len(taps):
        return Check("taps", "note", f"{taps} names a layer twice")
    if taps != sorted(taps):
        return Check("taps", "note", f"{taps} is not in ascending order, unlike published taps")
    if late := late_taps(taps, layers):
        return Check("taps", "note", f"{taps}: it {late}")
    return Check(
        "taps", "good", f"{taps}, of the target's layers 0 to {layers - 1}; no tap is after layer {max(layers - 3, 1)}"
    )


def _taps_line(form: DrafterForm, taps: Sequence[int], raw: Mapping[str, Any]) -> str:
    return config_line(config_values(with_setting(form, "taps", tuple(taps)), "taps", raw) or {})


def _check_mask(form: DrafterForm, target: Target) -> Check:
    mask, tokenizer = form.mask_token, target.tokenizer
    finding = f"token {mask}"
    if mask >= len(tokenizer):
        return Check("mask token", "good", f"{finding}, which is not in the tokenizer, so no text contains it")
    text = repr(str(tokenizer.convert_ids_to_tokens(mask)))[:40]
    if mask in target.end_ids:
        return Check("mask token", "note", f"{finding} is {text}, which ends a text")
    if mask == tokenizer.pad_token_id:
        return Check("mask token", "note", f"{finding} is {text}, which pads a batch")
    if mask not in tokenizer.added_tokens_decoder:
        return Check("mask token", "note", f"{finding} is {text}, an ordinary token that occurs in texts")
    return Check("mask token", "good", f"{finding}, {text}")


def _check_ends(raw: Mapping[str, Any], target: Target) -> Iterator[Check]:
    ends = raw.get("eos_token_id")
    named = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    if named and not named & target.end_ids:
        finding = (
            f"its config names the end tokens {sorted(named)}, but the target's end tokens are {sorted(target.end_ids)}"
        )
        yield Check("end tokens", "note", finding)
    else:
        yield Check("end tokens", "good", f"the target's end tokens are {sorted(target.end_ids)}")
    tokenizer = target.tokenizer
    if not tokenizer.chat_template:
        yield Check("template", "good", "the target has no chat template")
    elif unused := unused_marker(target):
        yield Check("template", "note", f"the target's vocabulary has {unused}, but its chat template does not use it")
    else:
        yield Check("template", "good", "the target's chat template uses every chat marker of the vocabulary")


def unused_marker(target: Target) -> str | None:
    """Returns one of ``MARKERS`` that is in the vocabulary but not in the chat template; None if there is none."""
    template, vocabulary = str(target.tokenizer.chat_template or ""), target.tokenizer.get_vocab()
    return next((m for m in MARKERS if m in vocabulary and template and m not in template), None)
