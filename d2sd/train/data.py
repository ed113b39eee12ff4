"""Training text: reading documents, the tokenizer, packed rows, and the target's own responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from d2sd.errors import InputError
from d2sd.trace.files import write_whole

END, MASK = "<|endoftext|>", "<|mask|>"
PLAIN_PUNCTUATION = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...", "\u00a0": " "}
)
MAX_LINE = 4_000_000


def read_documents(source: str) -> Iterator[str]:
    """Yields documents of a local ``.txt`` (split at ``<|endoftext|>``), ``.jsonl`` (field ``text``) or hub data set."""
    path = Path(source)
    if path.suffix == ".txt" and path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace").translate(PLAIN_PUNCTUATION)
        yield from (d.strip() for d in text.split(END) if d.strip())
    elif path.suffix == ".jsonl" and path.is_file():
        yield from (row["text"] for row in read_jsonl(path, "text"))
    elif path.suffix or path.exists():
        raise InputError(f"{source} is not a .txt or .jsonl file that exists")
    else:
        yield from _hub_documents(source)


def _hub_documents(name: str) -> Iterator[str]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(f"reading the data set {name!r} from the hub needs `pip install datasets`") from None
    for row in load_dataset(name, split="train", streaming=True):
        yield row["text"]


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


def train_tokenizer(documents: Iterable[str], vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE tokenizer with single digits, an end token (id 0) and a mask token (id 1).

    It also puts the end token before every encoded text, as ``pack`` puts it between documents, so that a model trained on
    whole documents recognizes the start of one.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, mask_token=MASK, model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def pack(tokenizer: Any, documents: Iterable[str], length: int, end_id: int) -> Tensor:
    """Returns all documents, each followed by the end token, cut into rows: (rows, length) int32."""
    stream: list[int] = []
    batch: list[str] = []

    def flush() -> None:
        for ids in tokenizer(batch, add_special_tokens=False)["input_ids"] if batch else []:
            stream.extend(ids)
            stream.append(end_id)
        batch.clear()

    for document in documents:
        batch.append(document)
        if len(batch) == 1000:
            flush()
    flush()
    rows = len(stream) // length
    if not rows:
        raise InputError(f"the text is shorter than one row of {length} tokens")
    return torch.tensor(stream[: rows * length], dtype=torch.int32).view(rows, length)


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
