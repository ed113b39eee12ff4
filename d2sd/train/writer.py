"""Lets the target write many texts in parallel. When the text of a row ends, the row takes the next prompt.

Texts are at different positions (``d2sd.nets.caches.BatchPass``). The tokens of a new prompt are fed one per step, like written
tokens. Every step therefore has the same shapes, and on a GPU it is replayed as one CUDA graph.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from d2sd.decoding.verifier import restrict
from d2sd.errors import first_line
from d2sd.nets.caches import BatchPass, LayerCache
from d2sd.nets.dtypes import halved, product, quick_autocast, quick_bfloat16
from d2sd.nets.passes import PassRecorder
from d2sd.nets.target import Target
from d2sd.nets.tree_attention import attend_batch
from d2sd.nets.types import final_logits
from d2sd.train.settings import RegenerateConfig

Stop = Callable[[], bool]  # returns whether to stop writing texts
Written = Iterator[tuple["WriterRequest", list[int]]]  # requests with the tokens written after their prompts
SLOTS = 32  # on a CPU, the cache grows by this many slots; oneDNN compiles its products anew for every size
STRIDE = {"cuda": 8}  # steps between checks for ended texts; each check waits for a GPU
# If at most this share of the rows is busy, idle rows are dropped. Dropping rows copies the cache.
SHRINK = {"cpu": 0.8, "cuda": 0.5}
KEPT = 0.6  # maximum share of a GPU's free memory for rows


@dataclass(frozen=True, slots=True)
class WriterRequest:
    """A prompt to continue.

    number: number that identifies the request.
    prompt: token ids.
    """

    number: int
    prompt: list[int]


class Rows:
    """The rows of a batch, each of which writes one text at a time, and their cache.

    text: token ids of the texts, (B, W).
    place: position of the next token to feed, (B,).
    prompt: length of the prompt, (B,).
    last: last possible position of the text, (B,).
    idle: whether the row has no text to write, (B,).
    """

    def __init__(self, target: Target, count: int, width: int, config: RegenerateConfig, exact: bool = False):
        """width: maximum tokens of a text, prompt included.
        exact: as for ``write``.
        """
        self._target, self._config, device = target, config, target.device
        coarse = not exact and may_round(target)
        self._numbers = torch.bfloat16 if coarse else target.dtype  # of the cache and the LM head
        self._autocast = quick_autocast(torch.device("cpu"), coarse)
        width = -(-width // 8) * 8
        self.cache = target.new_cache(width if device.type == "cuda" else SLOTS, count, self._numbers)
        self._head = product(target.head.weight.bfloat16()) if coarse else target.borrowed_scores
        zeros = partial(torch.zeros, dtype=torch.long, device=device)
        self.text = zeros(count, width)
        self.place, self.prompt, self.last = (zeros(count) for _ in range(3))
        self.idle = torch.ones(count, dtype=torch.bool, device=device)
        self._ends = torch.tensor(sorted(target.end_ids), dtype=torch.long, device=device)
        self._graph: Any = None
        self._captures = device.type == "cuda" and target.capturable and target.fixable

    def put(self, rows: Sequence[int], requests: Sequence[WriterRequest]) -> None:
        """Starts to write the texts of ``requests`` in the given rows."""
        device = self.text.device
        index = torch.tensor(rows, device=device)
        lengths = torch.tensor([len(r.prompt) for r in requests], device=device)
        padded = nn.utils.rnn.pad_sequence([torch.tensor(r.prompt) for r in requests], batch_first=True).to(device)
        self.text[index, : padded.shape[1]] = padded
        self.prompt[index], self.last[index] = lengths, lengths + self._config.max_new_tokens - 1
        self.place[index], self.idle[index] = 0, False
        if isinstance(self.cache, LayerCache):
            self.cache.forget(index)

    def read(self, count: int) -> None:
        """Processes the first ``count`` tokens of all rows in one pass. Must be called before the first step. Every prompt must be
        longer.
        """
        positions = torch.arange(count, device=self.text.device)[None]
        self._fit(positions)
        with self._autocast:
            self._target.read(self.text[:, :count], self.cache, positions)
        self.cache.commit(range(count))
        self.place.fill_(count)

    def advance(self, steps: int) -> None:
        """Runs ``steps`` steps, each of which feeds one token per row. Rows whose text has ended do not change."""
        if self._captures and self._graph is None:
            # Capturing runs a step three times. Restore the tensors that it changes; cache slots need not be restored.
            changed = (self.text, self.place, self.idle)
            before = [t.clone() for t in changed]
            try:
                self._graph = PassRecorder(self.text.device).capture(self._step, ())
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                print(f"Texts are written without a CUDA graph, which is slower: {first_line(error)}", file=sys.stderr)
                self._captures = False
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(old)
        for _ in range(steps):
            if self._graph is None:
                self._step()
            else:
                self._graph.replay(())

    def _step(self) -> tuple[()]:
        self._fit(self.place)
        held = BatchPass(self.cache, self.place)
        ids = self.text.gather(1, self.place[:, None])
        with self._autocast:
            hidden = self._target.read(ids, held, self.place[:, None], attend=partial(attend_batch, held))
        held.commit()
        rows = hidden[:, -1].to(self._numbers)
        tokens = self._choose(final_logits(self._target.config, self._head(rows)))
        after = (self.place + 1).clamp_max(self.text.shape[1] - 1)
        present = self.text.gather(1, after[:, None])[:, 0]
        given = after < self.prompt
        tokens = torch.where(given | self.idle, present, tokens)
        self.text.scatter_(1, after[:, None], tokens[:, None])
        self.place.copy_(torch.where(self.idle, self.place, after))
        self.idle |= ~given & (torch.isin(tokens, self._ends) | (after >= self.last))
        return ()

    def _fit(self, places: Tensor) -> None:
        """Fits the cache to positions of tokens, on a CPU, where attention over fewer slots takes less time."""
        if places.device.type == "cpu":
            self.cache.resize(SLOTS * (int(places.max()) // SLOTS + 1))

    def _choose(self, logits: Tensor) -> Tensor:
        """Returns the next token of each row, (B,): the likeliest, or a sampled one if the temperature is above 0."""
        logits = logits.float()  # torch finds the largest number more quickly in float32
        if not self._config.temperature:
            return logits.argmax(-1)
        scores = restrict(logits / self._config.temperature, self._config.top_k, 1.0)
        noise = -torch.empty_like(scores).exponential_().log()
        return (scores + noise).argmax(-1)

    def keep(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self.text.device)
        self.cache.keep_sequences(index)
        for name in ("text", "place", "prompt", "last", "idle"):
            setattr(self, name, getattr(self, name)[index])
        self._graph = None


@torch.inference_mode()
def write(
    target: Target,
    requests: Iterable[WriterRequest],
    config: RegenerateConfig,
    stop: Stop | None = None,
    exact: bool = False,
) -> Written:
    """Yields every request with the token ids written after its prompt, end token included, in the order in which texts end.

    A ``mixed`` target multiplies in bfloat16 if this machine does so quickly and ``exact`` is False. Its texts then differ from those
    of plain decoding after near ties between two tokens, which does not matter in texts to train on.

    If memory is too small for ``config.batch_size`` rows, the number of rows is halved.

    stop: function that is called regularly. When it returns True, unfinished texts are cut, and no other texts are begun. None: all
        texts end by themselves.
    """
    queue = deque(requests)
    if not queue:
        return
    if config.temperature:
        torch.manual_seed(config.seed)
    width = max(len(r.prompt) for r in queue) + config.max_new_tokens
    count = config.batch_size
    taken: dict[int, WriterRequest] = {}
    while queue:
        try:
            yield from _written(Rows(target, min(count, len(queue)), width, config, exact), queue, taken, stop)
            return
        except torch.OutOfMemoryError:
            queue.extendleft(taken[row] for row in sorted(taken))
            taken.clear()
            if count == 1:
                raise
            count //= 2
            print(f"Not enough memory: continuing with {count} texts in parallel.", file=sys.stderr)


def _written(rows: Rows, queue: deque[WriterRequest], taken: dict[int, WriterRequest], stop: Stop | None) -> Written:
    """Yields the texts of ``queue``, written in one batch.

    taken: the request of each row that is being written, updated in place.
    """
    kind = rows.text.device.type

    def fill(free: Sequence[int]) -> None:
        if new := {row: queue.popleft() for row in free[: len(queue)]}:
            taken.update(new)
            rows.put(list(new), list(new.values()))

    def finish(done: list[int]) -> Written:
        for row, text, place in zip(done, rows.text[done].tolist(), rows.place[done].tolist(), strict=True):
            request = taken.pop(row)
            if place >= len(request.prompt):
                yield request, text[len(request.prompt) : place + 1]

    fill(range(len(rows.text)))
    if (common := min(len(r.prompt) for r in taken.values()) - 1) > 0:
        rows.read(common)
    while taken and not (stop and stop()):
        rows.advance(STRIDE.get(kind, 1))
        ended = [row for row, idle in enumerate(rows.idle.tolist()) if idle and row in taken]
        if not ended:
            continue
        yield from finish(ended)
        fill(ended)
        busy = sorted(taken)
        if busy and len(busy) <= SHRINK.get(kind, 0.5) * len(rows.text):
            rows.keep(busy)
            left = [taken[row] for row in busy]
            taken.clear()
            taken.update(enumerate(left))
    yield from finish(sorted(taken))


def may_round(target: Target) -> bool:
    """Returns whether texts to train on are written with products and a cache in bfloat16: by a ``mixed`` target, on a CPU that
    multiplies bfloat16 quickly.
    """
    return halved(target.base.layers) and quick_bfloat16()


def numbers_of(target: Target) -> str:
    """Returns a description of the number format in which texts are written."""
    return f"{target.numbers}{', with products in bfloat16' if may_round(target) else ''}"


def most_rows(target: Target, width: int) -> int:
    """Returns how many rows of ``width`` tokens fit into free GPU memory, rounded down to a power of two; 64 on a CPU."""
    if target.device.type != "cuda":
        return 64
    cache = target.new_cache(8, 1)
    slot = sum(b[:, :, :, 0].numel() * b.element_size() for b in cache.parts)
    row = slot * width + 16 * int(target.config.vocab_size)  # plus the float32 logits and their copies
    free, _ = torch.cuda.mem_get_info(target.device)
    return 1 << max(0, min(4096, int(KEPT * free) // row).bit_length() - 1)
