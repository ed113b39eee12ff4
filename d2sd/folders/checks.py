"""Checks a drafter's folder without running the drafter: its config, and the names and shapes of its tensors.

Loading a drafter raises the first fault as an ``InputError``; the doctor lists all checks. Most faults are reported with a fix.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from transformers import Qwen3Config

from d2sd.errors import InputError, first_line
from d2sd.folders.configs import drafter_form
from d2sd.folders.weights import read_weights, tensor_shapes, weight_files
from d2sd.nets.config_checks import Shapes, wrong_shapes
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm, Eagle3Form, Form
from d2sd.nets.models import late_taps, misfit
from d2sd.nets.target import Target
from d2sd.nets.types import layer_kinds

Mend = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
MOST_NAMES = 4  # largest number of tensors that are reported for one fault
MOST_TRIED = 100  # largest number of unknown tensors whose names are compared with the names of missing tensors
MIN_SIMILARITY = 0.5  # similarity to a missing tensor's name from which an unknown tensor counts as misnamed
BORROWED = ("embed_tokens", "lm_head")  # parts that a drafter may take from the target
MAPS = ("d2t", "t2d")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
# pattern in a tensor's name → description of this unsupported kind of tensor
TENSORS = {
    "sinks": "attention sinks", "prefix_gru|embed_proj": "the head of a Domino drafter", "kv_a_proj": "latent attention (MLA)",
    "experts": "experts (MoE)", "mask_embedding": "a learned mask embedding", "mask_hidden": "a P-EAGLE drafter's mask",
    "qweight|weight_(scale|packed)": "quantised weights",
}  # fmt: skip


class Check(NamedTuple):
    """A check of a drafter's folder, with its result.

    name: name of the check, in a word or two.
    state: "good", "note" or "fault". A fault prevents the drafter from running or makes it draft wrongly; a note is a difference
        that may be intended.
    finding: the result, as a clause.
    fix: what to change; None if unknown, if the finding says it, or if nothing is wrong.
    mend: function that carries out the fix. It takes the published tensors by name and returns those of the repaired folder. None
        if no edit of tensors is a fix, or if the right edit is uncertain.
    """

    name: str
    state: Literal["good", "note", "fault"]
    finding: str
    fix: str | None = None
    mend: Mend | None = None

    @property
    def description(self) -> str:
        return self.fix or self.finding


tensor_fault = partial(Check, "tensors", "fault")


def until_error(checks: Iterator[Check]) -> Iterator[Check]:
    """Yields the given checks. If computing them raises an exception, the last check is a fault with the exception's message."""
    try:
        yield from checks
    except InputError as error:
        yield Check("config.json", "fault", str(error))
    except Exception as error:  # configs and files are untrusted
        yield Check("folder", "fault", f"it cannot be read: {first_line(error)}")


def check_drafter_folder(source: str, target: Target, second: bool = False) -> list[Check]:
    """Returns the checks of a drafter's folder for a target. If the folder is unreadable, the last check is a fault.

    source: folder or hub id.
    second: whether the drafter is checked as a second drafter.
    """

    def checks() -> Iterator[Check]:
        form = drafter_form(source, target.config)
        yield from target_checks(form, target.config, target, second)
        try:
            files = weight_files(source)
        except InputError as error:
            yield tensor_fault(str(error))
        else:
            yield from tensor_checks(files, form)

    return list(until_error(checks()))


def network(form: Form, stored: Collection[str] = ()) -> Any:
    """Returns a drafter's network on torch's device "meta", which allocates no memory.

    form: the drafter's kind and sizes.
    stored: names of the tensors in the drafter's files. They decide whether the drafter has its own embedding and LM head.
    """
    with torch.device("meta"):
        parts = [part for part in BORROWED if f"{part}.weight" in stored]
        if isinstance(form, DrafterForm):
            return DFlashDraftModel(drafter_config_of(form), form, parts)
        return Eagle3DraftModel(cast(Eagle3Form, form), parts)


def drafter_config_of(form: DrafterForm) -> Qwen3Config:
    return Qwen3Config(**{
        **form.shape,
        "block_size": form.rows,
        "dflash_config": {"mask_token_id": form.mask_token, "target_layer_ids": list(form.taps)},
        "tie_word_embeddings": False,
    })  # fmt: skip


def own_name(key: str) -> str | None:
    """Returns the name that this package gives to a published tensor; None for a tensor that is not needed here."""
    key = re.sub(r"^midlayer\.", "layers.0.", key.removeprefix("model.").removeprefix("logit_head."))
    return None if key.startswith("verifier_") or key.endswith("rotary_emb.inv_freq") else key


