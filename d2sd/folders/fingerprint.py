"""Fingerprints, which show what changed since a drafter was trained.

A fingerprint describes the target and the settings that a drafter was trained with. It is stored in the drafter's folder
(``target.json``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from d2sd.errors import InputError
from d2sd.folders.model_sets import target_folder
from d2sd.folders.weights import stored, weight_files
from d2sd.nets.target import Target

NAME = "target.json"
MOST_BYTES = 2048
DIGITS = 8  # hexadecimal digits of a digest
# Key of a fingerprint → what another value means, with the values in training and now
CHANGES = {
    "vocabulary": "the target's tokenizer has another vocabulary",
    "tokens": "the target's tokenizer splits a text differently",
    "template": "the target has another chat template",
    "rope": "the target's RoPE: {} in training, {} now",
    "block_size": "the drafter's γ: {} in training, {} now",
    "mask": "the drafter's mask token: {} in training, {} now",
    "taps": "the drafter's taps: {} in training, {} now",
}
# Tokenised in training and now: letters, digits, spaces, punctuation and other scripts.
SAMPLE = "The 12 dogs' owner said:\n\n  “Hello, world!” (1,234.5 + 67 = x²) été, straße, Привет, 你好, مرحبا 🙂\tEND"
PARTS = {"embedding": "the target's embedding", "mask_row": "the embedding of the mask token", "head": "the target's LM head", "rest": "other weights of the target"}  # fmt: skip


def fingerprint(source: str | None, target: Target, drafter: Any) -> dict[str, Any]:
    """Returns the fingerprint for a drafter that is trained with a target, as JSON-ready data of at most ``MOST_BYTES``.

    source: folder, hub id, preset or GGUF file of the target, whose weights are included if they are in safetensors files. None:
        weights are left out.
    drafter: a block drafter or an EAGLE-3 drafter.
    """
    tokenizer, mask = target.tokenizer, getattr(drafter, "mask_token_id", None)
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    index = next((n for n in range(len(whole)) if whole[n : n + len(plain)] == plain), 0)
    return {
        "weights": _weights(source, mask),
        "rope": dict(getattr(target.config, "rope_parameters", None) or {}),
        "vocabulary": _digest(json.dumps(sorted(tokenizer.get_vocab().items())).encode()),
        "tokens": _digest(json.dumps(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]).encode()),
        "start": whole[:index],
        "end": whole[index + len(plain) :],
        "template": _digest(str(tokenizer.chat_template or "").encode()),
        "block_size": getattr(drafter, "block_size", None),
        "mask": mask,
        "taps": list(drafter.target_layer_ids),
    }


def write_fingerprint(folder: Path, data: Mapping[str, Any]) -> None:
    (folder / NAME).write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


def changes_since(drafter: str, net: Any, target: Target, source: str | None) -> tuple[str, ...] | None:
    """Returns what has changed since the drafter was trained, one clause each; None if the drafter's folder has no fingerprint.

    drafter: the drafter's folder or hub id; hub ids have no fingerprint.
    net: the loaded drafter.
    source: as for ``fingerprint``; None: weights are not compared.
    """
    path = Path(drafter) / NAME
    if not path.is_file():
        return None
    with path.open("rb") as file:
        then = json.loads(file.read(MOST_BYTES))
    now = fingerprint(source, target, net)
    changes = _weight_changes(then.get("weights"), now["weights"])
    if then["start"] and not now["start"]:
        changes.append("the target's tokenizer no longer adds a start token")
    elif (then["start"], then["end"]) != (now["start"], now["end"]):
        changes.append("the target's tokenizer adds other tokens around a text")
    for key, clause in CHANGES.items():
        if then[key] != now[key]:
            changes.append(clause.format(str(then[key])[:120], str(now[key])[:120]))
    return tuple(changes)


def _weight_changes(then: Any, now: Mapping[str, Any] | None) -> list[str]:
    if not then or now is None:
        return []
    layers_then, layers_now = then["layers"].split(), now["layers"].split()
    if len(layers_then) != len(layers_now):
        return [f"the target's layers: {len(layers_then)} in training, {len(layers_now)} now"]
    changed = [str(n) for n, (before, after) in enumerate(zip(layers_then, layers_now, strict=True)) if before != after]
    parts = [words for key, words in PARTS.items() if then.get(key) != now.get(key)]
    if len(changed) == len(layers_now) and PARTS["embedding"] in parts:
        return ["all weights of the target changed: it was trained further, converted or rounded"]
    if changed:
        parts.append(f"layer{'s' * (len(changed) > 1)} {', '.join(changed)} of the target")
    return [f"{', '.join(parts)} changed"] if parts else []


def _weights(source: str | None, mask: int | None) -> dict[str, str] | None:
    """Returns a digest of the target's stored tensors for each part of the target. Returns None if it has no safetensors files.

    Parts are the embedding without the row of the mask token, this row, the LM head, each layer (in one text, separated by spaces)
    and the rest.

    mask: id of the mask token; None: the embedding is one part.
    """
    if not source or source.lower().endswith(".gguf"):
        return None
    try:
        files = weight_files(target_folder(source))
    except InputError:
        return None
    states: dict[str, Any] = {}
    for key, file in stored(files):
        tensor, part = file.get_tensor(key), _part(key)
        pieces = [(part, tensor)]
        if part == "embedding" and mask is not None:
            pieces = [(part, tensor[:mask]), (part, tensor[mask + 1 :]), ("mask_row", tensor[mask])]
        for name, piece in pieces:
            data = piece.contiguous().reshape(-1).view(torch.uint8).numpy()
            states.setdefault(name, hashlib.sha256()).update(data)
    digests = {part: state.hexdigest()[:DIGITS] for part, state in states.items()}
    layers = sorted((part for part in digests if part.isdigit()), key=int)
    return {"layers": " ".join(map(digests.pop, layers)), **digests}


def _part(name: str) -> str:
    if layer := re.search(r"\blayers\.(\d+)\.", name):
        return layer[1]
    if name.endswith("embed_tokens.weight"):
        return "embedding"
    return "head" if name.endswith("lm_head.weight") else "rest"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
