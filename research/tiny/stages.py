"""Stages of training that only the recipe of ``tiny`` has, as functions of folders. Those that train can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from d2sd.errors import InputError
from d2sd.models.identity import weights_digest
from d2sd.models.loading import load_drafter
from d2sd.train.data import pack, read_jsonl, read_responses
from d2sd.train.drafters import draw_anchors
from d2sd.train.identity import digest
from d2sd.train.loop import LoopConfig, processes, train
from d2sd.train.stages import save_weights, spread
from d2sd.train.target import held_out_loss
from research.tiny.agreement import Agreement
from research.tiny.retention import Retention
from research.tiny.unlikelihood import NextTokenUnlikelihood, number_marks, repeated_marks

# weight of what is unlearned: 1 cost 0.25 bits per character of real stories within 40 steps
UNLIKELIHOOD = 0.2
KEEP = 4.0  # weight of staying the same on what is known
AGREE = 4.0  # weight of coming to meet the drafter
DRAFTS = 16  # drafts in every text that is read for that


def unlearn_repetition(
    start: Path,
    documents: Sequence[str],
    written: Path,
    held_out: Sequence[str],
    out: Path,
    config: LoopConfig,
    row_length: int,
) -> None:
    """The target ``start`` gone on with documents, that unlearns what it repeats in its own text.

    written: texts of the target (from ``regenerate``), of which a step reads as many rows as of documents.
    held_out: text that gives the held-out loss.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).train()
    tokenizer = tokenizer_from(start, out)
    end = tokenizer.eos_token_id
    rows, held_rows = (pack(tokenizer, texts, row_length, end) for texts in (documents, held_out))
    own = read_responses(written, row_length, end)
    marks = repeated_marks(own)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        drawn = torch.randint(len(own.ids), (len(index),), generator=generator)
        return {"ids": rows[index].long(), "written": own.ids[drawn].long(), "marks": marks[drawn]}

    def evaluate() -> dict[str, float]:
        return {"held_out_loss": held_out_loss(model, spread(held_rows))}

    identity = {"row_length": row_length, "data": digest(rows), "written": digest(own.ids)}
    objective = NextTokenUnlikelihood(model, UNLIKELIHOOD)
    if train(objective, len(rows), sample, out, config, evaluate, "target", identity):
        save_weights(model, out)


def teach_target(
    start: Path,
    new: Sequence[str],
    known: Sequence[str],
    written: Path,
    held_out: Sequence[str],
    out: Path,
    config: LoopConfig,
    row_length: int,
    drafter: Path | None = None,
    former: Path | None = None,
) -> None:
    """The target ``start`` with new documents learned, that on ``known`` ones stays what it is (``Retention``).

    written: texts of the target (from ``regenerate``) of which repetitions are unlearned, and numbers where the prompt
    holds none. drafter: a drafter of this target, whose drafts of all these texts it comes to meet (``Agreement``).
    former: the target that it is held to; default ``start``. A step reads as many rows of each.
    """
    nets: list[Any] = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in (start, former or start)]
    model, before = nets
    tokenizer = tokenizer_from(start, out)
    end = tokenizer.eos_token_id
    rows, known_rows, held_rows = (pack(tokenizer, texts, row_length, end) for texts in (new, known, held_out))
    own = read_responses(written, row_length, end)
    numbers = torch.tensor([any(map(str.isdigit, tokenizer.decode([i]))) for i in range(model.config.vocab_size)])
    marks = repeated_marks(own) | number_marks(own, numbers)
    chosen = marks.any(1).nonzero()[:, 0] if drafter is None else torch.arange(len(marks))
    if not len(chosen):
        raise InputError(f"{written} holds no repetition to unlearn; give more texts of the target")
    identity: dict[str, Any] = {"data": digest(rows), "known": digest(known_rows), "written": digest(own.ids)}
    identity |= {"row_length": row_length, "former": weights_digest(before)}
    objective = Retention(model, before, KEEP, UNLIKELIHOOD)
    if drafter is not None:
        net = load_drafter(str(drafter), torch.float32, "cpu")
        objective = Agreement(model, before, net, numbers, keep=KEEP, weight=UNLIKELIHOOD, agree=AGREE)
        identity["drafter"] = weights_digest(net)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        beside = torch.randint(len(known_rows), (len(index),), generator=generator)
        drawn = chosen[torch.randint(len(chosen), (len(index),), generator=generator)]
        batch = {
            "ids": rows[index].long(),
            "known": known_rows[beside].long(),
            "written": own.ids[drawn].long(),
            "marks": marks[drawn],
        }
        if drafter is None:
            return batch
        lengths = own.lengths[drawn]
        anchors = draw_anchors(own.prompt_lengths[drawn], lengths, DRAFTS, generator)
        return {**batch, "lengths": lengths, "anchors": anchors}

    def evaluate() -> dict[str, float]:
        return {"held_out_loss": held_out_loss(model, spread(held_rows))}

    if train(objective, len(rows), sample, out, config, evaluate, "target", identity):
        save_weights(model, out)


def average_targets(first: Path, second: Path, share: float, out: Path) -> None:
    """A target whose weights are (1 − ``share``) of the first one's and ``share`` of the second one's (weight-space
    ensembles, Wortsman et al., arXiv 2109.01903), saved as ``train_target`` does."""
    if processes().is_main_process:
        nets: list[Any] = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in (first, second)]
        (mean, other) = nets
        with torch.no_grad():
            for ours, theirs in zip(mean.parameters(), other.parameters(), strict=True):
                ours.lerp_(theirs, share)
        AutoTokenizer.from_pretrained(first).save_pretrained(out)
        save_weights(mean, out)
    processes().wait_for_everyone()


def stack_target(start: Path, times: int, out: Path) -> None:
    """The target ``start`` with its stack of layers repeated ``times`` times, saved as ``train_target`` does."""
    if processes().is_main_process:
        shallow: Any = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
        AutoTokenizer.from_pretrained(start).save_pretrained(out)
        save_weights(stacked(shallow, times), out)
    processes().wait_for_everyone()


def stacked(model: Qwen3ForCausalLM, times: int) -> Qwen3ForCausalLM:
    """The same network with its stack of layers repeated: a deep net that starts from a shallow one's weights.

    Cheaper than training all layers from the start ("Stacking Your Transformers", arXiv 2405.15319).
    """
    state, shallow = model.state_dict(), model.config.num_hidden_layers
    config = type(model.config).from_dict(
        {**model.config.to_dict(), "num_hidden_layers": shallow * times, "layer_types": None}
    )
    deep = Qwen3ForCausalLM(config)
    for name, value in list(state.items()):
        head, layers, rest = name.partition(".layers.")
        if layers:
            number, _, tail = rest.partition(".")
            for copy in range(1, times):
                state[f"{head}.layers.{int(number) + copy * shallow}.{tail}"] = value
    deep.load_state_dict(state)
    return deep


def tokenizer_from(start: Path, out: Path) -> Any:
    """The tokenizer of ``start``, which ``out`` has from then on."""
    with processes().main_process_first():
        AutoTokenizer.from_pretrained(start).save_pretrained(out)
    return AutoTokenizer.from_pretrained(out)


def response_texts(target: Path, responses: Path) -> list[str]:
    """Prompts with the target's responses as text: what an autoregressive draft model learns from."""
    tokenizer = AutoTokenizer.from_pretrained(target)
    rows = read_jsonl(responses, "prompt_ids", "response_ids")
    return [str(tokenizer.decode(r["prompt_ids"] + r["response_ids"], skip_special_tokens=True)) for r in rows]
