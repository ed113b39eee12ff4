"""From how many prefixes a step drafts again, on costs and gains that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2sd.decoding.costs import Curve, RunningCosts
from d2sd.decoding.gains import Calibration, Redrafts
from d2sd.decoding.redrafting import FIRST_WAIT, Redrafting
from d2sd.trace.events import Option
from tests.unit.adaptive_world import CPU

DRAFTED = Option(16, 0, 3.0, 12e-3)
COUNTS = (1, 2, 4, 8)


def redrafting(table=CPU, learnt=None, longer=0, rate=200.0):
    made = Redrafting(RunningCosts(table), learnt or Redrafts(), Calibration(), longer)
    made.expect(16, rate)
    return made


@given(st.lists(st.floats(0, 0.6), min_size=8, max_size=8), st.floats(10, 2000))
def test_as_many_are_made_as_pay_most(adds, rate):
    ours, gains = redrafting(rate=rate), [0.0]
    for add in adds:
        gains.append(gains[-1] + add)

    def net(count):
        return gains[count] - rate * (ours.option(DRAFTED, count, gains).seconds - DRAFTED.seconds) if count else 0.0

    expected = max((0, *COUNTS), key=net) if ours.possible else 0
    best = ours.best(DRAFTED, COUNTS, gains)
    assert net(best) == pytest.approx(net(expected), abs=1e-12)
    assert not ours.looking


def test_likelier_boundaries_come_first_and_count_by_what_a_redraft_adds_there():
    learnt = Redrafts()
    for _ in range(50):
        learnt.observe(0, 0, 15)
        learnt.observe(3, 3, 12)
    ours = redrafting(learnt=learnt)
    order, gains = ours.gains([0.9, 0.9, 0.5, 0.9, *[0.99] * 11], (0, 1, 2, 3))
    assert order == [2, 0, 1, 3]  # r(i) = .405, .1, .09, .0405
    added = [learnt.tokens(prefix, 15 - prefix) for prefix in order]
    assert gains == pytest.approx([0.0, 0.405 * added[0], 0.405 * added[0] + 0.1 * added[1], gains[3], gains[4]])
    assert gains[2] - gains[1] < 0.1 < gains[1]


def test_a_longer_second_block_can_go_on_after_the_whole_first_one():
    order, gains = redrafting(longer=4).gains([1.0] * 15, (15,))
    assert order == [15]
    assert gains[1] == pytest.approx(Redrafts().tokens(15, 4))


def test_what_does_not_pay_is_tried_after_a_while_if_it_would_with_twice_its_gain():
    dear = replace(CPU, second_draft=Curve(((1, 4e-3),)))
    ours = redrafting(dear)
    price = 200.0 * (ours.option(DRAFTED, 1, [0.0, 0.0]).seconds - DRAFTED.seconds)
    for share, looks in ((0.4, False), (0.6, True)):
        ours = redrafting(dear)
        gains, steps = [0.0, share * price], 0
        while not ours.best(DRAFTED, (1,), gains) and steps < 50:
            assert not ours.looking
            ours.stepped({}, 2, 2)
            steps += 1
        assert ours.looking == looks
        assert steps == (FIRST_WAIT if looks else 50)
