"""Compares a target's passes over a token tree with transformers' own forward pass when the target is loaded.

New releases of transformers may change how models call their layers. Without this check, such a change could lead to wrong text
without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import torch

from d2sd.errors import InputError, first_line, require
from d2sd.nets.attention import attend_dense
from d2sd.nets.target import Target
from d2sd.nets.transformers_calls import older_version
from d2sd.nets.tree_attention import ATTENTION

WINDOW = 4  # tokens; window of sliding layers during the check, shorter than the text
PROMPT = 7  # tokens before the tree
BRANCHES = ((0, 1, 2), (0, 3, 4))  # rows of the tree's two paths; the second path is committed before one more token

_agreed: set[tuple[str, str]] = set()  # types and number formats that passed the check in this process


def check_passes(target: Target) -> None:
    """Raises ``InputError`` if a target with linear layers, sliding windows or sinks does not compute what transformers computes.

    Each target type is checked once per process and number format. Only the first layers run, enough for every kind of layer.
    """
    key = target.config.model_type, target.numbers
    if key in _agreed or (target.plain_attention and "linear" not in target.kinds):
        return
    installed = f"transformers {version('transformers')}"
    try:
        difference = _difference(target)
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"targets of type {key[0]} do not run with {installed} ({first_line(error)}); {older_version()}"
        ) from error
    # the limits are above rounding errors and below the effect of a missing window, sink or state (20% or more)
    whole = target.dtype == torch.float32 and getattr(target.model, "hf_quantizer", None) is None
    require(
        difference <= (5e-3 if whole else 0.1),
        f"targets of type {key[0]} would write wrong text with {installed}: hidden states differ from transformers' own forward "
        f"pass by {difference:.0%}; {older_version()}",
    )
    _agreed.add(key)


@torch.no_grad()
def _difference(target: Target) -> float:
    """Compares final hidden states with those of transformers for a prompt, a tree after it, and one token after the tree. Returns
    the largest of the three relative differences.

    Each difference is the median over rows, since rounding may select another expert in some rows.
    """
    size, committed = PROMPT + len(BRANCHES[1]), BRANCHES[1]
    ids = ((7 * torch.arange(PROMPT + 6) + 3) % target.config.vocab_size).to(target.device)
    prompt, tree, last = ids.split([PROMPT, 5, 1])
    mask = torch.zeros(5, 5, dtype=torch.bool, device=target.device)
    for path in BRANCHES:
        for depth, row in enumerate(path, 1):
            mask[row, list(path[:depth])] = True
    positions = torch.arange(size + 1, device=target.device)
    cache = target.new_cache(len(ids))
    with _reduced(target):
        ours = [target.forward(prompt, positions[:PROMPT], cache, None, None)]
        cache.commit(range(PROMPT))
        ours.append(target.forward(tree, PROMPT - 1 + mask.sum(-1), cache, mask, attend_dense))
        cache.commit(committed)
        ours.append(target.forward(last, positions[size:], cache, mask[:1, :1], attend_dense))
        target.model.set_attn_implementation("eager")
        texts = torch.stack([torch.cat([prompt, tree[list(path)], last]) for path in BRANCHES])
        first, second = target.base(input_ids=texts, use_cache=False).last_hidden_state
    stock = [second[:PROMPT], torch.cat([first[PROMPT:size], second[PROMPT + 1 : size]]), second[size:]]
    errors = [(a - b).float().norm(dim=-1) / b.float().norm(dim=-1) for a, b in zip(ours, stock, strict=True)]
    return max(float(error.median()) for error in errors)


@contextmanager
def _reduced(target: Target) -> Iterator[None]:
    """Context in which a target has only its first layers, with short windows. On exit, its attention function is reset too."""
    layers = target.base.layers
    count = 1 + max(target.kinds.index(kind) for kind in set(target.kinds))
    windowed = [part for part in (target.config, *layers.modules()) if getattr(part, "sliding_window", None)]
    sizes = [part.sliding_window for part in windowed]
    try:
        target.base.layers = layers[:count]
        for part in windowed:
            part.sliding_window = WINDOW
        yield
    finally:
        target.base.layers = layers
        for part, size in zip(windowed, sizes, strict=True):
            part.sliding_window = size
        target.model.set_attn_implementation(ATTENTION)
