"""Training text: responses of the target, and questions written by a chat model."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from d2sd.errors import InputError, first_line, require
from d2sd.folders.loading import SAFE, load_target
from d2sd.folders.model_sets import target_folder
from d2sd.folders.weights import weights_digest
from d2sd.logs.replies import first_of
from d2sd.logs.serving import Server, served_model
from d2sd.nets.target import Target, chat_ids
from d2sd.nets.types import text_config
from d2sd.trace.files import append_line, write_whole, writing
from d2sd.trace.text import progress
from d2sd.train.files import check_turns, read_jsonl, whole_lines
from d2sd.train.settings import RegenerateConfig
from d2sd.train.writer import Stop, WriterRequest, Written, numbers_of, write

MARK = "\u2063question\u2063"  # placeholder for a user message; occurs in no chat template
SHORTEST = 8  # minimum characters of a question

Answer = Callable[[list[WriterRequest]], Written]


@dataclass(frozen=True, slots=True)
class Responses:
    """Texts that consist of a prompt and the target's response.

    ids: token ids (N, S), padded with the end token.
    prompt_lengths: number of tokens of each prompt, (N,).
    lengths: number of tokens of each text, prompt and response, (N,).
    """

    ids: Tensor
    prompt_lengths: Tensor
    lengths: Tensor

    @property
    def digest(self) -> str:
        """A short digest of the token ids. A run is resumed only if it is unchanged."""
        return hashlib.sha256(self.ids.numpy().tobytes()).hexdigest()[:16]


def read_responses(path: Path, max_length: int, pad_id: int) -> Responses:
    """Reads a file that ``regenerate`` wrote. Texts with fewer than two response tokens are left out.

    max_length: maximum tokens of a text; longer ones are cut.
    pad_id: token with which shorter texts are padded.
    """
    texts, prompts = [], []
    for row in read_jsonl(path, "prompt_ids", "response_ids"):
        text, start = (row["prompt_ids"] + row["response_ids"])[:max_length], len(row["prompt_ids"])
        if len(text) >= start + 2:
            texts.append(torch.tensor(text, dtype=torch.int32))
            prompts.append(start)
    require(texts, f"{path} contains no response of at least two tokens")
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=pad_id)
    return Responses(ids, torch.tensor(prompts), torch.tensor([len(text) for text in texts]))


def frequent_tokens(data: Responses, count: int, vocabulary: int) -> list[int]:
    """Returns the ids of the ``count`` most frequent tokens of the responses, in ascending order. If fewer tokens occur in them,
    unused ids are added.

    vocabulary: size of the target's vocabulary.
    """
    require(1 <= count <= vocabulary, f"the draft vocabulary must have 1 to {vocabulary} tokens, not {count}")
    positions = torch.arange(data.ids.shape[1])
    written = (positions >= data.prompt_lengths[:, None]) & (positions < data.lengths[:, None])
    seen = torch.bincount(data.ids[written].long(), minlength=vocabulary)
    return sorted(seen.argsort(descending=True, stable=True)[:count].tolist())


# Responses of the target.


def longest_first(requests: Sequence[WriterRequest]) -> list[WriterRequest]:
    """Returns the requests with the longest prompts first, so that short texts are written last."""
    return sorted(requests, key=lambda request: -len(request.prompt))


def write_by_length(
    target: Target, requests: Sequence[WriterRequest], config: RegenerateConfig, exact: bool = False
) -> Written:
    """Does the same as ``write``, but puts only texts of similar maximum lengths into a batch, since all rows of a batch have the
    same length.
    """
    most = config.max_new_tokens
    # texts of up to 512 tokens (9 bits), of up to 1024 tokens, and so on
    for _, alike in groupby(longest_first(requests), lambda r: max(9, (len(r.prompt) + most - 1).bit_length())):
        yield from write(target, alike, config, exact=exact)


def write_on_server(
    server: Server, model: str, tokenizer: Any, ends: Collection[int], requests: Sequence[WriterRequest], config: RegenerateConfig
) -> Written:  # fmt: skip
    """Yields every request with the token ids that a server writes after its prompt.

    ``config.batch_size`` requests are sent in parallel. The server must have OpenAI's API. Prompts are sent as token ids, so that
    the local chat template applies. If the server returns text without ids, the text is tokenised. If the server ended a text
    before the maximum length without returning an end token, the tokenizer's end token is appended.

    model: name of the model on the server.
    ends: ids of all tokens that end a text.

    Raises ``InputError`` if a request fails.
    """

    def one(request: WriterRequest) -> tuple[WriterRequest, list[int]]:
        body = {
            "model": model, "prompt": request.prompt, "max_tokens": config.max_new_tokens, "return_token_ids": True,
            "temperature": config.temperature, "seed": config.seed + request.number,
        }  # fmt: skip
        choice = first_of(server.request("/v1/completions", body), "choices")
        require(
            "text" in choice,
            f"{server.address}/v1/completions answered without choices; is this a server with OpenAI's API?",
        )
        ids, text, ended = choice.get("token_ids"), str(choice["text"]), choice.get("finish_reason") == "stop"
        size = len(tokenizer)
        if not isinstance(ids, list) or not all(isinstance(n, int) and 0 <= n < size for n in ids):
            ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        ids = ids[: config.max_new_tokens]
        if not ids or (ended and ids[-1] not in ends):
            ids = [*ids, tokenizer.eos_token_id]
        return request, ids

    with ThreadPoolExecutor(config.batch_size) as pool:
        yield from pool.map(one, longest_first(requests))


def regenerate(
    answer: Answer,
    prompts: Sequence[Sequence[int]],
    out: Path,
    config: RegenerateConfig,
    origin: str,
    most: float = math.inf,
) -> None:
    """Appends a line with ``prompt_ids`` and ``response_ids`` (end token included) to ``out`` for every prompt.

    If an earlier run was interrupted, continues with the prompts that have no response. Raises ``InputError`` if the file belongs
    to another run.

    answer: function that yields each of the given requests with the target's response. Requests are in the order of the prompts.
    config, origin: as for ``resumed_rows``.
    most: stop when the file has this many tokens, prompts included.
    """
    rows = resumed_rows(out, config, origin)
    left = Counter(tuple(row["prompt_ids"]) for row in rows)
    total = sum(len(row["prompt_ids"]) + len(row["response_ids"]) for row in rows)
    requests = []
    for number, prompt in enumerate(prompts):
        if left[tuple(prompt)]:
            left[tuple(prompt)] -= 1
        else:
            requests.append(WriterRequest(number, list(prompt)))
    require(not left.total(), f"{out} contains responses to other prompts; choose another file")
    bar = progress(answer(requests), initial=len(rows), total=len(prompts), desc="regenerate", mininterval=1)
    for request, response in bar:
        append_line(out, json.dumps({"prompt_ids": request.prompt, "response_ids": response}))
        total += len(request.prompt) + len(response)
        if total >= most:
            break


def resumed_rows(out: Path, config: RegenerateConfig, origin: str, **more: Any) -> list[dict[str, Any]]:
    """Returns the rows of a file that is to be continued. An unfinished last line is removed from the file.

    config, more: settings of the run, which are stored in a second file, ``out`` + ``.settings.json``.
    origin: digest of the target, or its name on a server; also stored.

    Raises ``InputError`` if ``out`` was written with other settings or by another target.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    note, identity = out.with_name(out.name + ".settings.json"), {**asdict(config), "target": origin, **more}
    same = note.exists() and json.loads(note.read_bytes()) == identity
    require(
        same or not out.exists() or not out.stat().st_size,
        f"{out} was written with other settings or by another target; choose another file",
    )
    lines = whole_lines(out)
    write_whole(note, json.dumps(identity))
    with writing(out), out.open("ab") as f:
        f.truncate(sum(map(len, lines)))
    return [json.loads(line) for line in lines]


