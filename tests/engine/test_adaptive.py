"""Cost-aware runs: whatever they decide, the text stays the target's own."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.config import MAX_DEPTH, MAX_TOP_K
from d2sd.decoding import measured_costs
from d2sd.decoding import proposer as proposing
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.controller import Controller
from d2sd.decoding.costs import STAGES
from d2sd.decoding.measured_costs import MEASURED_SLOTS, measure_costs
from d2sd.decoding.verifier import Verifier
from d2sd.passes.passes import Passes
from d2sd.whatif import Replay
from tests.stage_costs import CHEAP_DRAFTS

ADAPTIVE = [m.id for m in METHODS.values() if "cost_aware" in m.settings]


def restless(seed):
    """A controller that decides at random, whatever it is told."""
    rng = random.Random(seed)

    class Restless(Controller):
        def begin(self):
            super().begin()
            self._taken = rng.randrange(len(self._options))
            self.block_size = self._options[self._taken].block_size
            self._redrafting.expect(self.block_size, self._rate)
            return self.block_size

        def redraft(self, confidence, prefixes):
            drafted = self._taken
            super().redraft(confidence, prefixes)
            chosen = tuple(sorted(prefixes, key=lambda _: rng.random())[: rng.randint(0, len(prefixes))])
            self._lengths = {p: len(confidence) + self.longer - p for p in chosen}
            self._taken = len(self._options) - 1 - len(prefixes) + len(chosen) if chosen else drafted
            return chosen

        def nodes(self, reach, by_second, most):
            super().nodes(reach, by_second, most)
            self._nodes = rng.randint(0, min(most, len(reach)))
            return self._nodes

    return Restless


@pytest.mark.parametrize("method", ADAPTIVE)
def test_random_decisions_leave_the_text_alone(engine, method, monkeypatch):
    plain = engine.generate("the cat sat", DecodeConfig("autoregressive", 40))
    seen = set()
    for seed, settings in enumerate(({}, {"block_size": 6, "second_block_size": 9, "num_branches": 3})):
        monkeypatch.setattr(proposing, "Controller", restless(seed))
        monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
        trace = engine.generate("the cat sat", DecodeConfig(method, 40, cost_aware=True, **settings))
        assert trace.token_ids == plain.token_ids
        for step in trace.steps:
            taken = step.decision.options[step.decision.taken]
            drafted = step.levels if method == "eagle3" else step.first_draft
            assert bool(drafted) == (taken.block_size > 0)
            if not drafted:
                assert step.draft_passes == 0
            elif METHODS[method].second_drafter != "none":
                assert step.draft_passes == 1 + bool(step.branches) + any(b.base for b in step.branches)
            if METHODS[method].second_drafter != "none":
                assert taken.branches <= len(step.branches) <= 2 * taken.branches
            seen.add((taken.block_size, taken.branches))
    assert len(seen) > (1 if method == "eagle3" else 3)


@pytest.mark.parametrize("method", ["dflash", "d2sd", "d2sd_tree"])
def test_random_decisions_leave_sampled_text_alone(bundled, method, monkeypatch):
    settings = {"max_new_tokens": 40, "temperature": 0.9, "top_p": 0.95, "seed": 3}
    plain = bundled.generate("One day, a cat", DecodeConfig("autoregressive", **settings))
    monkeypatch.setattr(proposing, "Controller", restless(1))
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    trace = bundled.generate("One day, a cat", DecodeConfig(method, cost_aware=True, **settings))
    assert trace.token_ids == plain.token_ids


@pytest.mark.parametrize("method", ["dflash", "d2sd"])
def test_drafters_read_what_they_put_off_before_they_draft(bundled, method, monkeypatch):
    """A draft after plain steps, and a re-draft after steps without one, is that of a drafter which read every token at once."""

    steps, read = [], Counter()
    extend = BlockDrafter.extend

    def counted(self, *given):
        read[self.name, len(steps)] += 1
        extend(self, *given)

    class Late(Controller):
        def begin(self):
            super().begin()
            steps.append(len(steps) % 5 == 4)
            self._taken = len(self._options) - 1 if steps[-1] or method == "d2sd" else 0
            self.block_size = self._options[self._taken].block_size
            self._redrafting.expect(self.block_size, self._rate)
            return self.block_size

        def redraft(self, confidence, prefixes):
            drafted = self._taken
            super().redraft(confidence, prefixes)
            chosen = tuple(prefixes) if steps[-1] else ()
            self._lengths = {p: len(confidence) - p for p in chosen}
            self._taken = len(self._options) - 1 if chosen else drafted
            return chosen

    def drafts(trace):
        firsts = [(s.anchor_position, s.first_draft) for s in trace.steps if s.first_draft and method == "dflash"]
        again = [(s.anchor_position, draft) for s in trace.steps for draft in s.branches]
        return {(at, draft.prefix): draft.ids for at, draft in firsts + again}

    monkeypatch.setattr(proposing, "Controller", Late)
    monkeypatch.setattr(BlockDrafter, "extend", counted)
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    late = drafts(bundled.generate("Once upon a time", DecodeConfig(method, 224, cost_aware=True, node_budget=3)))
    monkeypatch.undo()
    # with one node verified a step begins at every or every other position
    at_once = drafts(bundled.generate("Once upon a time", DecodeConfig(method, 224, node_budget=1)))
    compared = [(ids, at_once[key]) for key, ids in late.items() if key in at_once]
    assert len(compared) > 3
    assert all(one == other for one, other in compared)
    # every fifth step it reads what it missed, and then what the step committed; in the others nothing
    name, before = "first" if method == "dflash" else "second", len(steps)  # the last step ends the text
    assert before > 12
    reads = {at: count for (who, at), count in read.items() if who == name and at < before}
    assert reads == {0: 1, **dict.fromkeys(range(5, before, 5), 2)}
    if method == "d2sd":  # the first drafter has drafted in every step, and reads at once
        assert all(read["first", at] == 1 for at in range(before))


def test_trees_that_are_grown_go_by_their_usual_size(engine, monkeypatch):
    seen = {}

    class Watched(Controller):
        def __init__(self, known, lengths, longer, grown, explain):
            super().__init__(known, lengths, longer, grown, explain)
            seen[method] = grown

    monkeypatch.setattr(proposing, "Controller", Watched)
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    for method in ADAPTIVE:
        engine.generate("the cat sat", DecodeConfig(method, 4, cost_aware=True))
    assert {method for method, grown in seen.items() if grown} == {"ddtree", "d2sd_tree", "eagle3"}


@pytest.mark.parametrize("method", ["d2sd", "dflash_twice", "draft_model"])
@pytest.mark.parametrize("mode", ["eager", "padded"])
def test_every_stage_is_measured(engine, method, mode):
    passes = Passes(mode, "dense", MEASURED_SLOTS, torch.device("cpu"))
    table = measure_costs(engine.models, METHODS[method], 16, passes)
    assert table.plain() > 0
    for stage in STAGES:
        used = stage != "second_draft" or METHODS[method].second_drafter != "none"
        assert (table.curve(stage).seconds(16) > 0) == used
        assert table.curve(stage).seconds(64) >= table.curve(stage).seconds(4)


@pytest.mark.parametrize("mode", ["eager", "padded"])
def test_costs_are_measured_of_drafts_larger_than_any_tree(engine, mode, monkeypatch):
    monkeypatch.setattr(measured_costs, "ROUNDS", 2)
    monkeypatch.setattr(measured_costs, "WARM_SECONDS", 0)
    fresh = Engine(engine.models, mode)
    config = DecodeConfig("eagle3", 4, draft_depth=MAX_DEPTH, draft_top_k=MAX_TOP_K, cost_aware=True)
    assert fresh.costs(fresh.resolve(config)).first_draft.seconds(MAX_DEPTH + 2) > 0


def test_costs_are_measured_once_while_nothing_else_computes(engine, monkeypatch):
    fresh, measured = Engine(engine.models), []

    def measure(*_):
        assert fresh.lock.locked()
        measured.append(time.sleep(0.05))
        return CHEAP_DRAFTS

    monkeypatch.setattr("d2sd.engine.measure_costs", measure)
    config = DecodeConfig("dflash", 4, cost_aware=True)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: fresh.generate("the cat", config), range(2))
    assert one.token_ids == other.token_ids
    assert len(measured) == 1


SIZES = len(measured_costs.SIZES)


@pytest.mark.parametrize(("mode", "seconds", "met"), [("eager", 60, 64), ("eager", 0, SIZES), ("padded", 60, SIZES)])
def test_numbers_of_rows_are_met_before_stages_are_timed(engine, mode, seconds, met, monkeypatch):
    """As far as the time for it goes, and only where passes have the rows that a step asks for."""
    rows, logits = set(), Verifier.logits
    monkeypatch.setattr(measured_costs, "WARM_SECONDS", seconds)
    monkeypatch.setattr(Verifier, "logits", lambda self, tree: rows.add(len(tree)) or logits(self, tree))
    passes = Passes(mode, "dense", MEASURED_SLOTS, engine.models.target.device)
    measure_costs(engine.models, METHODS["d2sd"], 8, passes)
    assert len(rows) == met


def test_a_text_starts_from_what_earlier_ones_taught_and_a_replay_teaches_nothing(engine, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    engine = Engine(engine.models)
    started = []

    class Watched(Controller):
        def __init__(self, known, *rest):
            super().__init__(known, *rest)
            started.append((known, self._yield.tokens))

    monkeypatch.setattr(proposing, "Controller", Watched)
    config = engine.resolve(DecodeConfig("d2sd", 40, cost_aware=True))
    trace = engine.generate("the cat sat", config)
    taught = started[0][0].usual.tokens
    assert taught != started[0][1]
    list(Replay(engine, trace).run([config]))
    assert started[1][1] == started[0][1]
    engine.generate("a dog", config)
    assert started[2][0] is started[0][0]
    assert started[2][1] == taught


def test_a_round_in_which_the_machine_was_slow_does_not_change_how_costs_compare():
    usual = {("verify", 1): [2.0, 2.2, 1.8], ("verify", 8): [4.0]}
    slow = {key: [3 * t for t in times] for key, times in usual.items()}
    one, eight = measured_costs._typical([usual, slow]).values()
    assert eight == pytest.approx(2 * one)


def test_a_pass_is_timed_after_what_it_follows_in_a_run_and_in_a_new_order_every_round(monkeypatch):
    calls = []
    keys = [("verify", n) for n in (1, 8, 16)] + [("first_draft", g) for g in (4, 8)] + [("second_draft", 16)]
    monkeypatch.setattr(measured_costs, "ROUNDS", 4)
    rounds = measured_costs._timed({key: (lambda key=key: calls.append(key)) for key in keys})
    assert len(rounds) == 3
    assert all(len(times[key]) >= 1 for times in rounds for key in keys)
    assert all(len(times["verify", 1]) == measured_costs.OFTEN for times in rounds)
    for (before, _), (stage, rows) in pairwise([("verify", 1), *calls]):
        if (stage, rows) == ("verify", 16) or stage == "second_draft":
            assert before == "first_draft"
        elif stage == "first_draft":
            assert before != "first_draft"
    orders = [c for c in calls if c in (("verify", 1), ("verify", 16), ("second_draft", 16))]
    size = len(orders) // 4
    assert len({tuple(orders[at : at + size]) for at in range(0, len(orders), size)}) > 1


def test_measuring_ends_in_time_where_passes_are_slow(monkeypatch):
    monkeypatch.setattr(measured_costs, "SECONDS", 0.0)
    works = {key: (lambda: None) for key in [("verify", 1), ("verify", 8), ("first_draft", 4)]}
    assert len(measured_costs._timed(works)) == 1


def test_what_disturbs_a_few_passes_does_not_count():
    others = {("verify", 16): [8.0] * 3}
    clean = [{("verify", 8): [4.0 + 0.01 * n], **others} for n in range(10)]
    disturbed = [*clean[:6], *({("verify", 8): [40.0], **others} for _ in range(4))]
    assert measured_costs._typical(disturbed)["verify", 8] == pytest.approx(4.0, rel=0.02)
