"""Training text: JSON lines, the target's own responses, and the questions that a chat model writes."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from d2sd.decoding.verifier import gumbel_noise, restrict
from d2sd.errors import InputError
from d2sd.folders.loading import DTYPES, load_target
from d2sd.folders.weights import weights_digest
from d2sd.nets.dtypes import halve, mixes_by_default
from d2sd.nets.target import Target
from d2sd.trace.files import write_whole
from d2sd.trace.text import progress
from d2sd.train.settings import RegenerateConfig

MAX_LINE = 4_000_000
MARK = "\u2063question\u2063"  # nothing that a template holds
SHORTEST = 8  # characters


def read_jsonl(path: Path, *fields: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSONL file. Raises ``InputError`` naming the line if a row lacks one of ``fields``."""
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
            missing = [f for f in fields if not isinstance(row, dict) or f not in row]
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
    """Returns what ``regenerate`` wrote: lines with ``prompt_ids`` and ``response_ids``."""
    texts, prompts = [], []
    for row in read_jsonl(path, "prompt_ids", "response_ids"):
        text = (row["prompt_ids"] + row["response_ids"])[:max_length]
        if len(text) >= len(row["prompt_ids"]) + 2:
            texts.append(torch.tensor(text, dtype=torch.int32))
            prompts.append(len(row["prompt_ids"]))
    if not texts:
        raise InputError(f"{path} holds no response of at least two tokens")
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=pad_id)
    return Responses(ids, torch.tensor(prompts), torch.tensor([len(text) for text in texts]))


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def frequent_tokens(data: Responses, count: int, vocabulary: int) -> list[int]:
    """Returns the ``count`` most frequent tokens of the responses, ascending; unused ids fill up if there are too few."""
    if not 1 <= count <= vocabulary:
        raise InputError(f"the draft vocabulary must hold 1 to {vocabulary} tokens, not {count}")
    at = torch.arange(data.ids.shape[1])
    written = (at >= data.prompt_lengths[:, None]) & (at < data.lengths[:, None])
    seen = torch.bincount(data.ids[written].long(), minlength=vocabulary)
    return sorted(seen.argsort(descending=True, stable=True)[:count].tolist())


# The target writes responses: batched without padding, resumable.


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, its number, and whether its response is greedy."""

    number: int
    prompt: list[int]
    greedy: bool


def batches(prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[Request]]:
    """Prompts of about the same length together, shortest first: little of a batch waits for its longest prompt."""
    greedy = [i < round(config.greedy_share * len(prompts)) for i in range(len(prompts))]
    random.Random(config.seed).shuffle(greedy)
    requests = [Request(n, list(p), g) for n, (p, g) in enumerate(zip(prompts, greedy, strict=True))]
    requests.sort(key=lambda r: len(r.prompt))
    size = config.batch_size
    return [requests[i : i + size] for i in range(0, len(requests), size)]


def regenerate(target: Target, prompts: Sequence[Sequence[int]], out: Path, config: RegenerateConfig) -> None:
    """Appends lines with ``prompt_ids`` and ``response_ids`` (end token included) to ``out`` until all are done.

    An interrupted run continues with the first batch that is not complete in its file. Raises ``InputError`` if the file is of
    another run.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    todo = batches(prompts, config)
    settings = out.with_name(out.name + ".settings.json")
    identity = json.loads(json.dumps({**asdict(config), "target": weights_digest(target.base)}))
    written = out.read_bytes().splitlines(keepends=True) if out.exists() else []
    if written and (not settings.exists() or json.loads(settings.read_text()) != identity):
        raise InputError(f"{out} was written with other settings or by another target; choose another file")
    done = [json.loads(line)["prompt_ids"] for line in written if line.endswith(b"\n")]
    complete, first = 0, 0  # lines of whole batches, and the first batch that is not one of them
    while first < len(todo) and done[complete : complete + len(todo[first])] == [r.prompt for r in todo[first]]:
        complete += len(todo[first])
        first += 1
    if complete + max(map(len, todo)) < len(done):
        raise InputError(f"{out} holds responses to other prompts; choose another file")
    settings.write_text(json.dumps(identity))
    with out.open("ab") as f:
        f.truncate(sum(map(len, written[:complete])))
        numbers = range(first, len(todo))
        for number in progress(numbers, initial=first, total=len(todo), desc="regenerate", mininterval=1):
            responses = _respond(target, todo[number], config, number)
            for request, response in zip(todo[number], responses, strict=True):
                f.write(json.dumps({"prompt_ids": request.prompt, "response_ids": response}).encode() + b"\n")
            f.flush()


def respond_to(target: Target, prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[int]]:
    """Returns the responses in the order of the prompts, without a file."""
    responses: list[list[int]] = [[] for _ in prompts]
    for number, batch in enumerate(progress(batches(prompts, config), desc="respond", mininterval=1)):
        for request, response in zip(batch, _respond(target, batch, config, number), strict=True):
            responses[request.number] = response
    return responses


