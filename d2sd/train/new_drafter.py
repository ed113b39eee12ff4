"""Creates the drafter that training starts from: layers, taps, mask token, and added heads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from d2sd.errors import InputError
from d2sd.folders.drafters import reshaped
from d2sd.models.beginnings import start_from_target
from d2sd.nets.drafter import DFlashDraftModel, drafter_config
from d2sd.nets.models import late_taps
from d2sd.train.text import Responses, frequent_tokens

PROPOSED = 3


def new_drafter(
    target: Any,
    tokenizer: Any,
    data: Responses,
    *,
    layers: int,
    block_size: int,
    target_layer_ids: list[int] | None,
    mask_token: str | None,
) -> DFlashDraftModel:
    """A drafter in training mode that begins with copies of the target's last layers, on the target's device.

    data: the responses that it will learn from; the mask token must not stand there.
    target_layer_ids: layers that it reads; None: evenly spaced ones.
    mask_token: text of its mask token; None: the tokenizer's own one.
    Raises ``InputError`` where a layer or the mask token cannot be used.
    """
    check_taps(target_layer_ids, target.config.num_hidden_layers)
    mask = mask_id(tokenizer, target, data, mask_token)
    shape = drafter_config(
        target.config, layers=layers, block_size=block_size, mask_token_id=mask, target_layer_ids=target_layer_ids
    )
    drafter = DFlashDraftModel(shape).to(target.device)
    start_from_target(drafter, target.model)
    if warning := late_taps(drafter.target_layer_ids, target.config.num_hidden_layers):
        print(f"Note: this drafter {warning}", file=sys.stderr)
    return drafter


def extended(
    drafter: DFlashDraftModel, target: Any, data: Responses, vocabulary: int | None, rank: int
) -> DFlashDraftModel:
    """The drafter with what is asked for and new to it, from its own weights.

    vocabulary: so many of the responses' most frequent tokens are all that it drafts, with the target's rows of them as its
    LM head; None: as it is. rank: of a Markov head (DSpark, arXiv 2607.05147), which begins at no correction; 0: as it is.
    """
    form, size = drafter.form, target.config.vocab_size
    if not vocabulary and not rank:
        return drafter
    if (
        form.kind != "dflash"
        or form.reads != "fill"
        or form.masked
        or form.draft_vocabulary is not None
        or drafter.lm_head is not None
    ):
        raise InputError("a Markov head and a draft vocabulary are added to a plain DFlash drafter of the whole vocabulary; begin "
                         "with one, or leave out --markov-rank and --draft-vocab-size to train on with what it has")  # fmt: skip
    ids = None if vocabulary is None else torch.tensor(frequent_tokens(data, vocabulary, size), device=drafter.device)
    made = reshaped(
        drafter,
        replace(
            form, layout="speculators", kind="dspark" if rank else "dflash", markov="vanilla" if rank else None,
            markov_rank=rank, draft_vocabulary=vocabulary,
        ),
    )  # fmt: skip
    made.token_ids = ids
    if made.markov_head is not None:
        nn.init.zeros_(made.markov_head.markov_w2.weight)
        with torch.no_grad():  # tokens that the target embeds alike begin alike, also those that few responses hold
            table = target.get_input_embeddings().weight.float()
            _, _, main = torch.pca_lowrank(table, rank)
            entries = (table - table.mean(0)) @ main
            made.markov_head.markov_w1.weight.copy_(entries / entries.std(0))
    return made


def check_taps(layers: Sequence[int] | None, depth: int) -> None:
    """Raise ``InputError`` where one of these is no layer of a target of ``depth`` layers."""
    if layers is not None and not all(0 <= n < depth for n in layers):
        raise InputError(
            f"this target has the layers 0 to {depth - 1}; --target-layers names {' '.join(map(str, layers))}"
        )


def mask_id(tokenizer: Any, target: Any, data: Responses, text: str | None) -> int:
    """The id of a mask token, one that no text holds; raises ``InputError`` where it cannot be one, and names some that can."""
    vocabulary, size = tokenizer.get_vocab(), target.config.vocab_size
    name = tokenizer.mask_token if text is None else text
    spare = spare_tokens(tokenizer, target, data)
    advice = f"choose an unused one with --mask-token, such as {' or '.join(spare[:PROPOSED])}" if spare else (
        "this tokenizer has no unused special token: name with --mask-token one that the responses lack"
    )  # fmt: skip
    if name is None:
        raise InputError(f"this tokenizer has no mask token; {advice}")
    number = vocabulary.get(name)
    if number is None or number >= size:
        raise InputError(f"{name!r} is no token of this target; {advice}")
    if number in _closing(tokenizer, target):
        raise InputError(f"{name!r} ends or pads this target's texts and cannot be its mask; {advice}")
    if name != tokenizer.mask_token and (name not in spare if spare else number in _written(data)):
        raise InputError(f"{name!r} stands in texts and cannot be the mask; {advice}")
    return int(number)


def spare_tokens(tokenizer: Any, target: Any, data: Responses) -> list[str]:
    """The special tokens of a tokenizer that neither these responses nor its chat template hold, by id, and its mask token."""
    used = _closing(tokenizer, target) | _written(data)
    template = str(tokenizer.chat_template or "")
    added = sorted(tokenizer.added_tokens_decoder.items())
    special = {n: t.content for n, t in added if t.special and n < target.config.vocab_size}
    own = tokenizer.mask_token  # a target that has learned little may write even that
    return [t for n, t in special.items() if t == own or (n not in used and t not in template)]


def _closing(tokenizer: Any, target: Any) -> set[int]:
    """Ids that end or pad a text."""
    ends = target.generation_config.eos_token_id
    several = ends if isinstance(ends, list | tuple) else [ends]
    return {n for n in (*several, tokenizer.eos_token_id, tokenizer.pad_token_id) if n is not None}


def _written(data: Responses) -> set[int]:
    """Ids that the prompts and responses hold."""
    return set(data.ids.unique().tolist())
