"""Replays of a recorded run with other settings equal real runs with these settings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from d2sd import METHODS, DecodeConfig, InputError, load, load_trace
from d2sd.__main__ import main
from d2sd.costs.machines import Curve, StageCosts
from d2sd.folders.model_sets import BUNDLED
from d2sd.replay.outcomes import recorded_config, recorded_outcome
from d2sd.replay.questions import redraft
from d2sd.replay.recorded import Replay
from d2sd.replay.selection import replay_selections, selections_report

TINY = BUNDLED / "tiny"
SETTINGS = [{}, {"num_branches": 1, "block_size": 7}, {"block_size": 6, "second_block_size": 12}, {"node_budget": 12}]


def alpha(row):
    return row["whole"]["alpha"]["value"]


def seconds(outcome, machine):
    return machine.plain_steps(outcome.config.method, outcome.works) * machine.plain()


@pytest.fixture(scope="module")
def recorded(engine):
    return engine.generate("the cat sat", DecodeConfig("d2sd", 24))


@pytest.mark.parametrize("method", METHODS)
def test_replay_equals_real_runs(engine, recorded, method):
    """Each target runs half of the settings; which half alternates by method."""
    turn = (engine.models.target.config.model_type == "llama") + list(METHODS).index(method)
    configs = [DecodeConfig(method, 24, **settings) for settings in SETTINGS[turn % 2 :: 2]]
    replay = Replay(engine, recorded)
    for config in configs:
        outcome, real = replay.run(engine.resolve(config)), engine.generate("the cat sat", config)
        assert outcome == replace(recorded_outcome(real), config=outcome.config)


def whatif(capsys, files, *options):
    """Returns the rows of ``whatif --json``, and what it wrote to stderr."""
    assert main(["whatif", *map(str, files), *map(str, options), "--json"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out)["rows"], printed.err


def names(rows):
    return [row["name"] for row in rows]


def test_recorded_texts_are_replayed_with_several_drafters_and_settings(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{p}", "domain": "{p[0]}"}}\n' for p in ("Once upon", "Tom has 2 pens")))
    made = ["calibrate", "--method", "dflash", "--max-new-tokens", "16"]
    assert main([*made, "--prompts", str(prompts), "--traces-out", str(tmp_path / "runs")]) == 0
    report = capsys.readouterr().out
    traces = sorted((tmp_path / "runs").glob("*.jsonl.gz"))
    runs = [load_trace(path) for path in traces]
    assert [run.header["domain"] for run in runs] == ["O", "T"]
    (first, last), _ = whatif(capsys, traces, "--drafter", TINY / "eagle3", TINY / "dflash")
    assert names([first, last]) == ["tiny/eagle3", "tiny/dflash"]
    assert f"α {alpha(last):.2f}" in report
    assert list(first["groups"]) == ["O", "T"]
    assert first["whole"]["difference"]["value"] == pytest.approx(alpha(first) - alpha(last))
    assert last["whole"]["difference"] is None
    settings = ("--methods", "dflash", "--sweep", "gamma=2,4")
    both, said = whatif(capsys, traces, *settings)
    assert "another target" not in said
    assert names(both) == ["recorded: dflash", "dflash:gamma=2", "dflash:gamma=4"]
    assert both[0]["whole"]["steps"] == sum(len(run.steps) for run in runs)
    target = runs[0].header["parts"]["target"] | {"weights": "0"}
    replace(runs[0], header=runs[0].header | {"parts": {"target": target}}).save(traces[0])
    _, said = whatif(capsys, traces, *settings)
    assert "1 of 2 traces were recorded with another target than the loaded one, tiny" in said


def test_other_k_keeps_recorded_limit_on_nodes(tmp_path, capsys):
    trace = load("tiny").generate("Once upon a time", DecodeConfig("d2sd", 24, node_budget=5))
    trace.save(tmp_path / "run.jsonl")
    rows, _ = whatif(capsys, [tmp_path / "run.jsonl"], "--sweep", "K=1,8")
    assert all(row["nodes_per_step"] <= 6 for row in rows)
    assert alpha(rows[0]) == trace.totals.mean_acceptance_length
    assert main(["whatif", str(tmp_path / "run.jsonl"), "--sweep", "K=1,8"]) == 0
    printed = capsys.readouterr().out
    assert "All settings without their own B verify at most 5 nodes a step, as recorded." in printed
    for row in rows[1:]:
        assert row["whole"]["difference"]["value"] == pytest.approx(alpha(row) - alpha(rows[0]))
        assert f"{alpha(row):.2f}" in printed


def test_named_drafter_replaces_recorded_method(tmp_path, capsys):
    """On d2sd runs, a named drafter replaces the recorded method; labels name the second drafter if it takes part."""
    run, dflash, eagle3 = tmp_path / "run.jsonl", TINY / "dflash", TINY / "eagle3"
    load("tiny").generate("Once upon a time", DecodeConfig("d2sd", 16)).save(run)
    alone = [whatif(capsys, [run], "--drafter", drafter)[0][1] for drafter in (dflash, eagle3)]
    assert names(alone) == ["dflash", "eagle3"]
    rows, _ = whatif(capsys, [run], "--drafter", dflash, "--methods", "d2sd,dflash")
    assert names(rows) == ["recorded: d2sd", "d2sd, second drafter tiny/vp", "dflash"]
    rows, _ = whatif(capsys, [run], "--drafter", dflash, eagle3)
    assert [row["whole"]["alpha"] for row in rows] == [row["whole"]["alpha"] for row in alone]
    rows, _ = whatif(capsys, [run], "--drafter", dflash, eagle3, "--sweep", "gamma=2,4")
    assert names(rows) == ["tiny/dflash, dflash:gamma=2", "tiny/dflash, dflash:gamma=4", "tiny/eagle3"]


def test_replay_refuses_sampled_runs_and_runs_of_another_model(engine, recorded):
    with pytest.raises(InputError, match="temperature 0"):
        Replay(engine, engine.generate("the cat", DecodeConfig("d2sd", 8, temperature=0.7)))
    other = engine.generate("a dog", DecodeConfig("d2sd", 8))
    with pytest.raises(InputError, match="was not written greedily by the model"):
        Replay(engine, replace(recorded, steps=other.steps, finished=other.finished))


def test_replay_allows_near_ties_in_mixed_dtype(engine, monkeypatch):
    run = engine.generate("the cat", DecodeConfig("d2sd", 8))
    real = engine.models.target.logits

    def rounded(hidden):
        logits = real(hidden)
        logits[3, (run.token_ids[3] + 1) % logits.shape[-1]] = logits[3].max() + 0.01
        return logits

    monkeypatch.setattr(engine.models.target, "logits", rounded)
    with pytest.raises(InputError, match="token 4 of its output"):
        Replay(engine, run)
    monkeypatch.setattr(type(engine.models.target), "numbers", "mixed")
    Replay(engine, run)


def test_replay_times_come_from_given_machine(engine, recorded):
    table = StageCosts(Curve(((1, 1e-3),)), Curve(((1, 1e-3),)), Curve(((1, 5e-3), (64, 6e-3))), 1e-3)
    fixed, adaptive = (engine.resolve(DecodeConfig("d2sd", cost_aware=by_cost)) for by_cost in (False, True))
    outcome = Replay(engine, recorded).run(fixed, table)
    both_drafts_and_rest = 3e-3
    assert seconds(outcome, table) == pytest.approx(
        sum(table.verify.seconds(work.nodes) + both_drafts_and_rest for work in outcome.works)
    )
    one, again = (Replay(engine, recorded).run(adaptive, table) for _ in range(2))
    assert sum(one.committed) == sum(len(s.committed) for s in recorded.steps)
    assert one == again


def test_replay_times_count_tree_and_third_level(engine):
    """Drafting a tree takes time, and the third level starts after the second."""
    draft, target = 10e-3, 30e-3
    table = StageCosts(Curve(((1, draft),)), Curve(((1, draft),)), Curve(((1, target),)), 0.0)
    recorded = engine.generate("the cat sat", DecodeConfig("autoregressive", 24))
    deep = engine.generate("the cat sat", DecodeConfig("d2sd_three_level", 24))
    passes = [1 + bool(s.branches) + any(b.base for b in s.branches) for s in deep.steps]
    assert 3 in passes
    replay = Replay(engine, recorded)
    tree, three = (replay.run(engine.resolve(DecodeConfig(m, 24)), table) for m in ("eagle3", "d2sd_three_level"))
    assert seconds(tree, table) == pytest.approx(len(tree.works) * (draft + target))
    assert seconds(three, table) == pytest.approx(sum(draft * count + target for count in passes))


def test_replay_at_known_boundary_equals_redraft():
    engine = load()
    trace = engine.generate("One day, a small bear climbed a tall tree and", DecodeConfig("d2sd", 48))
    outcome = Replay(engine, trace).run(engine.resolve(recorded_config(trace)), known_boundary=True)
    assert sum(outcome.committed) == sum(len(step.committed) for step in trace.steps)
    assert all(work.nodes <= 2 * trace.header["config"]["block_size"] for work in outcome.works)
    boundary = trace.steps[0].actual_boundary
    assert boundary
    alone = redraft(engine, trace, 0, boundary)  # the same re-draft, verified by other code
    assert outcome.committed[0] == alone.kept + alone.accepted + 1


def test_selections_report_compares_chosen_random_and_known_prefixes(engine):
    traces = [engine.generate(prompt, DecodeConfig("d2sd", 24)) for prompt in ("the cat sat", "a dog", "he ran", "she")]
    texts = [replay_selections(engine, trace) for trace in traces]
    chosen = [outcome.committed for outcome, _, _ in texts]
    assert chosen == [tuple(len(step.committed) for step in trace.steps) for trace in traces]  # as recorded
    report = selections_report(texts)
    alpha = sum(map(sum, chosen)) / sum(map(len, chosen))
    assert f"| at the 4 likeliest prefixes | {alpha:.2f}" in report
    assert report.count("\n| at 4 random prefixes |") == report.count("\n| once, at the true boundary") == 1
    with pytest.raises(InputError, match="did not select prefixes"):
        replay_selections(engine, engine.generate("the cat sat", DecodeConfig("autoregressive", 8)))
