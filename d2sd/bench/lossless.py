"""Checks whether a text equals plain greedy decoding, exactly or within the rounding of a 16-bit dtype.

In float32, all token ids must be equal. In bfloat16, passes of different shapes round differently. This may reverse the order of two
tokens that are nearly tied, and so change all later tokens. Therefore, the target then reads each text once more (teacher forcing),
and every token must be the target's first choice or nearly tied with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from d2sd.bench.runner import Entry, Row


class Divergence(NamedTuple):
    """The first difference between a text and plain decoding.

    prompt: index of the prompt.
    position: index of the first different output token.
    expected, got: id of this token in plain decoding, and in the text; None if the output has ended before it.
    gap: logit of ``expected`` − logit of ``got``, after the common beginning of both outputs; None if one of them has ended.
    """

    prompt: int
    position: int
    expected: int | None
    got: int | None
    gap: float | None


@torch.inference_mode()
def teacher_forced(model: Any, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """Returns the logits from which each output token is chosen, by one pass over prompt and output, (len(output), vocabulary) float32."""
    ids = torch.tensor([[*prompt, *output[:-1]]], device=model.device)
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return logits[0, len(prompt) - 1 :].float()


def shortfalls(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Returns by how much the logit of each token is below the largest logit of its row, (rows,), in standard deviations of the row.

    logits: (rows, vocabulary).
    ids: token of each row.
    """
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None])[:, 0]
    return (logits.amax(1) - chosen) / logits.std(1)


def divergence(
    model: Any, number: int, prompt: Sequence[int], expected: Sequence[int], got: Sequence[int]
) -> Divergence | None:
    """Returns the first difference between two continuations of a prompt; None if they are equal.

    model: model that computes the logit gap.
    number: index of the prompt.
    expected, got: token ids of plain decoding, and of the text to check.
    """
    for position, (wanted, other) in enumerate(zip_longest(expected, got)):
        if wanted != other:
            gap = None
            if wanted is not None and other is not None:
                row = teacher_forced(model, prompt, expected[: position + 1])[-1]
                gap = float(row[wanted] - row[other])
            return Divergence(number, position, wanted, other, gap)
    return None


# Comparison of many settings of each method with plain greedy decoding.


class Result(NamedTuple):
    """The comparison of one text with plain decoding.

    label: label of the setting that wrote the text.
    prompt: index of the prompt.
    tokens: number of tokens of the text.
    divergence: the first difference; None if the texts are equal.
    shortfall: largest of the text's ``shortfalls``; None if they were not measured.
    """

    label: str
    prompt: int
    tokens: int
    divergence: Divergence | None
    shortfall: float | None


def run_check(
    plain: Entry,
    entries: Sequence[Entry],
    prompts: Sequence[Sequence[int]],
    twin: Any,
    exact: bool,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[list[Result]]:
    """Runs all entries and yields, for each prompt, a list with one result per entry.

    plain: entry of plain decoding, with which all entries are compared.
    prompts: token ids of each prompt.
    twin: transformers model for teacher forcing.
    exact: whether texts must be equal, so that shortfalls are not measured.
    progress: called after every text.
    """
    for number, ids in enumerate(prompts):
        expected = plain.run(ids).token_ids
        results = []
        for entry in entries:
            got = expected if entry.label == plain.label else entry.run(ids).token_ids
            shortfall = None if exact else float(shortfalls(teacher_forced(twin, ids, got), got).max())
            difference = divergence(twin, number, ids, expected, got)
            results.append(Result(entry.label, number, len(got), difference, shortfall))
            progress()
        yield results


def tally(results: Sequence[Result], labels: Sequence[str], margin: float | None) -> list[Row]:
    """Returns one row per setting, with its number of identical texts, its first divergence, and whether it passed.

    labels: labels of the settings.
    margin: largest allowed shortfall. If it is None, a setting passes only if all its texts are identical.
    """
    rows = []
    for label in labels:
        texts = sorted((r for r in results if r.label == label), key=lambda r: r.prompt)
        divergences = [r.divergence for r in texts if r.divergence]
        shortfall = max((r.shortfall for r in texts if r.shortfall is not None), default=None)
        rows.append({
            "label": label,
            "texts": len(texts),
            "tokens": sum(r.tokens for r in texts),
            "identical": len(texts) - len(divergences),
            "largest_shortfall": shortfall,
            "first_divergence": divergences[0]._asdict() if divergences else None,
            "passed": not divergences if margin is None else shortfall is not None and shortfall <= margin,
        })  # fmt: skip
    return rows
