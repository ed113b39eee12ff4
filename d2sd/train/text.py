"""Training text: JSONL files and the target's own responses."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from d2sd.decoding.verifier import gumbel_noise, restrict
from d2sd.errors import InputError
from d2sd.folders.weights import weights_digest
from d2sd.nets.target import Target
from d2sd.trace.files import write_whole
from d2sd.trace.text import progress

MAX_LINE = 4_000_000


def read_jsonl(path: Path, *wanted: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSONL file. Raises ``InputError`` naming the line if a row lacks one of the fields ``wanted``."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if len(line) > MAX_LINE:
                raise InputError(f"{path}, line {number}: longer than {MAX_LINE} characters")
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: not JSON ({error.msg})") from None
            missing = [f for f in wanted if not isinstance(row, dict) or f not in row]
            if missing:
                raise InputError(f"{path}, line {number}: has no field {missing[0]!r}")
            yield row


@dataclass(frozen=True, slots=True)
class Responses:
    """Prompts with the target's responses: ids (N, S) padded with the end token, and both lengths (N,)."""

    ids: Tensor
    prompt_lengths: Tensor
    lengths: Tensor


def read_responses(path: Path, max_length: int, pad_id: int) -> Responses:
    """Read a file written by ``regenerate``: lines with ``prompt_ids`` and ``response_ids``."""
    rows = [
        (row["prompt_ids"], (row["prompt_ids"] + row["response_ids"])[:max_length])
        for row in read_jsonl(path, "prompt_ids", "response_ids")
    ]
    rows = [(p, ids) for p, ids in rows if len(ids) >= len(p) + 2]
    if not rows:
        raise InputError(f"{path} holds no response of at least two tokens")
    width = max(len(ids) for _, ids in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.int32)
    for i, (_, row) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return Responses(ids, torch.tensor([len(p) for p, _ in rows]), torch.tensor([len(row) for _, row in rows]))


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def normalise(text: str) -> str:
    """Letters and digits only, lower case: what two prompts are compared by when held-out text is checked."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def frequent_tokens(data: Responses, count: int, vocabulary: int) -> list[int]:
    """The ``count`` tokens that the responses hold most often, ascending; rarer ids fill up where there are too few."""
    if not 1 <= count <= vocabulary:
        raise InputError(f"the draft vocabulary must hold 1 to {vocabulary} tokens, not {count}")
    at = torch.arange(data.ids.shape[1])
    written = (at >= data.prompt_lengths[:, None]) & (at < data.lengths[:, None])
    seen = torch.bincount(data.ids[written].long(), minlength=vocabulary)
    return sorted(seen.argsort(descending=True, stable=True)[:count].tolist())


# The target writes the responses that its drafters learn from: batched without padding, resumable.


@dataclass(frozen=True, slots=True)
class RegenerateConfig:
    """How responses are written.

    batch_size: sequences that are written at once.
    max_new_tokens: longest response, in tokens.
    greedy_share: share of the prompts, drawn at random, that are continued greedily.
    temperature: of all other prompts.
    top_k: they draw from so many likeliest tokens; 0: from all.
    """

    batch_size: int = 64
    max_new_tokens: int = 160
    greedy_share: float = 0.75
    temperature: float = 0.7
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.greedy_share <= 1 or self.temperature <= 0 or min(self.batch_size, self.max_new_tokens) < 1:
            raise InputError("greedy_share must be in [0, 1]; temperature, batch size and new tokens above 0")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and whether its response is greedy."""

    prompt: list[int]
    greedy: bool


def batches(prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[Request]]:
    """Prompts of about the same length together, shortest first: little of a batch waits for its longest prompt."""
    greedy = [i < round(config.greedy_share * len(prompts)) for i in range(len(prompts))]
    random.Random(config.seed).shuffle(greedy)
    requests = [Request(list(p), g) for p, g in zip(prompts, greedy, strict=True)]
    requests.sort(key=lambda r: len(r.prompt))
    size = config.batch_size
    return [requests[i : i + size] for i in range(0, len(requests), size)]


def regenerate(target: Target, prompts: Sequence[Sequence[int]], out: Path, config: RegenerateConfig) -> None:
    """Append lines with ``prompt_ids`` and ``response_ids`` (end token included) to ``out`` until all are done.

    A stopped run continues with the first batch that its file does not hold whole.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    todo = batches(prompts, config)
    settings = out.with_name(out.name + ".settings.json")
    identity = json.loads(json.dumps({**asdict(config), "target": weights_digest(target.base)}))
    written = out.read_bytes().splitlines(keepends=True) if out.exists() else []
    if written and (not settings.exists() or json.loads(settings.read_text()) != identity):
        raise InputError(f"{out} was written with other settings or by another target; choose another file")
    done = [json.loads(line)["prompt_ids"] for line in written if line.endswith(b"\n")]
    kept, first = 0, 0
    while first < len(todo) and done[kept : kept + len(todo[first])] == [r.prompt for r in todo[first]]:
        kept += len(todo[first])
        first += 1
    if kept + max(map(len, todo)) < len(done):
        raise InputError(f"{out} holds responses to other prompts; choose another file")
    settings.write_text(json.dumps(identity))
    with out.open("ab") as f:
        f.truncate(sum(map(len, written[:kept])))
        for number in progress(
            range(first, len(todo)),
            initial=first,
            total=len(todo),
            desc="regenerate",
            mininterval=1,
        ):
            responses = _respond(target, todo[number], config, number)
            for request, response in zip(todo[number], responses, strict=True):
                f.write(json.dumps({"prompt_ids": request.prompt, "response_ids": response}).encode() + b"\n")
            f.flush()


def respond_to(target: Target, prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[int]]:
    """Continuations in the order of the prompts, without a file."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for number, batch in enumerate(progress(batches(prompts, config), desc="respond", mininterval=1)):
        for request, response in zip(batch, _respond(target, batch, config, number), strict=True):
            found.setdefault(tuple(request.prompt), []).append(response)
    return [found[tuple(p)].pop() for p in prompts]


