"""Benchmark entries on real tiny models: transformers as a baseline on the same weights, and the lossless check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from d2sd import DecodeConfig, Engine, InputError, load
from d2sd.bench.baselines import make_baselines, stock_twin
from d2sd.bench.lossless import (
    run_check,
    tally,
    teacher_forced,
)
from d2sd.bench.runner import make_entry
from d2sd.bench.settings import BASELINES, DEFAULT_MARGIN, make_setting, runnable
from d2sd.nets.models import Models
from d2sd.nets.target import ATTENTION

BASE = DecodeConfig("autoregressive", 24, inspect=False)


@pytest.fixture(scope="module")
def twin(engine):
    return stock_twin(engine.models.target)


@pytest.fixture(scope="module")
def prompts(engine):
    return [engine.encode(text, BASE) for text in ("the cat", "a dog ran to")]


def plain(engine, base=BASE):
    return make_entry(engine, make_setting(engine.resolve(base), {}))


def test_stock_twin_shares_weights_without_changing_target(engine, twin):
    ours, theirs = engine.models.target.model.state_dict(), twin.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[k].data_ptr() == theirs[k].data_ptr() for k in ours)
    assert twin.config._attn_implementation == "sdpa"
    assert engine.models.target.model.config._attn_implementation == ATTENTION


def test_baselines_write_the_text_of_plain_decoding(engine, twin, prompts):
    baselines, left_out = make_baselines(engine, twin, list(BASELINES), BASE.max_new_tokens)
    assert [p.label for p in baselines] == [f"transformers {name}" for name in BASELINES]
    assert not left_out
    for ids in prompts:
        expected = plain(engine).run(ids)
        for baseline in baselines:
            run = baseline.run(ids)
            assert run.token_ids == expected.token_ids
            assert run.seconds > 0
            assert run.steps <= run.cycle_tokens < len(run.token_ids)  # tokens committed by prefill are not counted
            if baseline.label == "transformers generate":
                assert run.steps == run.cycle_tokens


def test_transformers_dflash_baseline_takes_as_many_steps():
    engine = load("tiny")
    (baseline,), _ = make_baselines(engine, stock_twin(engine.models.target), ["dflash"], 32)
    config = engine.resolve(DecodeConfig("dflash", 32))
    ours = theirs = 0
    for text in ("Once upon a time, a small dog found a key.", "One day, a cat"):
        ids = engine.encode(text, config)
        ours += engine.generate(ids, config).totals.steps
        theirs += baseline.run(ids).steps
    assert theirs == ours  # in both, prefill commits one token


def test_baselines_without_required_models_are_left_out(engine, twin):
    bare = Engine(Models(engine.models.target, name="bare"))
    baselines, left_out = make_baselines(bare, twin, list(BASELINES), 8)
    assert [p.label for p in baselines] == ["transformers generate"]
    assert left_out == {
        "transformers assistant": "bare has no draft model; give one with --draft-model",
        "transformers assistant_chain": "bare has no draft model; give one with --draft-model",
        "transformers dflash": "there is no first drafter",
    }
    with pytest.raises(InputError, match="unknown baseline 'magic'"):
        make_baselines(bare, twin, ["magic"], 8)


def test_runnable_refuses_or_leaves_out_impossible_settings(engine):
    settings = [make_setting(replace(BASE, method="d2sd"), {"num_branches": k}) for k in (4, 40)]
    possible, left_out = runnable(engine, settings, lenient=True)
    assert [s.label for s in possible] == ["d2sd:K=4"]
    assert possible[0].config.block_size == 16
    assert "more than the 15 prefixes" in left_out["d2sd:K=40"]
    for wanted, lenient in ((settings, False), (settings[1:], True)):
        with pytest.raises(InputError, match="more than the 15 prefixes"):
            runnable(engine, wanted, lenient)


def test_lossless_check_locates_wrong_token(engine, twin, prompts):
    honest = plain(engine)

    def spoil(ids):
        run = honest.run(ids)
        worst = teacher_forced(twin, ids, run.token_ids)[5].argmin()
        return replace(run, token_ids=(*run.token_ids[:5], int(worst), *run.token_ids[6:]))

    field = [honest, replace(honest, label="spoilt", run=spoil)]
    for exact in (True, False):
        results = [r for batch in run_check(honest, field, prompts, twin, exact) for r in batch]
        good, bad = tally(results, ["autoregressive", "spoilt"], None if exact else DEFAULT_MARGIN)
        assert good["passed"]
        assert good["identical"] == 2
        assert not bad["passed"]
        assert bad["identical"] == 0
        assert (bad["first_divergence"]["prompt"], bad["first_divergence"]["position"]) == (0, 5)
        assert (bad["largest_shortfall"] is None) == exact