# The config, for a target.


def target_checks(form: Form, config: Any, target: Target | None = None, second: bool = False) -> Iterator[Check]:
    """Yields the checks of a drafter's config for a target.

    form: the drafter's kind, sizes and settings.
    config: the target's text config.
    target: the target; None if it is not loaded.
    second: whether the drafter may be a VP-Drafter, which only a second drafter can be.
    """
    kind = "EAGLE-3: one layer, which drafts level by level"
    if isinstance(form, DrafterForm):
        kind = f"{form.layout} config of a block drafter, kind {form.kind}"
    yield Check("layout", "good", kind)
    if wrong := misfit(form, config):
        yield Check(
            "fit", "fault", wrong, "choose a drafter that was made for this target, or the target of this drafter"
        )
        return
    yield _check_taps(form, config)
    if isinstance(form, DrafterForm):
        if form.second_role and not second:
            yield Check("role", "fault", "its config says that it is a VP-Drafter, which must be the second drafter", "use it as second drafter (--vp), with another drafter as the first")  # fmt: skip
        yield _check_mask(form.mask_token, target)
        yield Check("block", "good", f"{form.rows} rows per block ({form.reads} convention): {form.block_size - 1} drafted tokens per step")  # fmt: skip
        inside = "causal" if any(form.causal) else "bidirectional"
        windows = [window for window in form.windows if window is not None]
        narrowed = f"{len(windows)} of {len(form.windows)} layers see only the last {' or '.join(map(str, sorted(set(windows))))} positions"  # fmt: skip
        finding = f"{narrowed if windows else 'no window'}; attention within the block is {inside}"
        yield Check("window", "note" if windows else "good", finding)
    for name in ("rope_parameters", "rms_norm_eps", "hidden_act"):  # right only if the drafter was trained with them
        value, targets = form.shape.get(name), getattr(config, name, None)
        if targets not in (None, value):
            yield Check(name, "note", f"{value}; the target's is {targets}")
    if form.draft_vocabulary is not None:
        yield Check("vocabulary", "note", f"it can draft {form.drafted} of the target's {config.vocab_size} tokens")


def _check_taps(form: Form, config: Any) -> Check:
    layers, taps, kinds = config.num_hidden_layers, list(form.taps), layer_kinds(config)
    layers_in_config, late = form.shape.get("num_target_layers", layers), late_taps(taps, layers)
    notes = {
        f"the config was made for a target with {layers_in_config} layers": layers_in_config != layers,
        "a layer is named twice": len(set(taps)) < len(taps),
        "not in ascending order, unlike published taps": taps != sorted(taps),
        f"it {late}": bool(late),
    }
    true_notes = [note for note, true in notes.items() if true]
    tapped = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds[tap] for tap in taps).items())
    finding = f"{taps}, of the target's layers 0 to {layers - 1} ({tapped})"
    return Check("taps", "note" if true_notes else "good", "; ".join([finding, *true_notes]))


def _check_mask(mask: int, target: Target | None) -> Check:
    finding, ordinary = f"token {mask}", False
    if target is not None and mask >= len(target.tokenizer):
        finding += ", which is not in the tokenizer, so no text contains it"
    elif target is not None:
        tokenizer = target.tokenizer
        ordinary = mask in (*target.end_ids, tokenizer.pad_token_id) or mask not in tokenizer.added_tokens_decoder
        finding += (
            f", {str(tokenizer.convert_ids_to_tokens(mask))[:40]!r}" + ", which occurs in texts or ends them" * ordinary
        )
    return Check("mask token", "note" if ordinary else "good", finding)


# Names and shapes of the tensors.