@torch.inference_mode()
def _respond(target: Target, batch: list[Request], config: RegenerateConfig, number: int) -> list[list[int]]:
    """Continuations of prompts, shortest first; ended sequences leave the batch.

    All rows stay equally long, so neither padding nor a mask is needed. The shortest prompt length is read at once. Longer
    prompts are then fed token by token, while shorter ones are already answered.
    """
    device, end = target.device, target.end_ids
    width, longest = len(batch[0].prompt), len(batch[-1].prompt)
    cache = target.new_cache(longest + config.max_new_tokens, len(batch))
    given = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, request in enumerate(batch):
        given[row, : len(request.prompt)] = torch.tensor(request.prompt)
    given, ids = given.to(device), given[:, :width].to(device)
    lengths = torch.tensor([len(r.prompt) for r in batch], device=device)
    greedy = torch.tensor([r.greedy for r in batch], device=device)
    responses: list[list[int]] = [[] for _ in batch]
    alive = list(range(len(batch)))

    def ended(row: int) -> bool:
        response = responses[row]
        return bool(response) and (response[-1] in end or len(response) == config.max_new_tokens)

    for position in range(width, longest + config.max_new_tokens):
        positions = torch.arange(position - ids.shape[1], position, device=device)[None]
        hidden = target.read(ids, cache, positions)
        cache.commit(range(ids.shape[1]))
        tokens = _choose(target.logits(hidden[:, -1]), greedy, config, number, position)
        for row, token in zip(alive, tokens.tolist(), strict=True):
            if position >= len(batch[row].prompt) and not ended(row):
                responses[row].append(token)
        if position < longest:
            tokens = torch.where(position < lengths, given[:, position], tokens)
        keep = [i for i, row in enumerate(alive) if not ended(row)]
        if not keep:
            break
        if len(keep) <= 0.8 * len(
            alive
        ):  # not at every end, since it copies the cache; ended sequences idle until then
            index = torch.tensor(keep, device=device)
            cache.keep_sequences(index)
            alive = [alive[i] for i in keep]
            tokens, greedy, lengths, given = tokens[index], greedy[index], lengths[index], given[index]
        ids = tokens[:, None]
    return responses


def _choose(logits: Tensor, greedy: Tensor, config: RegenerateConfig, number: int, position: int) -> Tensor:
    """(B,) next tokens: the likeliest where ``greedy``, elsewhere drawn at the temperature."""
    tokens = logits.argmax(-1)
    if not bool(greedy.all()):
        noise = gumbel_noise(config.seed * 7_919 + number, [position], logits.numel(), logits.device).view_as(logits)
        scores = restrict(logits / config.temperature, config.top_k, 1.0)
        tokens = torch.where(greedy, tokens, (scores + noise).argmax(-1))
    return tokens


# A chat model writes the prompts that its drafters learn from: what its users would ask.
#
# After the template's header of a user message the model goes on with a message (Magpie, arXiv 2406.08464). Given first
# words steer what it asks for.


MARK = "\u2063question\u2063"  # nothing that a template holds
SHORTEST = 8  # characters


def user_header(target: Target) -> str:
    """What the chat template writes before a user's first message.

    Raises ``InputError`` where there is no template, or where it changes the message.
    """
    if not target.tokenizer.chat_template:
        raise InputError(f"{target.name} has no chat template; only chat models write questions")
    text = target.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    header, mark, _ = text.partition(MARK)
    if not mark:
        raise InputError(f"the chat template of {target.name} changes messages, so that it cannot write questions")
    return str(header)


def write_questions(target: Target, first_words: Sequence[str], count: int, config: RegenerateConfig) -> list[str]:
    """Different questions of this chat model, at most ``count``, in the order in which they were written.

    first_words: beginnings, taken in turn; an empty one leaves all to the model. Left out: questions that do not end
    within ``config.max_new_tokens``, very short ones, and repeats.
    """
    header = user_header(target)
    encode, decode = target.tokenizer, target.tokenizer.decode
    begins = [first_words[i % len(first_words)] for i in range(count)]
    prompts = [encode(header + words, add_special_tokens=False)["input_ids"] for words in begins]
    found: dict[str, str] = {}
    for words, response in zip(begins, respond_to(target, prompts, config), strict=True):
        text = (words + decode(response, skip_special_tokens=True)).strip()
        if response[-1] in target.end_ids and len(text) >= SHORTEST:
            found.setdefault(normalise(text), text)
    return list(found.values())
