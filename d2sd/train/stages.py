"""The stages of training as functions of folders: target, regenerate, drafter. Each can be stopped and resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from d2sd.errors import InputError
from d2sd.models.drafter import DFlashDraftModel, drafter_config, start_from_target
from d2sd.models.loading import DTYPES, load_drafter, load_target
from d2sd.models.target import Target
from d2sd.train.agreement import Agreement
from d2sd.train.curves import draw_curves
from d2sd.train.data import Responses, pack, read_jsonl, read_responses, train_tokenizer
from d2sd.train.drafters import DrafterConfig, DrafterObjective, draw_anchors, draw_prefixes
from d2sd.train.features import FeatureCache, cache_features
from d2sd.train.identity import digest, weights_digest
from d2sd.train.loop import LoopConfig, processes, train
from d2sd.train.regenerate import RegenerateConfig, regenerate
from d2sd.train.retention import Retention
from d2sd.train.target import NextToken, TargetShape, held_out_loss, new_target, stacked
from d2sd.train.unlikelihood import NextTokenUnlikelihood, number_marks, repeated_marks

SHARD = "9MB"
# weight of what is unlearned: 1 cost 0.25 bits per character of real stories within 40 steps
UNLIKELIHOOD = 0.2
KEEP = 4.0  # weight of staying the same on what is known
AGREE = 4.0  # weight of coming to meet the drafter
DRAFTS = 16  # drafts in every text that is read for that


def train_target(
    documents: Sequence[str],
    held_out: Sequence[str],
    out: Path,
    shape: TargetShape,
    config: LoopConfig,
    row_length: int,
    start: Path | None = None,
    stack: int = 1,
    tokenizer_of: Path | None = None,
    written: Path | None = None,
) -> None:
    """Tokenizer and target from documents, saved as a transformers folder in bfloat16.

    documents are read as one stream cut into rows of ``row_length`` tokens; held_out gives the held-out loss.
    start: a target folder to go on from, which then gives tokenizer and weights (``shape`` is not used), its layers
    repeated ``stack`` times; tokenizer_of: a folder whose tokenizer is taken, as a draft model takes its target's.
    written: texts of the target (from ``regenerate``) whose repetitions are unlearned beside, as many rows a step.
    """
    with processes().main_process_first():  # the others read what the first one made
        if start is not None or tokenizer_of is not None:
            AutoTokenizer.from_pretrained(start or tokenizer_of).save_pretrained(out)
        elif not (out / "tokenizer.json").exists():
            train_tokenizer(documents, shape.vocab_size, shape.max_positions).save_pretrained(out)
        tokenizer = AutoTokenizer.from_pretrained(out)
    end = tokenizer.eos_token_id
    rows, held_rows = pack(tokenizer, documents, row_length, end), pack(tokenizer, held_out, row_length, end)
    tokens_per_character = held_rows.numel() / max(1, sum(map(len, held_out)))
    model: Any = new_target(shape, tokenizer, config.seed)
    if start is not None:
        shallow: Any = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
        model = stacked(shallow, stack).train()

    own = None if written is None else read_responses(written, row_length, end)
    marks = None if own is None else repeated_marks(own)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        batch = {"ids": rows[index].long()}
        if own is not None and marks is not None:
            drawn = torch.randint(len(own.ids), (len(index),), generator=generator)
            batch |= {"written": own.ids[drawn].long(), "marks": marks[drawn]}
        return batch

    def evaluate() -> dict[str, float]:
        loss = held_out_loss(model, spread(held_rows))
        return {"held_out_loss": loss, "held_out_bits_per_character": loss / math.log(2) * tokens_per_character}

    identity = {"shape": asdict(shape), "stack": stack, "row_length": row_length, "data": digest(rows)}
    objective: torch.nn.Module = NextToken(model)
    if own is not None:
        identity["written"] = digest(own.ids)
        objective = NextTokenUnlikelihood(model, UNLIKELIHOOD)
    if train(objective, len(rows), sample, out, config, evaluate, "target", identity):
        _save(model, out)


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
    with processes().main_process_first():
        AutoTokenizer.from_pretrained(start).save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
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
        _save(model, out)


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
        mean.bfloat16().save_pretrained(out, max_shard_size=SHARD)
    processes().wait_for_everyone()


def load_frozen(source: str | Path) -> tuple[Any, Any]:
    """Target and tokenizer from a folder or hub id, float32, on this process's device."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the target {source}: {str(error).splitlines()[0]}") from error
    return model.to(processes().device).eval().requires_grad_(False), tokenizer


def regenerate_responses(
    target: str | Path,
    prompts: Sequence[str],
    out: Path,
    config: RegenerateConfig,
    dtype: str = "float32",
    chat: bool = False,
) -> None:
    """Let the target answer these prompts; see ``d2sd.train.regenerate``.

    chat: put each into the target's chat template. Text that already begins with a special token is taken as it is.
    """
    writer = load_writer(target, dtype)
    room = writer.max_positions - config.max_new_tokens
    if room < 1:
        raise InputError(
            f"{config.max_new_tokens} new tokens leave no room for a prompt in this target's {writer.max_positions} "
            "positions; ask for fewer"
        )
    regenerate(writer, [prompt_ids(writer, p, chat)[-room:] for p in prompts if p.strip()], out, config)