def tensor_checks(files: Sequence[Path], form: Form) -> Iterator[Check]:
    """Yields the checks of the names and shapes of the tensors in a drafter's files. Only the map of the draft vocabulary is read."""
    shapes = tensor_shapes(files)
    stored = {name: shape for key, shape in shapes.items() if (name := own_name(key)) and name not in MAPS}
    wanted = {name: tuple(weight.shape) for name, weight in network(form, stored).named_parameters()}
    missing, surplus = sorted(wanted.keys() - stored.keys()), sorted(stored.keys() - wanted.keys())
    if adapter := next((name for name in surplus if "lora_" in name), None):
        yield tensor_fault(
            f"it holds an adapter that was never merged into the weights ({adapter})",
            "merge the adapter, such as with peft's merge_and_unload",
        )  # fmt: skip
        return
    if part := _inserted(shapes, wanted, missing):
        yield tensor_fault(
            f"the names of its tensors contain {part}, as after saving a wrapper",
            f"remove {part} from the tensor names", _renaming(lambda key: key.replace(part, "", 1)),
        )  # fmt: skip
        return
    if unlisted := sorted(
        {path.name for path in files[0].parent.glob("*.safetensors")} - {path.name for path in files}
    ):
        yield Check("files", "note", f"its index leaves out {', '.join(unlisted[:MOST_NAMES])}")
    wrong = wrong_shapes(stored, wanted)
    for name, finding in islice(wrong.items(), MOST_NAMES):
        shape, needed = stored[name], wanted[name]
        if name == "fc.weight" and shape[:1] == needed[:1] and not shape[1] % form.width:
            finding += (
                f": it reads {shape[1] // form.width} layers of the target, and the config names {len(form.taps)}"
            )
        swapped = shape == needed[::-1]
        fix = f"transpose {name}" if swapped else "correct the sizes or the taps in config.json"
        yield Check("shapes", "fault", finding + ", as if it was transposed" * swapped, fix)
    if (missing or surplus) and (fault := _other_format(stored, wanted)):
        yield fault
    elif missing:
        yield from _missing(missing, surplus, wanted, stored)
    elif surplus:
        kind = next((f" ({text})" for key, text in TENSORS.items() if re.search(key, " ".join(surplus))), "")
        yield tensor_fault(
            f"its weights hold {', '.join(surplus[:3])}{kind}, which this version does not read",
            "use an engine that reads these tensors",
        )  # fmt: skip
    elif not wrong:
        yield Check("tensors", "good", f"all {len(wanted)} are present, and no others")
    hidden = form.shape["hidden_size"]
    if "embed_tokens.weight" not in stored and hidden != form.width:
        yield Check("embedding", "fault", f"it has hidden size {hidden} and no embedding, and the target's embedding has width {form.width}")  # fmt: skip
    if form.draft_vocabulary is not None or isinstance(form, Eagle3Form):
        yield from _check_map(files, form.drafted, form.vocabulary)


def _renaming(rename: Callable[[str], str]) -> Mend:
    return lambda tensors: {rename(key): weight for key, weight in tensors.items()}


def _inserted(shapes: Shapes, wanted: Shapes, missing: Sequence[str]) -> str | None:
    """Returns the text that must be removed from published names to obtain all wanted names; None if there is none."""
    parts: dict[str, None] = {}
    for key in filter(None, map(own_name, shapes)):
        for name in missing[:MOST_NAMES]:
            steps, needed = key.split("."), name.split(".")
            start = next((n for n, pair in enumerate(zip(steps, needed, strict=False)) if len(set(pair)) > 1), 0)
            part = steps[start : len(steps) - len(needed) + start]
            if part and steps == [*needed[:start], *part, *needed[start:]]:
                parts[f"{'.'.join(part)}."] = None
    fits = (part for part in islice(parts, MOST_NAMES) if wanted.keys() <= {own_name(key.replace(part, "", 1)) for key in shapes})  # fmt: skip
    return next(fits, None)


def _missing(missing: Sequence[str], surplus: Sequence[str], wanted: Shapes, stored: Shapes) -> Iterator[Check]:
    """Yields a fault for each missing tensor. An unknown tensor counts as misnamed if it is the only one with the right shape and a
    similar name.

    missing: names of the missing tensors.
    surplus: names of the unknown tensors.
    """
    meant = {}
    for name in missing[:MOST_TRIED]:
        alike = [s for s in surplus[:MOST_TRIED] if stored[s] == wanted[name] and len(s) < 2 * len(name)]
        near = difflib.get_close_matches(name, alike, 2, MIN_SIMILARITY)
        if len(near) == 1:
            meant[name] = near[0]
    names = {other: name for name, other in meant.items()}
    mend = _renaming(lambda key: names.get(str(own_name(key)), key)) if len(names) == len(missing) else None
    for name in missing[:MOST_NAMES]:
        other = meant.get(name)
        finding = f", but the unknown tensor {other} has the same shape and a similar name" if other else ""
        if surplus and not other:
            finding = f"; the files hold unknown tensors instead, such as {surplus[0]}"
        fix = f"rename {other} to {name}" if other else f"use a folder that has {name}"
        yield tensor_fault(f"{name} is missing{finding}", fix, mend)