def respond_to(target: Target, prompts: Sequence[Sequence[int]], config: RegenerateConfig) -> list[list[int]]:
    """Returns the target's exact responses in the order of the prompts."""
    requests = [WriterRequest(number, list(prompt)) for number, prompt in enumerate(prompts)]
    written = write_by_length(target, requests, config, exact=True)
    bar = progress(written, total=len(requests), desc="respond", mininterval=1)
    return [response for _, response in sorted(bar, key=lambda answered: answered[0].number)]


def regenerate_responses(
    target: str | Path,
    conversations: Sequence[Sequence[str]],
    out: Path,
    config: RegenerateConfig,
    dtype: str | None = None,
    chat: bool = False,
    server: Server | None = None,
) -> tuple[int, int]:
    """Writes the target's answers to conversations into ``out``. Returns the numbers of empty answers and of all answers.

    conversations: for each conversation, the texts of the user's turns. The prompt of a later turn contains the earlier turns and
        the target's answers to them.
    dtype: as for ``load_target``.
    chat: whether to put prompts into the target's chat template; required if there are several turns.
    server: server with OpenAI's API that runs the target, so that only the tokenizer is loaded here. None: the target is loaded and
        runs here.

    Raises ``InputError``, for example if ``config.max_new_tokens`` leaves no positions for a prompt.
    """
    check_turns(conversations, chat)
    if server is None:
        writer = load_target(str(target), dtype, batched=True)
        print(f"{writer.name} writes in {numbers_of(writer)}.", file=sys.stderr)
        tokenizer, ends, positions = writer.tokenizer, writer.end_ids, writer.max_positions
        answer, origin = partial(write_by_length, writer, config=config), weights_digest(writer.base)
    else:
        origin, (tokenizer, ends, positions) = served_model(server), load_tokenizer(target)
        answer = partial(write_on_server, server, origin, tokenizer, ends, config=config)
    room = positions - config.max_new_tokens
    require(
        room >= 1,
        f"{config.max_new_tokens} new tokens leave no room for a prompt in this target's {positions} "
        "positions; ask for fewer new tokens",
    )
    while True:
        # If a prompt has several answers, the first one counts, so that new lines never change the prompts of later turns.
        rows = reversed(resumed_rows(out, config, origin))
        answered = {tuple(row["prompt_ids"]): row["response_ids"] for row in rows}
        prompts = [
            p for turns in conversations for p in _prompts_of(tokenizer, str(target), turns, chat, answered, room)
        ]
        if all(tuple(ids) in answered for ids in prompts):
            break
        regenerate(answer, prompts, out, config, origin)
    return sum(answered[tuple(ids)][0] in ends for ids in prompts), len(prompts)


