"""Repetitions of a target's own text are found and unlearned."""

from __future__ import annotations

import json

import pytest
import torch

from d2sd.errors import InputError
from d2sd.train.data import Responses, write_jsonl
from d2sd.train.loop import LoopConfig
from d2sd.train.stages import train_target
from d2sd.train.target import NextToken, TargetShape, new_target
from research.tiny.retention import Retention
from research.tiny.stages import teach_target
from research.tiny.synthetic import documents
from research.tiny.unlikelihood import NextTokenUnlikelihood, number_marks, repeated, repeated_marks


def network(tokenizer):
    return new_target(TargetShape(300, 32, 2, 2, 1, 16, 48, 64), tokenizer, 0)


def test_repeated_tokens_are_those_that_complete_a_known_n_gram():
    ids = [1, 2, 3, 1, 2, 3, 1, 4, 1, 2, 3]
    assert repeated(ids, 0, 3) == [i in (5, 6, 10) for i in range(len(ids))]
    assert repeated(ids, 6, 3) == [i in (6, 10) for i in range(len(ids))]
    assert not any(repeated(ids, len(ids), 3))


def test_marks_are_within_responses():
    ids = torch.tensor([[5, 6, 5, 6, 5, 6, 0, 0], [5, 6, 7, 5, 6, 7, 5, 6]], dtype=torch.int32)
    marks = repeated_marks(Responses(ids, torch.tensor([4, 2]), torch.tensor([6, 8])), 2)
    assert marks.tolist() == [[i in (4, 5) for i in range(8)], [i in (4, 5, 6, 7) for i in range(8)]]


def test_numbers_are_marked_where_the_prompt_holds_none():
    numbers = torch.tensor([i in (8, 9) for i in range(10)])
    ids = torch.tensor([[5, 6, 8, 7, 9, 9], [5, 8, 8, 7, 9, 9]], dtype=torch.int32)
    marks = number_marks(Responses(ids, torch.tensor([2, 2]), torch.tensor([5, 6])), numbers)
    assert marks.tolist() == [[i in (2, 4) for i in range(6)], [False] * 6]


def test_retention_is_the_change_on_known_rows_beside_new_text_and_unlikelihood(tokenizer):
    model, former = network(tokenizer), network(tokenizer)
    rows = [torch.randint(2, 300, (2, 9)) for _ in range(3)]
    marks = torch.zeros(2, 9, dtype=torch.bool)
    marks[0, 5] = True
    objective = Retention(model, former, 4.0, 0.5)
    alone = NextTokenUnlikelihood(model, 0.5)(rows[0], rows[2], marks)[0].item()
    assert objective(*rows, marks)[0].item() == pytest.approx(alone, rel=1e-5)
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    alone = NextTokenUnlikelihood(model, 0.5)(rows[0], rows[2], marks)[0]
    before, now = (m(rows[1]).logits.log_softmax(-1) for m in (former, model))
    change = torch.nn.functional.kl_div(now, before, log_target=True, reduction="sum") / rows[1].numel()
    loss, metrics = objective(*rows, marks)
    assert loss.item() == pytest.approx((alone + 4 * change).item(), rel=1e-4)
    assert float(metrics["change"]) == pytest.approx(change.item(), rel=1e-3)
    loss.backward()
    assert all(x.grad is None for x in former.parameters())


def test_unlikelihood_is_that_of_the_marked_tokens(tokenizer):
    model = network(tokenizer)
    ids, written = torch.randint(2, 300, (2, 9)), torch.randint(2, 300, (2, 12))
    marks = torch.zeros(2, 12, dtype=torch.bool)
    marks[0, 5] = marks[1, 11] = True
    loss, metrics = NextTokenUnlikelihood(model, 0.5)(ids, written, marks)
    p = [model(written).logits.softmax(-1)[row, at - 1, written[row, at]] for row, at in ((0, 5), (1, 11))]
    penalty = -sum(torch.log(1 - x) for x in p) / 2
    assert loss.item() == pytest.approx((NextToken(model)(ids)[0] + 0.5 * penalty).item(), rel=1e-4)
    assert float(metrics["repeated_probability"]) == pytest.approx((sum(p) / 2).item(), rel=1e-3)
    loss.backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in model.parameters())


def test_what_is_certain_can_still_be_unlearned(tokenizer):
    """−log(1 − p) has a gradient where p rounds to 1."""
    model = network(tokenizer)
    with torch.no_grad():
        model.lm_head.weight.mul_(1e4)
    written = torch.randint(2, 300, (1, 4))
    with torch.no_grad():
        written[0, 3] = model(written[:, :3]).logits[0, -1].argmax()
    marks = torch.tensor([[False, False, False, True]])
    loss, metrics = NextTokenUnlikelihood(model, 1.0)(torch.randint(2, 300, (1, 4)), written, marks)
    assert float(metrics["repeated_probability"]) == 1
    loss.backward()
    assert model.lm_head.weight.grad.isfinite().all()
    assert loss.isfinite()


def test_a_target_learns_new_text_and_stays_what_it_was(tmp_path):
    texts, shape = list(documents("sums", 60, 1)), TargetShape(512, 64, 2, 2, 1, 32, 96, 256)
    write_jsonl(tmp_path / "own.jsonl", [{"prompt_ids": [0, 5, 6], "response_ids": [7, 8, 9, 10, 11, 12] * 4}] * 8)
    first, own = tmp_path / "first", tmp_path / "own.jsonl"
    train_target(texts, texts[:9], first, shape, LoopConfig(2, batch_size=4), 64)
    new, loop = list(documents("code", 30, 1)), LoopConfig(12, batch_size=4, warmup=2, save_every=6, log_every=1)
    teach_target(first, new, texts, own, texts[:9], tmp_path / "t", loop, 64)
    rows = [json.loads(line) for line in (tmp_path / "t/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["text_loss"] < rows[0]["text_loss"]
    assert rows[-1]["unlearned_probability"] < rows[0]["unlearned_probability"]
    assert rows[0]["change"] == pytest.approx(0, abs=1e-3)
    assert (tmp_path / "t/model.safetensors").exists()
    write_jsonl(own, [{"prompt_ids": [0, 5, 6], "response_ids": [7, 8, 9]}])
    with pytest.raises(InputError, match="no repetition to unlearn"):
        teach_target(first, new, texts, own, texts[:9], tmp_path / "u", loop, 64)