def _other_format(stored: Shapes, wanted: Shapes) -> Check | None:
    """Returns the fault if the tensors have the names of another common format: fused matrices, or other layer numbers. Otherwise,
    returns None.

    """
    if fused := [part for part in FUSED if any(name.endswith(f"{part}.weight") for name in stored)]:
        return tensor_fault(
            f"its files hold fused matrices ({', '.join(fused)}), as some engines keep them",
            f"split {' and '.join(fused)} into {' and '.join(', '.join(FUSED[part]) for part in fused)}", partial(_split, wanted),
        )  # fmt: skip
    layers, needed = (
        sorted({int(m[1]) for name in names if (m := re.match(r"layers\.(\d+)\.", name))}) for names in (stored, wanted)
    )
    if layers == needed or not layers or not needed:
        return None
    if len(layers) != len(needed):
        whole = layers == list(range(len(layers)))
        return Check(
            "layers", "fault", f"the files hold the layers {', '.join(map(str, layers))}, but num_hidden_layers is {len(needed)}",
            f"set num_hidden_layers to {len(layers)}, with layer_types of {len(layers)} entries" if whole else None,
        )  # fmt: skip
    numbers = dict(zip(layers, needed, strict=True))
    return Check(
        "layers", "fault", f"its layers are numbered {layers[0]} to {layers[-1]} instead of 0 to {len(needed) - 1}",
        "number the layers from 0",
        _renaming(lambda key: re.sub(r"\blayers\.(\d+)", lambda m: f"layers.{numbers[int(m[1])]}", key)),
    )  # fmt: skip


def _split(wanted: Shapes, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    split = dict(tensors)
    for fused, parts in FUSED.items():
        for key in [key for key in tensors if key.endswith(f"{fused}.weight")]:
            names = [key.replace(fused, part) for part in parts]
            rows = [wanted[str(own_name(name))][0] for name in names]
            split |= zip(names, split.pop(key).split(rows), strict=True)
    return split


# The map of a draft vocabulary.


def _wrong_map(d2t: Tensor | None, t2d: Tensor | None, count: int, vocabulary: int) -> str | None:
    """Returns what is wrong with the map of a draft vocabulary; None if nothing is.

    d2t: (D,), for each draft id, the target's id minus the draft id.
    t2d: (V,), whether each token of the target is in the draft vocabulary.
    count: D, the size of the draft vocabulary.
    vocabulary: V, the size of the target's vocabulary.
    """
    if d2t is None and count == vocabulary:
        return None
    if d2t is None or d2t.shape != (count,):
        why = "has no d2t tensor that names them" if d2t is None else f"its d2t has {d2t.numel()} entries"
        return f"it drafts {count} of {vocabulary} tokens, but {why}"
    ids = torch.arange(count) + d2t.long()
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary or len(ids.unique()) < count:
        return f"its d2t does not map to {count} different tokens; the target has {vocabulary} tokens"
    present = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, ids, True)
    return None if t2d is None or torch.equal(t2d.bool(), present) else "its d2t and its t2d contradict each other"


def _check_map(files: Iterable[Path], count: int, vocabulary: int) -> Iterator[Check]:
    """Yields a fault if the map of the draft vocabulary is wrong. The fault has a fix if exactly one common mistake explains it.

    count, vocabulary: as for ``_wrong_map``.
    """
    maps = {own_name(key): weight for key, weight in read_weights(files, lambda key: own_name(key) in MAPS).items()}
    d2t, t2d = map(maps.get, MAPS)
    if (finding := _wrong_map(d2t, t2d, count, vocabulary)) is None:
        return
    fix, mend, ids = None, None, torch.arange(count)
    if d2t is not None and d2t.shape == ids.shape:
        others = {"holds target ids instead of differences": d2t.long() - ids, "is too small by 1 in every entry": d2t + 1, "is too large by 1 in every entry": d2t - 1}  # fmt: skip
        right = [words for words, other in others.items() if bool(((other + ids).diff() > 0).all()) and not _wrong_map(other, t2d, count, vocabulary)]  # fmt: skip
        if len(right) == 1:
            finding, fix = (
                f"its d2t {right[0]}",
                "store in d2t the target id − draft id of each token of the draft vocabulary",
            )
            mend = partial(_with_map, others[right[0]])
    yield Check("d2t", "fault", finding, fix, mend)


def _with_map(d2t: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: d2t.to(weight.dtype) if own_name(key) == "d2t" else weight for key, weight in tensors.items()}
