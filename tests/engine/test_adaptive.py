"""Cost-aware runs: decisions never change the text, and stage costs are measured once and stored."""

from __future__ import annotations

import math
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.config import MAX_DEPTH, MAX_TOP_K
from d2sd.costs.machines import STAGES
from d2sd.decoding import drafters as drafting
from d2sd.decoding import stage_times as measure
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.cost_aware import Controller
from d2sd.decoding.verifier import Verifier
from d2sd.nets.models import Models
from d2sd.replay.recorded import Replay
from tests.nets import CHEAP_DRAFTS, make_drafter, make_eagle3, make_target

ADAPTIVE = [m.id for m in METHODS.values() if "cost_aware" in m.settings]


def scripted_controller(draft, redrafts, nodes=None):
    """Controller that takes option ``draft(count)``, re-drafts ``redrafts(prefixes)`` and verifies ``nodes(count)`` nodes."""

    class Scripted(Controller):
        def begin(self):
            super().begin()
            return self.take(draft(len(self.options)))

        def worthwhile(self, draft, prefixes):
            super().worthwhile(draft, prefixes)
            return self.redraft(redrafts(prefixes)) if prefixes else prefixes

        def prune(self, tree):
            count = nodes(min(self.config.node_budget or len(tree), len(tree) - 1)) if nodes else len(tree)
            self.rate = 0.0 if count else math.inf  # a node's time is then worth nothing or too much
            return super().prune(tree).keep(count)

    return Scripted


def random_controller(seed):
    """Controller with random decisions. It takes every draft option once before it repeats any, for short runs."""
    rng, left = random.Random(seed), []

    def draft(options):
        if not left:
            left.extend(rng.sample(range(options), options))
        return left.pop()

    return scripted_controller(
        draft,
        lambda prefixes: tuple(rng.sample(prefixes, rng.randint(0, len(prefixes)))),
        lambda count: rng.randint(0, count),
    )


@pytest.mark.parametrize("method", ADAPTIVE)
def test_cost_aware_text_equals_plain_for_random_decisions(engine, method, monkeypatch):
    """Each target runs one of the two block settings; which one alternates by method."""
    plain = engine.generate("the cat sat", DecodeConfig("autoregressive", 40, inspect=False))
    seed, seen = (engine.models.target.config.model_type == "llama") + ADAPTIVE.index(method), set()
    settings = ({}, {"block_size": 6, "second_block_size": 9, "num_branches": 3})[seed % 2]
    monkeypatch.setattr(drafting, "Controller", random_controller(seed))
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


@pytest.mark.parametrize("method", ["dflash", "d2sd"])
def test_block_drafter_reads_skipped_tokens_before_drafting(bundled, method, monkeypatch):
    """A drafter that skipped steps drafts the same tokens as a drafter that reads every token immediately."""
    steps, read, extend = [], Counter(), BlockDrafter.extend

    def counted(self, *arguments):
        read[self.name, len(steps)] += 1
        extend(self, *arguments)

    def draft(options):
        steps.append(len(steps) % 5 == 4)
        return options - 1 if steps[-1] or method == "d2sd" else 0

    def drafts(trace):
        firsts = [(s.anchor_position, s.first_draft) for s in trace.steps if s.first_draft and method == "dflash"]
        again = [(s.anchor_position, draft) for s in trace.steps for draft in s.branches]
        return {(at, draft.prefix): draft.ids for at, draft in firsts + again}

    late_controller = scripted_controller(draft, lambda prefixes: tuple(prefixes) if steps[-1] else ())
    monkeypatch.setattr(drafting, "Controller", late_controller)
    monkeypatch.setattr(BlockDrafter, "extend", counted)
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    config = DecodeConfig(method, 80, inspect=False)
    late = drafts(bundled.generate("Once upon a time", replace(config, cost_aware=True, node_budget=3)))
    monkeypatch.undo()
    # with a budget of one node, a step begins at every position or every other one
    at_once = drafts(bundled.generate("Once upon a time", replace(config, node_budget=1)))
    compared = [(ids, at_once[key]) for key, ids in late.items() if key in at_once]
    assert len(compared) > 3
    assert all(one == other for one, other in compared)
    # it reads only in every fifth step: first the missed tokens, then the tokens that the step committed
    name, before = "first" if method == "dflash" else "second", len(steps)  # the last step ends the text
    assert before > 12
    reads = {at: count for (who, at), count in read.items() if who == name and at < before}
    assert reads == {0: 1, **dict.fromkeys(range(5, before, 5), 2)}
    if method == "d2sd":  # the first drafter drafts and reads in every step
        assert all(read["first", at] == 1 for at in range(before))


