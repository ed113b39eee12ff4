"""The cost-aware controller on a simulated text and machine with known best settings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2sd import DecodeConfig
from d2sd.costs.machines import Curve
from d2sd.decoding.cost_aware import (
    LONGEST_WAIT,
    Controller,
    Experience,
)
from d2sd.methods import FirstDraft, Proposal
from d2sd.tree.tree import merge_drafts
from d2sd.tree.walk import TreeWalk
from tests.unit.adaptive_world import CPU, GPU, Text, adaptive, fixed, rate
from tests.unit.drafts import block

TEXTS = {
    "templates": Text(0.93, 0.97),
    "stories": Text(0.7),
    "hard": Text(0.2, 0.9),
    "noise": Text(0.03, 0.9),
    "over-confident drafters": Text(0.55, 0.93, honest=0.5),
    "re-drafts that never help": Text(0.6, 0.93, second=0.05),
    "re-drafts that help": Text(0.7, second=0.95),
}
CONFIG = DecodeConfig("d2sd", block_size=16, node_budget=64)


def begun(table=CPU, lengths=(4, 8, 16), experience=None):
    controller = Controller(CONFIG, lengths, experience=experience or Experience(table))
    controller.begin()
    return controller


def chain(probabilities):
    """The proposal of a first draft with these probabilities."""
    draft = block(range(1, 1 + len(probabilities)), probabilities)
    return Proposal(merge_drafts(0, [draft]), draft)


def redrafted(controller, confidence, prefixes):
    return controller.worthwhile(FirstDraft(block([1] * len(confidence), confidence)), prefixes)


def outcome(accepted):
    """A walk that accepts the first nodes of a chain."""
    return TreeWalk((), tuple(range(1, 1 + accepted)), None, False, False)


@pytest.mark.parametrize(("branches", "table"), [(0, CPU), (8, CPU), (8, GPU)], ids=["0-cpu", "8-cpu", "8-gpu"])
@pytest.mark.parametrize("text", TEXTS)
def test_controller_speed_near_best_fixed_and_plain(text, branches, table):
    """One engine generates four texts; in hindsight, the best of several fixed settings is known."""
    texts = [replace(TEXTS[text], seed=seed) for seed in range(4)]
    settings = [(0, 0, 0), *((g, k, 64) for g in (4, 8, 16) for k in {0, min(g - 1, branches // 2), branches} if k < g)]
    best = max(rate([step for t in texts for step in fixed(t, table, *setting)]) for setting in settings)
    experience, steps = Experience(table), []
    for t in texts:
        steps += adaptive(t, table, Controller(CONFIG, (4, 8, 16), experience=experience), branches)
    ours = rate(steps)
    assert ours > 0.93 * best
    assert ours > 0.95 / table.plain()


def test_controller_resumes_drafting_when_text_gets_easy():
    controller, plain = begun(), 0
    for _ in range(60):
        proposal = chain([0.5] * 3)
        controller.prune(proposal.tree)
        controller.learn(proposal, outcome(0), 0)
        plain += not controller.begin()
    assert plain > 40
    drafted = 0
    for _ in range(2 * LONGEST_WAIT):
        drafted += controller.block_size > 0
        proposal = chain([0.9] * 7)
        controller.prune(proposal.tree)
        controller.learn(proposal, outcome(5), None)
        controller.begin()
    assert drafted > LONGEST_WAIT // 2


@given(st.lists(st.floats(0.001, 0.999), min_size=3, max_size=15), st.floats(0, 0.02))
def test_controller_redraft_count_maximises_net_gain(confidence, dear):
    """The net gain of a count is its expected tokens minus its time multiplied by the text's rate."""
    controller = begun(replace(CPU, second_draft=Curve(((16, dear), (128, 3 * dear)))), (16,))
    before = controller.decision().options[-1]
    chosen = redrafted(controller, confidence, tuple(range(min(8, len(confidence)))))
    options = [before, *controller.decision().options[2:]]
    nets = [option.tokens - controller.rate * option.seconds for option in options]
    assert nets[len(chosen)] == pytest.approx(max(nets))
    assert controller.next_redrafts == len(chosen)


def test_controller_ranks_boundaries_by_added_tokens():
    experience = Experience(GPU)
    for _ in range(60):
        experience.redrafts[False].observe(0, 15)  # from the empty prefix, a re-draft repeats the rejected token
        experience.redrafts[True].observe(4, 12)
    controller = begun(GPU, (16,), experience=experience)
    assert redrafted(controller, [0.9, 0.9, 0.3, *[0.99] * 12], (0, 1, 2, 3))[0] == 2
    added = [option.tokens for option in controller.decision().options[1:]]
    assert added[1] - added[0] > 1 > 0.3 > added[2] - added[1]


@given(st.lists(st.floats(0.0001, 1.0), min_size=1, max_size=60), st.integers(1, 64))
def test_controller_prunes_where_cost_exceeds_value(probabilities, most):
    controller, tree = begun(), chain(probabilities).tree
    controller.config = replace(CONFIG, node_budget=most)
    count, reach = len(controller.prune(tree)) - 1, tree.reach()[1:]
    prices = [controller.rate * controller.costs.node(1 + n) for n in range(len(reach))]
    assert all(r > price for r, price in zip(reach[:count], prices, strict=False))
    assert count == min(most, len(reach)) or reach[count] <= prices[count]
    assert all(math.log(r) >= controller.min_log_probability for r in reach[:count])  # trees end below it


def test_decision_lists_all_options_and_taken_one():
    controller = begun(GPU)
    size = controller.block_size
    chosen = redrafted(controller, [0.9, 0.5, 0.9, *[0.8] * (size - 4)], (1, 0, 2))
    proposal = chain([0.9, 0.4 / 0.9])
    controller.prune(proposal.tree)
    decision = controller.learn(proposal, outcome(1), None)
    taken = decision.options[decision.taken]
    assert (taken.block_size, taken.branches) == (size, len(chosen))
    assert [(o.block_size, o.branches) for o in decision.options[:4]] == [(0, 0), (4, 0), (8, 0), (16, 0)]
    assert [o.branches for o in decision.options[4:]] == [1, 2, 3]
    assert decision.tokens == pytest.approx(2.3)
