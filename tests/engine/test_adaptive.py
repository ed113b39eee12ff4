"""Cost-aware runs: decisions never change the text, and stage costs are measured once and stored."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.config import MAX_DEPTH, MAX_TOP_K
from d2sd.costs.machines import STAGES
from d2sd.decoding import drafters as drafting
from d2sd.decoding import stage_times
from d2sd.decoding.cost_aware import Controller
from d2sd.replay.recorded import Replay
from tests.nets import CHEAP_DRAFTS

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
def test_cost_aware_text_equals_plain_for_random_decisions(engines, method, monkeypatch):
    """Targets and block settings alternate by method."""
    seed, seen = ADAPTIVE.index(method), set()
    engine = engines(("qwen3", "llama")[seed % 2])
    plain = engine.generate("the cat sat", DecodeConfig("autoregressive", 40, inspect=False))
    settings = ({}, {"block_size": 6, "second_block_size": 9, "num_branches": 3})[seed // 2 % 2]
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
def test_drafts_after_skipped_steps_equal_drafts_of_every_step(bundled, method, monkeypatch):
    """The second drafter of D²SD, or DFlash's drafter, drafts in every fifth step only, and then reads all missed tokens."""
    steps = []

    def draft(options):
        steps.append(len(steps) % 5 == 4)
        return options - 1 if steps[-1] or method == "d2sd" else 0

    def drafts(trace):
        firsts = [(s.anchor_position, s.first_draft) for s in trace.steps if s.first_draft and method == "dflash"]
        again = [(s.anchor_position, draft) for s in trace.steps for draft in s.branches]
        return {(position, draft.prefix): draft.ids for position, draft in firsts + again}

    config = DecodeConfig(method, 80, inspect=False)
    # with a budget of one node, a step begins at every position or every other one
    usual = drafts(bundled.generate("Once upon a time", replace(config, node_budget=1)))
    late_controller = scripted_controller(draft, lambda prefixes: tuple(prefixes) if steps[-1] else ())
    monkeypatch.setattr(drafting, "Controller", late_controller)
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    late = drafts(bundled.generate("Once upon a time", replace(config, cost_aware=True, node_budget=3)))
    compared = [(ids, usual[key]) for key, ids in late.items() if key in usual]
    assert len(compared) > 3
    assert all(one == other for one, other in compared)


@pytest.mark.parametrize(
    ("method", "mode", "slow"),
    [
        ("d2sd", "eager", 0.0),
        ("draft_model", "eager", math.inf),
        ("d2sd", "padded", math.inf),
        ("eagle3", "padded", math.inf),
    ],
)
def test_measured_costs_cover_the_used_stages(engines, method, mode, slow, monkeypatch, tmp_path):
    """``slow``: seconds of a pass above which few numbers of rows are measured."""
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    monkeypatch.setattr(stage_times, "ROUNDS", 1)
    monkeypatch.setattr(stage_times, "SLOW", slow)
    engine = Engine(engines("qwen3").models, mode)
    size = {"draft_depth": MAX_DEPTH, "draft_top_k": MAX_TOP_K} if method == "eagle3" else {"block_size": 16}
    table = engine.costs(engine.resolve(DecodeConfig(method, 4, cost_aware=True, **size)))
    assert table.plain() > 0
    for stage in STAGES:
        used = stage != "second_draft" or METHODS[method].second_drafter != "none"
        assert (getattr(table, stage).seconds(16) > 0) == used
        assert getattr(table, stage).seconds(64) >= getattr(table, stage).seconds(4)


def measuring(monkeypatch, home, steady=True):
    """Replaces the measurement and stores costs in ``home``; returns a list with an entry per measurement."""
    measured = []

    def measure(*_):
        measured.append(1)
        return CHEAP_DRAFTS, steady

    monkeypatch.setattr("d2sd.engine.measure_costs", measure)
    monkeypatch.setenv("D2SD_HOME", str(home))
    return measured


def test_costs_are_measured_once_by_concurrent_runs(engines, monkeypatch, tmp_path):
    engine, measured = Engine(engines("qwen3").models), measuring(monkeypatch, tmp_path)
    config = DecodeConfig("dflash", 4, cost_aware=True)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: engine.generate("the cat", config), range(2))
    assert one.token_ids == other.token_ids
    assert len(measured) == 1


def test_stored_costs_depend_on_block_size_threads_weights_and_passes(engines, monkeypatch, tmp_path):
    measured, models = measuring(monkeypatch, tmp_path), engines("qwen3").models
    config = engines("qwen3").resolve(DecodeConfig("d2sd", 4, cost_aware=True))
    for same in (config, replace(config, num_branches=2)):
        assert Engine(models).costs(same) == CHEAP_DRAFTS
    assert len(measured) == 1
    Engine(models).costs(replace(config, block_size=6))
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    Engine(models).costs(config)
    other = Engine(models)
    other.parts["first_drafter"]["weights"] = "others"
    other.costs(config)
    monkeypatch.setattr("d2sd.costs.kept.PASSES", 0)  # version of the passes; other versions take other times
    Engine(models).costs(config)
    assert len(measured) == 5
    measured = measuring(monkeypatch, tmp_path / "unsteady", steady=False)  # each engine keeps them to itself
    for engine in (Engine(models), Engine(models)):
        assert engine.costs(config) is engine.costs(config)
    assert len(measured) == 2


def test_experience_grows_with_generations_but_not_replays(engines, monkeypatch):
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    engine, started = Engine(engines("qwen3").models), []

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