@pytest.fixture(scope="module")
def untaught(tokenizer):
    """Small untrained models of every kind; stages are only timed, so no draft needs to be accepted."""
    target = make_target(tokenizer, layers=2)
    drafters = (make_drafter(target, layers=1, seed=seed) for seed in (1, 2))
    return Models(target, *drafters, make_target(tokenizer, layers=2), eagle3=make_eagle3(target))


@pytest.mark.parametrize(
    ("method", "mode", "slow", "count"),
    [
        *((m, "eager", math.inf, 64) for m in ("d2sd", "dflash_twice", "draft_model")),
        *((m, "padded", math.inf, len(measure.SIZES)) for m in ("d2sd", "eagle3")),
        ("d2sd", "eager", 0.0, 1 + len(measure.CORNERS)),
    ],
)
def test_measure_costs_covers_stages_and_expected_row_counts(
    untaught, method, mode, slow, count, monkeypatch, tmp_path
):
    """Fast eager passes meet all row counts, padded passes ``SIZES`` and slow passes ``CORNERS``."""
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    fresh, met, logits = Engine(untaught, mode), set(), Verifier.logits
    monkeypatch.setattr(Verifier, "logits", lambda self, tree: met.add(len(tree)) or logits(self, tree))
    monkeypatch.setattr(measure, "ROUNDS", 1)
    monkeypatch.setattr(measure, "SLOW", slow)
    size = {"draft_depth": MAX_DEPTH, "draft_top_k": MAX_TOP_K} if method == "eagle3" else {"block_size": 16}
    table = fresh.costs(fresh.resolve(DecodeConfig(method, 4, cost_aware=True, **size)))
    assert table.plain() > 0
    for stage in STAGES:
        used = stage != "second_draft" or METHODS[method].second_drafter != "none"
        assert (getattr(table, stage).seconds(16) > 0) == used
        assert getattr(table, stage).seconds(64) >= getattr(table, stage).seconds(4)
    assert len(met) == count


def measuring(monkeypatch, home, steady=True):
    """Replaces the measurement and stores costs in ``home``; returns a list with an entry per measurement."""
    measured = []

    def measure(*_):
        measured.append(1)
        return CHEAP_DRAFTS, steady

    monkeypatch.setattr("d2sd.engine.measure_costs", measure)
    monkeypatch.setenv("D2SD_HOME", str(home))
    return measured


def test_costs_are_measured_once_under_engine_lock(engine, monkeypatch, tmp_path):
    fresh, measured = Engine(engine.models), measuring(monkeypatch, tmp_path)
    held = []
    monkeypatch.setattr("d2sd.engine.Verifier", lambda *a: held.append(fresh.lock.locked()) or Verifier(*a))
    config = DecodeConfig("dflash", 4, cost_aware=True)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: fresh.generate("the cat", config), range(2))
    assert one.token_ids == other.token_ids
    assert len(measured) == 1
    assert held == [True]


def test_stored_costs_depend_on_block_size_threads_weights_and_passes(engine, monkeypatch, tmp_path):
    measured = measuring(monkeypatch, tmp_path)
    config = engine.resolve(DecodeConfig("d2sd", 4, cost_aware=True))
    found = [Engine(engine.models).costs(c) for c in (config, replace(config, num_branches=2))]
    assert (len(measured), found) == (1, [CHEAP_DRAFTS] * 2)
    Engine(engine.models).costs(replace(config, block_size=6))
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    Engine(engine.models).costs(config)
    other = Engine(engine.models)
    other.parts["first_drafter"]["weights"] = "others"
    other.costs(config)
    monkeypatch.setattr("d2sd.costs.kept.PASSES", 0)  # version of the passes; other versions take other times
    Engine(engine.models).costs(config)
    assert len(measured) == 5


def test_unsteady_costs_are_not_stored(engine, monkeypatch, tmp_path):
    measured = measuring(monkeypatch, tmp_path, steady=False)
    config = engine.resolve(DecodeConfig("d2sd", 4, cost_aware=True))
    for fresh in Engine(engine.models), Engine(engine.models):
        assert fresh.costs(config) is fresh.costs(config)
    assert len(measured) == 2
    assert not list(tmp_path.rglob("costs.json"))


def test_experience_grows_with_generations_but_not_replays(engine, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    engine, started = Engine(engine.models), []

    class Watched(Controller):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append((self.experience, self.experience.drafts.chances(4)))

    monkeypatch.setattr(drafting, "Controller", Watched)
    config = engine.resolve(DecodeConfig("d2sd", 40, cost_aware=True))
    trace = engine.generate("the cat sat", config)
    taught = started[0][0].drafts.chances(4)
    Replay(engine, trace).run(config)
    engine.generate("a dog", config)
    assert started[1][1] == started[0][1] != taught
    assert started[2][0] is started[0][0]
    assert started[2][1] == taught
