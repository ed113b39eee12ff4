"""What a step spends, on a made-up text and machine where the best is known."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from d2sd.decoding import redrafting
from d2sd.decoding.controller import FIRST_WAIT, PLAN, Controller, Known
from d2sd.decoding.costs import CHOICES, Curve, RunningCosts
from d2sd.decoding.gains import LONGEST_WAIT, Calibration, Ranks, Usual, Yield
from d2sd.decoding.tree_sizes import CHANCE, SURVEY
from tests.unit.adaptive_world import (
    CPU,
    GPU,
    Part,
    World,
    fixed_settings,
    new_controller,
    rate,
    run_adaptive,
    run_fixed,
)

TEXTS = {
    "templates": Part(400, 0.93),
    "stories": Part(400, 0.7, 0.95),
    "prose": Part(400, 0.5, 0.93),
    "hard": Part(400, 0.2, 0.9),
    "noise": Part(400, 0.05, 0.9),
    "over-confident drafters": Part(400, 0.55, 0.93, honest=0.5),
    "re-drafts that never help": Part(400, 0.6, 0.93, second=0.05),
    "re-drafts that help": Part(400, 0.7, 0.95, second=0.95),
}


MACHINES = {"cpu": CPU, "gpu": GPU}


def worlds_of(text, machine, count=12):
    return [World([TEXTS[text]], MACHINES[machine], noise=0.2, seed=seed) for seed in range(count)]


@cache
def best_fixed(text, machine, branches, budget=None, count=12):
    """The highest rate of a fixed setting, known in hindsight."""
    worlds = worlds_of(text, machine, count)
    return max(rate([s for w in worlds for s in run_fixed(w, *f)]) for f in fixed_settings(branches, budget))


def adaptive(world, branches, known=None):
    return run_adaptive(world, new_controller(known or Known(RunningCosts(world.table))), branches)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("branches", [0, 8])
@pytest.mark.parametrize("text", TEXTS)
def test_within_three_percent_of_the_best_fixed_setting_in_hindsight(text, branches, machine):
    for known in (
        Known(RunningCosts(MACHINES[machine])),
        None,
    ):  # one engine writes one text after the other; each has its own
        ours = rate([step for w in worlds_of(text, machine) for step in adaptive(w, branches, known)])
        assert ours > 0.97 * best_fixed(text, machine, branches)
        assert ours > 0.97 / MACHINES[machine].plain()


@pytest.mark.parametrize("branches", [0, 8])
@pytest.mark.parametrize("text", TEXTS)
def test_steps_that_are_planned_ahead_come_as_close(text, branches):
    """On a GPU, where a step is queued as a whole: re-drafts by what those of earlier steps promised."""
    known = Known(RunningCosts(GPU))
    steps = [run_adaptive(w, new_controller(known), branches, planned=True) for w in worlds_of(text, "gpu", 16)]
    ours = rate([step for run in steps for step in run])
    assert ours > 0.97 * best_fixed(text, "gpu", branches, 512, 16)
    assert ours > 0.97 / GPU.plain()


def test_a_text_that_changes_halfway_and_back():
    parts = [Part(150, 0.95), Part(150, 0.05, 0.9), Part(150, 0.95)]
    worlds = [World(parts, CPU, noise=0.2, seed=seed) for seed in range(24)]
    runs = [(w, adaptive(w, 8)) for w in worlds]
    for number, part in enumerate(parts):
        ours = []
        for _, steps in runs:
            at = 0
            for step in steps:
                if at // 150 == number:
                    ours.append(step)
                at += step[0]
        alone = [World([part], CPU, seed=w.seed) for w in worlds]
        best = max(rate([s for w in alone for s in run_fixed(w, *f)]) for f in fixed_settings(8))
        assert rate(ours) > 0.93 * best, number


def test_a_text_begins_with_the_times_of_the_one_before():
    known = Known(RunningCosts(CPU))
    for _ in range(60):
        new_controller(known).costs.observe("verify", 1, 2 * CPU.verify.seconds(1))
    assert new_controller(known).costs.plain() > 1.8 * CPU.plain()


@pytest.mark.parametrize(("saved", "size"), [(0.02, 16), (0.3, 8)])
def test_a_shorter_draft_has_to_be_worth_it(saved, size):
    """Where only the first token is ever accepted, both lengths add the same, and the shorter one takes less time."""
    plain, draft = CPU.plain(), 0.4 * CPU.plain()
    table = replace(CPU, first_draft=Curve(((8, draft - saved * plain), (16, draft))))
    controller = Controller(Known(RunningCosts(table)), (8, 16))
    for _ in range(60):
        controller.begin()
        controller.nodes([0.9, 0.4, 0.2], [False] * 3, 64)
        controller.observe(2, 0, 2, 0.2)
    assert controller.begin() == size


def test_a_choice_lasts_a_few_steps_unless_one_accepts_nothing():
    known = Known(RunningCosts(CPU))
    controller = Controller(known, (4, 8, 16))
    lasted, steps = [], 0
    for accepted in [2, 3] * 8 + [2, 0, 2, 0]:
        before = controller.decision().options if steps else ()
        controller.begin()
        known.costs.observe("verify", 8, 1.5 * known.costs.seconds("verify", 8))  # or the same would be chosen again
        if controller.decision().options[:4] != before[:4]:
            lasted.append(steps)
            steps = 0
        steps += 1
        controller.nodes([0.9, 0.8, 0.7], [False] * 3, 64)
        controller.observe(accepted, 0, None, 0.2)
    assert lasted == [0, PLAN, PLAN, PLAN, PLAN, 2]


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_is_decided_whether_it_is_explained_or_not(machine, planned):
    for text in ("templates", "re-drafts that help", "re-drafts that never help"):
        (world,) = worlds_of(text, machine, 1)
        runs = []
        for explain in (True, False):
            controller = Controller(Known(RunningCosts(world.table)), (4, 8, 16), explain=explain)
            world.clock.seed(0)
            runs.append(run_adaptive(world, controller, 8, planned))
        assert runs[0] == runs[1]


def test_redrafts_that_cannot_pay_are_worked_out_only_to_be_explained():
    dear = replace(CPU, second_draft=Curve(((1, 1.0),)))
    counts = []
    for explain in (True, False):
        controller = Controller(Known(RunningCosts(dear)), (16,), explain=explain)
        assert controller.begin() == 16
        assert controller.redraft([0.5] * 15, (0, 1, 2)) == ()
        counts.append([(o.block_size, o.branches) for o in controller.decision().options])
    assert counts == [[(0, 0), (16, 0), (16, 1), (16, 2), (16, 3)], [(0, 0), (16, 0)]]


def test_looks_grow_rarer_where_nothing_is_ever_accepted():
    steps = run_adaptive(World([Part(400, 0.0)], CPU), new_controller(Known(RunningCosts(CPU))), 0)
    looks = [n for n, (_, seconds) in enumerate(steps) if seconds > 1.1 * CPU.plain()]
    gaps = [b - a for a, b in pairwise(looks)]
    assert min(gaps[-3:]) > 2 * FIRST_WAIT
    assert max(gaps) <= LONGEST_WAIT + 1
    assert rate(steps) > 0.98 / CPU.plain()


def test_a_text_that_gets_easy_is_noticed_at_once_by_a_target_that_is_sure():
    controller = new_controller(Known(RunningCosts(CPU)))
    for _ in range(150):
        controller.observe(0, 0, 0, 0.2) if controller.begin() else controller.observe(0, 0, None, 0.2)
    waited = 0
    while not controller.begin():
        controller.observe(0, 0, None, 0.99)
        waited += 1
    assert waited <= 12


def test_what_redrafts_add_is_learnt_by_their_prefix_and_goes_on_to_the_next_text():
    known = Known(RunningCosts(CPU))
    assert known.redrafts.tokens(0, 8) == known.redrafts.tokens(5, 8)  # nothing was seen
    for _ in range(40):
        known.redrafts.observe(0, 0, 15)  # it repeats what was rejected
        known.redrafts.observe(4, 3, 11)
    assert known.redrafts.tokens(0, 8) < 0.3 < 1.5 < known.redrafts.tokens(4, 8)
    assert known.redrafts.tokens(4, 8) == known.redrafts.tokens(7, 8) > known.redrafts.tokens(4, 2)
    confidence = [0.1, *[0.99] * 14]  # a boundary right after the anchor
    fresh, later = new_controller(Known(RunningCosts(CPU))), new_controller(known)
    assert fresh.begin() == later.begin()
    for controller in (fresh, later):
        controller.redraft(confidence[: controller.block_size - 1], (0,))
    assert later.decision().options[-1].tokens < fresh.decision().options[-1].tokens


def test_what_drafting_adds_is_counted_as_if_drafts_were_whole():
    usual, rng, estimates = Usual(), random.Random(0), []
    whole, short = Yield(15, usual), Yield(15, Usual())
    for _ in range(2000):
        accepted = min(15, int(-2.5 * math.log(rng.random())))
        whole.observe(accepted, accepted, 15)
        short.observe(min(accepted, 3), min(accepted, 3), 3)
        estimates.append((whole.by_length(3), short.by_length(3), short.tokens, usual.tokens))
    means = [sum(e) / len(e) for e in zip(*estimates, strict=True)]
    assert means[1] == pytest.approx(means[0], rel=0.1)
    assert means[2] > 1.2 * means[1]  # a whole draft would have added more
    assert means[3] == pytest.approx(2.03, rel=0.1)
    assert Yield(15, usual).tokens == usual.tokens  # where the next text begins


@pytest.mark.parametrize(("usually", "most"), [(6, 9), (3, 7), (2, 5)])
def test_steps_in_a_row_without_an_accepted_token_say_that_the_text_has_changed(usually, most):
    easy, rng = Yield(15, Usual()), random.Random(1)
    for _ in range(60):
        easy.observe(usually, max(0, usually + rng.choice((-2, 0, 2))), 15)
    before = easy.tokens
    assert before == pytest.approx(usually, rel=0.2)
    easy.observe(usually, 0, 15)  # one alone may be chance
    assert easy.tokens > 0.7 * before
    steps = 1
    while easy.tokens > 0.9:
        easy.observe(0.3, 0, 15)
        steps += 1
    assert steps <= most


def test_a_text_follows_its_own_drafts_from_where_all_texts_are():
    usual = Calibration()
    for _ in range(30):
        usual.observe(2.0, 3)
    text, before = Calibration(usual), usual.exponent
    assert text.exponent == before < 1.0  # not sure enough, in all texts
    for _ in range(30):
        text.observe(2.0, 1)  # too sure, in this one
    assert text.exponent > 1.0 > usual.exponent > before


@pytest.mark.parametrize("keep", [0.7, 0.8, 0.9, 0.95])
def test_as_many_nodes_are_verified_as_pay_of_a_few_numbers(keep):
    controller = new_controller(Known(RunningCosts(CPU)))
    controller.begin()
    reach = [keep**depth for depth in range(1, 61)]
    offered = [nodes for nodes in CHOICES if nodes < 61] + [61]

    def net(nodes):
        return sum(reach[: nodes - 1]) - controller._rate * CPU.verify.seconds(nodes)

    assert 1 + controller.nodes(reach, [False] * 60, 64) == max(offered, key=net)


def grown_to(reach, least):
    """Nodes below the anchor of a tree with these probabilities that is grown until the next one is worth too little."""
    pairs = enumerate(zip(reach, least[1:], strict=False))
    return next((nodes for nodes, (r, floor) in pairs if math.log(r) < floor), min(len(reach), 64))


@pytest.mark.parametrize("machine", [CPU, GPU])
@pytest.mark.parametrize("keep", [0.5, 0.8, 0.95])
def test_growth_ends_where_no_larger_tree_can_pay(machine, keep):
    controller = new_controller(Known(RunningCosts(machine)))
    controller.begin()
    reach, least = [keep**depth for depth in range(1, 65)], controller.least(64)
    grown = grown_to(reach, least)
    assert controller.nodes(reach[:grown], [False] * grown, 64) == controller.nodes(reach, [False] * 64, 64)
    if machine is CPU and keep < 0.9:
        assert grown < 40


def test_a_grown_tree_is_as_large_as_usual_where_a_step_is_unsure_and_a_chain_is_cut():
    def sizes(grown):
        known = Known(RunningCosts(CPU))
        controller = Controller(known, (4, 8, 16), grown=grown)
        controller.begin()
        price = controller._rate * (CPU.verify.seconds(20) - CPU.verify.seconds(8)) / 12
        for _ in range(20):
            controller.nodes([3 * price] * 16, [False] * 16, 64)
        unsure = [2 * CHANCE * price] * 16
        another = Controller(known, (4, 8, 16), grown=grown)
        another.begin()
        floors = [floor for floor in another.least(64)[:20] if floor > -math.inf]
        return [c.nodes(unsure, [False] * 16, 64) for c in (controller, another)], max(floors), math.log(unsure[0])

    counts, floor, unsure = sizes(grown=True)
    assert counts == [16, 16]
    assert floor < unsure
    counts, floor, unsure = sizes(grown=False)
    assert max(counts) < 4
    assert floor > unsure


def test_one_tree_in_a_few_is_grown_beyond_what_is_verified():
    controller = Controller(Known(RunningCosts(CPU)), (4, 8, 16), grown=True)
    controller.begin()
    price = controller._rate * (CPU.verify.seconds(20) - CPU.verify.seconds(8)) / 12
    reach = [3 * price] * 10 + [0.5 * price] * 10
    sizes = []
    for _ in range(3 * SURVEY):
        grown = grown_to(reach, controller.least(64))
        sizes.append((grown, controller.nodes(reach[:grown], [False] * grown, 64)))
    surveys, others = sizes[SURVEY::SURVEY], [s for at, s in enumerate(sizes) if at % SURVEY]
    assert all(9 <= verified <= 11 for _, verified in sizes)
    assert all(grown > verified for grown, verified in surveys)
    assert all(grown == verified for grown, verified in others)


def test_between_surveys_a_tree_ends_where_a_step_promises_less_than_usual():
    known = Known(RunningCosts(CPU))

    def grown(factor):
        """Nodes of a tree whose probabilities are so many times the usual ones, after a survey of these."""
        controller = Controller(known, (4, 8, 16), grown=True)
        controller.begin()
        price = controller._rate * (CPU.verify.seconds(20) - CPU.verify.seconds(8)) / 12
        usual = [max(0.01, 3 * price * 0.9**rank) for rank in range(40)]
        for _ in range(5 * SURVEY + 1):
            controller.nodes(usual, [False] * 40, 64)
        reach = [factor * r for r in usual]
        size = grown_to(reach, controller.least(64))
        assert controller.nodes(reach, [False] * 40, 64) == size  # of a tree that was not grown by it, too
        return size

    assert 3 < grown(0.4) < grown(1.0) < grown(1.7) < 40


def test_usual_probabilities_stand_beside_those_of_a_step_by_rank():
    usual = Ranks()
    assert usual.beside([0.5, 0.25], 0.25) == [0.5, 0.25]  # before anything was seen
    usual.observe([0.8, 0.4, 0.2])
    assert usual.beside([0.4, 0.0, 0.0, 0.4], 0.25) == pytest.approx([0.7, 0.3, 0.15, 0.1])
    text = Ranks(usual)
    for _ in range(60):
        text.observe([0.2])
    assert text.reach == pytest.approx([0.2, 0.0, 0.0], abs=0.01)
    assert 0.2 < usual.reach[0] < 0.5  # what all texts teach follows more slowly
    assert Ranks(usual).reach == usual.reach


def test_a_small_tree_that_pays_is_verified_whole():
    controller = new_controller(Known(RunningCosts(CPU)))
    controller.begin()
    assert 3 not in CHOICES
    assert controller.nodes([0.95, 0.9], [False] * 2, 64) == 2


def test_an_option_is_taken_for_its_rate_and_told():
    controller = new_controller(Known(RunningCosts(CPU)))
    size = controller.begin()
    assert size
    chosen = controller.redraft([0.9, 0.5, 0.9, *[0.8] * (size - 4)], (1, 0, 2))
    controller.nodes([0.9, 0.4], [False, False], 64)
    decision = controller.decision()
    taken = decision.options[decision.taken]
    assert (taken.block_size, taken.branches) == (size, len(chosen))
    assert [o.branches for o in decision.options[-4:]] == [0, 1, 2, 3]  # the longest draft, and it with re-drafts
    assert decision.options[0].block_size == 0
    assert decision.tokens == pytest.approx(1 + 1.3)


def test_no_more_redrafts_are_planned_than_a_block_has_prefixes():
    free = replace(GPU, second_draft=Curve(((1, 1e-9),)), first_draft=Curve(((1, 1e-9),)))
    for size, most in ((2, 1), (4, 2), (16, 8)):
        controller = Controller(Known(RunningCosts(free)), (size,))
        assert controller.plan((1, 2, 4, 8)) == (size, most)


def test_a_decision_takes_less_than_a_tenth_of_a_millisecond():
    world, controller = World([Part(120, 0.7)], GPU), new_controller(Known(RunningCosts(GPU)))
    confidence, _ = world.first(0, 16)
    reach = sorted((0.9**n for n in range(64)), reverse=True)
    times = []
    for _ in range(200):
        began = time.thread_time()
        if controller.begin():
            controller.redraft(confidence, tuple(range(8)))
            controller.nodes(reach, [False] * 64, 64)
        controller.decision()
        controller.observe(2, 0, 2, 0.0)
        times.append(time.thread_time() - began)
    assert sorted(times)[100] < 1e-4


def test_redrafts_that_are_known_are_looked_at_again_more_rarely():
    """As rarely as makes them cost a hundredth of the time, where fifty tries have shown what they add."""

    def first_look(known):
        controller = Controller(known, (16,))
        for step in range(1, 200):
            assert controller.begin() == 16
            controller.redraft([0.99, 0.99, 0.3, *[0.5] * 12], (2,))
            looking = controller.decision().looking
            controller.nodes([0.9, 0.81], [False] * 2, 64)
            controller.observe(2, 0, 2, 0.2)
            if looking:
                return step
        return None

    new, known = Known(RunningCosts(CPU)), Known(RunningCosts(CPU))
    for number in range(100):
        known.redrafts.observe(number % 4, (2, 0, 0, 3, 0)[number % 5], 12)
    assert known.redrafts.seen > 40
    early, late = first_look(new), first_look(known)
    assert early == 1 + redrafting.FIRST_WAIT
    assert late > early