@torch.inference_mode()
def _respond(target: Target, batch: list[Request], config: RegenerateConfig, number: int) -> list[list[int]]:
    """Continuations of prompts, shortest first; ended sequences leave the batch.

    All rows stay equally long, so neither padding nor a mask is needed. The shortest prompt length is read at once. Longer
    prompts are then fed token by token, while shorter ones are already answered.
    """
    device, end = target.device, target.end_ids
    width, longest = len(batch[0].prompt), len(batch[-1].prompt)
    cache = target.new_cache(longest + config.max_new_tokens, len(batch))
    prompts = nn.utils.rnn.pad_sequence([torch.tensor(r.prompt) for r in batch], batch_first=True).to(device)
    ids = prompts[:, :width]
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
            tokens = torch.where(position < lengths, prompts[:, position], tokens)
        unfinished = [i for i, row in enumerate(alive) if not ended(row)]
        if not unfinished:
            break
        # not at every end, since it copies the cache; ended sequences idle until then
        if len(unfinished) <= 0.8 * len(alive):
            index = torch.tensor(unfinished, device=device)
            cache.keep_sequences(index)
            alive = [alive[i] for i in unfinished]
            tokens, greedy, lengths, prompts = tokens[index], greedy[index], lengths[index], prompts[index]
        ids = tokens[:, None]
    return responses


def _choose(logits: Tensor, greedy: Tensor, config: RegenerateConfig, number: int, position: int) -> Tensor:
    """(B,) next tokens: the likeliest where ``greedy``, elsewhere sampled at the temperature."""
    tokens = logits.argmax(-1)
    if not bool(greedy.all()):
        noise = gumbel_noise(config.seed * 7_919 + number, [position], logits.numel(), logits.device).view_as(logits)
        scores = restrict(logits / config.temperature, config.top_k, 1.0)
        tokens = torch.where(greedy, tokens, (scores + noise).argmax(-1))
    return tokens


def regenerate_responses(
    target: str | Path,
    prompts: Sequence[str],
    out: Path,
    config: RegenerateConfig,
    dtype: str | None = None,
    chat: bool = False,
) -> tuple[int, int]:
    """Writes the target's answers to these prompts (``regenerate``). Returns how many answers are empty, and how many there are.

    chat: put each prompt into the target's chat template.
    Raises ``InputError``, also if the target has no positions left for a prompt.
    """
    writer = load_writer(target, dtype)
    room = writer.max_positions - config.max_new_tokens
    if room < 1:
        raise InputError(
            f"{config.max_new_tokens} new tokens leave no room for a prompt in this target's {writer.max_positions} "
            "positions; ask for fewer"
        )
    regenerate(writer, [prompt_ids(writer, p, chat)[-room:] for p in prompts if p.strip()], out, config)
    answers = [row["response_ids"] for row in read_jsonl(out, "response_ids")]
    return sum(answer[0] in writer.end_ids for answer in answers), len(answers)


def load_writer(target: str | Path, dtype: str | None) -> Target:
    """Returns the target as the engine runs it, on this machine's first device.

    dtype: one of ``d2sd.nets.dtypes.DTYPES``; None: float32, with weights in float16 where the engine would take them so
    (``mixed``). Batched passes run transformers' own modules, so their linear layers are replaced.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    writer = load_target(str(target), DTYPES[dtype or "float32"], device)
    if dtype is None:
        dtype = "mixed" if mixes_by_default(writer.model) else "float32"
    if dtype == "mixed":
        halve(writer.base.layers)
    print(f"{writer.name} writes in {dtype}.", file=sys.stderr)
    return writer


def prompt_ids(target: Target, prompt: str, chat: bool) -> list[int]:
    """Returns the token ids of a prompt; special tokens are added once, whether or not its text already begins with one."""
    if chat:
        return target.chat_ids(prompt, thinking=False)
    begun = prompt.startswith(tuple(target.tokenizer.all_special_tokens))
    return list(target.tokenizer(prompt, add_special_tokens=not begun)["input_ids"])


# A chat model writes questions, which its drafters learn from: after the header of a user message in its chat template, it
# continues with a message (Magpie, arXiv 2406.08464).


def user_header(target: Target) -> str:
    """Returns what the chat template writes before a user's first message.

    Raises ``InputError`` if there is no template, or if it changes the message.
    """
    if not target.tokenizer.chat_template:
        raise InputError(f"{target.name} has no chat template; only chat models write questions")
    text = target.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    header, mark, _ = text.partition(MARK)
    if not mark:
        raise InputError(f"the chat template of {target.name} changes messages, so that it cannot write questions")
    return str(header)


def write_questions(target: Target, first_words: Sequence[str], count: int, config: RegenerateConfig) -> list[str]:
    """Returns at most ``count`` different questions of a chat model, in the order in which they were written.

    Questions that do not end within ``config.max_new_tokens``, very short ones, and repeats are left out.

    first_words: beginnings of the questions, taken in turn; may be empty.
    """
    header = user_header(target)
    encode, decode = target.tokenizer, target.tokenizer.decode
    begins = [first_words[i % len(first_words)] for i in range(count)]
    prompts = [encode(header + words, add_special_tokens=False)["input_ids"] for words in begins]
    found: dict[str, str] = {}
    for words, response in zip(begins, respond_to(target, prompts, config), strict=True):
        text = (words + decode(response, skip_special_tokens=True)).strip()
        if response[-1] in target.end_ids and len(text) >= SHORTEST:
            found.setdefault(re.sub(r"[^a-z0-9]+", " ", text.lower()).strip(), text)  # by letters and digits
    return list(found.values())