def _prompts_of(
    tokenizer: Any,
    name: str,
    turns: Sequence[str],
    chat: bool,
    answered: Mapping[tuple[int, ...], list[int]],
    room: int,
) -> Iterator[list[int]]:
    """Yields the prompt of each turn of a conversation. Stops after the first prompt that has no answer yet.

    turns: texts of the user's turns.
    answered: answers by prompt.
    room: maximum tokens of a prompt; of a longer one, the last tokens are kept.
    """
    history: list[dict[str, str]] = []
    for turn in turns:
        ids = prompt_ids(tokenizer, name, turn, chat, history)[-room:]
        yield ids
        if (answer := answered.get(tuple(ids))) is None:
            return
        text = str(tokenizer.decode(answer, skip_special_tokens=True))
        history += [{"role": "user", "content": turn}, {"role": "assistant", "content": text}]


def load_tokenizer(target: str | Path) -> tuple[Any, frozenset[int], int]:
    """Returns a target's tokenizer, the ids that end texts, and the maximum number of positions. Raises ``InputError`` if loading
    fails.
    """
    source = target_folder(str(target))
    try:
        config = text_config(AutoConfig.from_pretrained(source, **SAFE))
        tokenizer = AutoTokenizer.from_pretrained(source, **SAFE)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the tokenizer of {target}: {first_line(error)}") from error
    named = [config.eos_token_id, tokenizer.eos_token_id]
    with suppress(OSError):  # a folder may have no generation_config.json
        named.insert(0, GenerationConfig.from_pretrained(source).eos_token_id)
    ends: int | list[int] = next((ids for ids in named if ids is not None), [])  # precedence as in ``Target.end_ids``
    return tokenizer, frozenset([ends] if isinstance(ends, int) else ends), int(config.max_position_embeddings)


