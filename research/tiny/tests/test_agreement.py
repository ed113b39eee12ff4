"""A target learns to decide as its drafter expects, where a draft gets to and nothing but taste is at stake."""

from __future__ import annotations

import pytest
import torch

from d2sd.models.drafter import DFlashDraftModel, drafter_config
from d2sd.train.drafters import cut_blocks, draft_blocks
from d2sd.train.target import TargetShape, new_target
from research.tiny.agreement import Agreement, reached, repeats
from research.tiny.retention import Retention


def network(tokenizer, seed=0):
    return new_target(TargetShape(300, 32, 2, 2, 1, 16, 48, 64), tokenizer, seed)


def small_drafter(target, seed=1):
    torch.manual_seed(seed)
    return DFlashDraftModel(
        drafter_config(target.config, layers=1, block_size=4, mask_token_id=1, target_layer_ids=[0])
    )


def objective_of(tokenizer, numbers=()):
    model, former = network(tokenizer), network(tokenizer, seed=3)
    marked = torch.tensor([i in numbers for i in range(300)])
    return Agreement(model, former, small_drafter(model), marked, keep=2.0, weight=0.5, agree=3.0)


def test_a_draft_is_alive_up_to_its_first_wrong_token():
    ids = torch.tensor([[5, 6, 7, 8, 9, 0, 0]])
    blocks = cut_blocks(ids, torch.tensor([5]), torch.tensor([[0, 1, 3]]), torch.zeros(1, 3, dtype=torch.long), 4)
    drafted = torch.tensor([[[0, 6, 1, 8], [0, 7, 8, 9], [0, 9, 9, 9]]])
    assert reached(drafted, blocks).tolist() == [
        [[False, True, True, False], [False, True, True, True], [False, True, False, False]]
    ]


def test_a_repetition_doubles_a_token_or_completes_a_known_n_gram():
    ids = [1, 2, 3, 4, 9, 2, 3]
    assert repeats(ids, 3)  # doubled
    assert not repeats(ids, 4)  # 9 2 3 4 is new
    assert repeats(ids, 4, size=3)
    assert repeats([*ids[:-3], 1, 2, 3], 4)
    assert not repeats([1, 2], 3)


def test_the_goal_is_the_mean_of_both_but_for_numbers_and_repetitions(tokenizer):
    objective = objective_of(tokenizer, numbers=(8,))
    said, draft = (torch.randn(4, 300).log_softmax(-1) for _ in range(2))
    for row, (kept, wanted) in enumerate([(5, 6), (5, 8), (8, 6), (5, 7)]):
        said[row, kept] = draft[row, wanted] = 3.0
    said, draft = said.log_softmax(-1), draft.log_softmax(-1)
    written = torch.tensor([[2, 4, 7, 2, 4, 9]] * 4)
    goal = objective.goal(said, draft, written, torch.arange(4), torch.tensor([3, 3, 3, 3]))
    mean = ((said + draft) / 2).log_softmax(-1)
    assert torch.allclose(goal[0], mean[0])
    assert torch.equal(goal[1:3], said[1:3])
    assert torch.equal(goal[3], said[3])  # 7 after 2 4 7 doubles it
    goal = objective.goal(said[3:], draft[3:], written[3:], torch.tensor([0]), torch.tensor([2]))
    assert torch.allclose(goal[0], mean[3])


def test_agreement_is_retention_beside_the_distance_from_the_goal(tokenizer):
    objective = objective_of(tokenizer)
    rows = [torch.randint(2, 300, (2, 12)) for _ in range(3)]
    marks = torch.zeros(2, 12, dtype=torch.bool)
    marks[0, 5] = True
    lengths, anchors = torch.tensor([12, 10]), torch.tensor([[3], [4]])
    loss, metrics = objective(*rows, marks, lengths, anchors)
    alone = Retention(objective.model, objective.former, 2.0, 0.5)(*rows, marks)[0]
    assert loss.item() == pytest.approx((alone + 3 * metrics["apart"]).item(), rel=1e-5)
    # of an untrained drafter the first token alone is reached here
    objective.agree = 1.0
    log_p = [m(rows[2]).logits.float().log_softmax(-1) for m in (objective.model, objective.former)]
    now, said = (torch.stack([x[0, 3], x[1, 4]]) for x in log_p)
    with torch.no_grad():
        model = objective.model
        model.model(rows[2])
        features = objective._taps.features([0], "cpu")
        blocks = cut_blocks(rows[2], lengths, anchors, torch.zeros_like(anchors), 4)
        drafted = model.lm_head(draft_blocks(objective.drafter, model, blocks, anchors, features)).float()
    draft = drafted.view(2, 1, 4, -1)[:, 0, 1].log_softmax(-1)
    goal = ((said + draft) / 2).log_softmax(-1).detach()
    assert metrics["apart"].item() == pytest.approx(((goal.exp() * (goal - now)).sum(-1).mean()).item(), rel=1e-4)
    loss.backward()
    assert not any(x.requires_grad for net in (objective.former, objective.drafter) for x in net.parameters())
    assert any(x.grad is not None and x.grad.abs().sum() > 0 for x in objective.model.parameters())