def load_writer(target: str | Path, dtype: str) -> Target:
    """The target as the engine runs it, on this machine's first device."""
    return load_target(str(target), DTYPES[dtype], "cuda" if torch.cuda.is_available() else "cpu")


def prompt_ids(target: Target, prompt: str, chat: bool) -> list[int]:
    """Token ids of a prompt; special tokens are added once, whether or not its text already begins with one."""
    if chat:
        return target.chat_ids(prompt, thinking=False)
    begun = prompt.startswith(tuple(target.tokenizer.all_special_tokens))
    return list(target.tokenizer(prompt, add_special_tokens=not begun)["input_ids"])


def train_drafter(
    target: str | Path,
    responses: Path,
    out: Path,
    *,
    objective: DrafterConfig,
    config: LoopConfig,
    layers: int = 3,
    block_size: int = 16,
    target_layer_ids: list[int] | None = None,
    mask_token: str | None = None,
    start: Path | None = None,
    max_length: int = 1024,
    cache: Path | None = None,
    own_tokens: bool = False,
) -> None:
    """A drafter for ``target`` from its own responses, saved as a ``DFlashDraftModel`` folder in bfloat16.

    start: a drafter folder to begin from, which then also gives layers, γ, taps and mask token; default: copies of
    the target's last layers.
    cache: a file that keeps the target's features between runs; default: the target runs in every step.
    own_tokens: loss over the tokens that occur in the responses alone; train the last steps without it, so that
    confidence keeps its meaning.
    """
    model, tokenizer = load_frozen(target)
    torch.manual_seed(config.seed)
    if start is not None:
        drafter: Any = load_drafter(str(start), torch.float32, str(model.device)).train().requires_grad_(True)
    else:
        mask_id = tokenizer.mask_token_id if mask_token is None else tokenizer.convert_tokens_to_ids(mask_token)
        if mask_id is None or mask_id >= model.config.vocab_size:
            raise InputError("this tokenizer has no mask token; name an unused token of it with --mask-token")
        shape = drafter_config(
            model.config, layers=layers, block_size=block_size, mask_token_id=mask_id, target_layer_ids=target_layer_ids
        )
        drafter = DFlashDraftModel(shape).to(model.device)
        if layers <= model.config.num_hidden_layers:
            start_from_target(drafter, model.model)
    gamma = drafter.block_size
    data = read_responses(responses, max_length, tokenizer.eos_token_id)
    known = cached(cache, model, drafter.target_layer_ids, data)

    def sample(index: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = data.lengths[index]
        anchors = draw_anchors(data.prompt_lengths[index], lengths, objective.anchors, generator)
        shape = (len(index), objective.anchors)
        prefixes = torch.zeros(shape, dtype=torch.long)
        if objective.variable_prefix:
            prefixes = draw_prefixes(shape, gamma, objective.beta, generator)
        ids = data.ids[index, : int(lengths.max())].long()
        batch = {"ids": ids, "lengths": lengths, "anchors": anchors, "prefixes": prefixes}
        return batch if known is None else {**batch, **known.rows(index, ids.shape[1])}

    note = "vp" if objective.variable_prefix else "dflash"
    identity = {
        "objective": asdict(objective),
        "block_size": gamma,
        "target_layer_ids": drafter.target_layer_ids,
        "layers": len(drafter.layers),
        "data": digest(data.ids),
        "own_tokens": own_tokens,
    }
    tokens = data.ids.unique().long().to(model.device) if own_tokens else None
    if train(
        DrafterObjective(drafter, model, objective, tokens), len(data.ids), sample, out, config, None, note, identity
    ):
        _save(drafter, out)


def cached(path: Path | None, target: Any, taps: list[int], data: Responses) -> FeatureCache | None:
    """The target's features of all responses, kept at ``path``; None where no path is given."""
    if path is None:
        return None
    with processes().main_process_first():
        return cache_features(path, target, taps, data, digest(data.ids))


def response_texts(target: Path, responses: Path) -> list[str]:
    """Prompts with the target's responses as text: what an autoregressive draft model learns from."""
    tokenizer = AutoTokenizer.from_pretrained(target)
    rows = read_jsonl(responses, "prompt_ids", "response_ids")
    return [str(tokenizer.decode(r["prompt_ids"] + r["response_ids"], skip_special_tokens=True)) for r in rows]


def spread(rows: Tensor, count: int = 96) -> Tensor:
    """At most so many rows from all over a text, which may be sorted by domain."""
    return rows[:: max(1, len(rows) // count)][:count]


def _save(model: Any, out: Path) -> None:
    """Weights in bfloat16, in shards that a Space takes without large-file storage, and the curves."""
    model.bfloat16().save_pretrained(out, max_shard_size=SHARD)
    draw_curves(out / "metrics.jsonl", out / "curves.svg")