def prompt_ids(
    tokenizer: Any, name: str, prompt: str, chat: bool, history: Sequence[Mapping[str, str]] = ()
) -> list[int]:
    """Returns the token ids of a prompt. Without ``chat``, special tokens are added unless the prompt already begins with one.

    name: name of the target, for error messages.
    chat: whether to put the prompt into the chat template, after the messages in ``history``.
    """
    if chat:
        return chat_ids(tokenizer, name, [*history, {"role": "user", "content": prompt}], thinking=False)
    begun = prompt.startswith(tuple(tokenizer.all_special_tokens))
    return list(tokenizer(prompt, add_special_tokens=not begun)["input_ids"])


# Questions written by a chat model (Magpie, arXiv 2406.08464). The model gets only the header of a user message, in its chat template,
# and continues with a message: the question. Drafters are trained on the model's answers to these questions.


def user_header(target: Target) -> str:
    """Returns the text that the chat template writes before the first user message.

    Raises ``InputError`` if there is no template, if it changes the message, or if it writes nothing before the message.
    """
    require(target.tokenizer.chat_template, f"{target.name} has no chat template; only chat models can write questions")
    text = target.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    header, mark, _ = text.partition(MARK)
    fault = "writes nothing before a message" if mark else "changes messages"
    require(mark and header, f"the chat template of {target.name} {fault}, so this model cannot write questions")
    return str(header)


def ask(
    target: Target,
    first_words: Sequence[str],
    count: int,
    out: Path,
    config: RegenerateConfig,
    stop: Stop | None = None,
) -> None:
    """Appends different questions written by a chat model to ``out``, as lines with ``prompt``, each when it is finished.

    Repeats, very short questions, and questions that do not end within ``config.max_new_tokens`` are left out. If an earlier run was
    interrupted, keeps its lines. Raises ``InputError`` if the file belongs to a run with other settings.

    first_words: beginnings of the questions, used in turn; a beginning may be empty.
    count: number of attempts to write a question; existing lines count as attempts.
    stop: as for ``write``.
    """
    earlier = resumed_rows(out, config, weights_digest(target.base), first_words=[*first_words])
    keys = {repeat_key(row["prompt"]) for row in earlier}
    # with the same seed, the model would write the existing questions again
    config = replace(config, seed=config.seed + len(earlier))
    header, tokenizer = user_header(target), target.tokenizer
    begins = [tokenizer(header + words, add_special_tokens=False)["input_ids"] for words in first_words]
    requests = [WriterRequest(n, begins[n % len(begins)]) for n in range(len(earlier), count)]
    answers = write(target, requests, config, stop)
    for request, response in progress(answers, initial=len(earlier), total=count, desc="questions", mininterval=1):
        words = first_words[request.number % len(first_words)]
        text = (words + tokenizer.decode(response, skip_special_tokens=True)).strip()
        if response[-1] in target.end_ids and len(text) >= SHORTEST and (key := repeat_key(text)) not in keys:
            keys.add(key)
            append_line(out, json.dumps({"prompt": text}, ensure_ascii=False))


def repeat_key(text: str) -> str:
    """Returns a text's words in lower case without punctuation. Texts with equal keys count as repeats."""
    return re.sub(r"\W+", " ", text.casefold()).strip()
