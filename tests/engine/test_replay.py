"""Replays: a server's log by the local drafter, and a run with each K and γ."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from d2sd import METHODS, DecodeConfig, Engine, InputError
from d2sd.__main__ import main
from d2sd.doctor.changes import Variant
from d2sd.folders.model_sets import BUNDLED
from d2sd.logs import Figures, Texts
from d2sd.logs.steps import Output, Reply, Request
from d2sd.nets.models import Models
from d2sd.replay.grid import replay_grid, settings_grid
from d2sd.replay.recorded import Replay
from d2sd.trace.events import Baseline
from d2sd.trace.trace import write_traces

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He"]


def written(bundled, method, **models):
    """Logs of a server with these drafters: counts per step, and token ids."""
    engine, logs = Engine(Models(bundled.models.target, **models)), []
    settings = {"draft_top_k": 1} if method == "eagle3" else {}
    for prompt in PROMPTS:
        run = engine.generate(prompt, DecodeConfig(method, 32, inspect=False, **settings))
        accepted = tuple(len(s.accepted) for s in run.steps)
        drafted = tuple(max(n.depth for n in s.nodes) for s in run.steps)
        figures = Figures(engine="vllm", steps=len(accepted), accepted=sum(accepted), drafted=sum(drafted))
        reply = Reply(prompt_token_ids=list(run.prefill.prompt_token_ids), choices=[Output(token_ids=run.token_ids)])
        logs.append(Request(figures=figures, accepted=accepted, drafted=drafted, reply=reply).result(Texts()))
    return logs


@pytest.fixture
def compared(tmp_path, capsys):
    """Runs ``d2sd whatif`` on traces and returns its result."""

    def run(traces, *options):
        write_traces(tmp_path / "log.jsonl", traces)
        assert main(["whatif", str(tmp_path / "log.jsonl"), *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(("method", "name"), [("dflash", "first"), ("eagle3", "eagle3")])
def test_replay_of_log_with_same_drafter_is_equal(bundled, compared, method, name):
    traces = written(bundled, method, **{name: getattr(bundled.models, name)})
    result = compared(traces, "--drafter", str(BUNDLED / "tiny" / method))
    server, local = result["rows"]
    assert server["name"] == "recorded: vllm"
    assert (server["whole"]["alpha"], server["reached"]) == (local["whole"]["alpha"], local["reached"])
    assert local["whole"]["difference"]["value"] == 0
    assert "Every step of the server wrote as many tokens as with the local drafter." in result["reading"]


def test_replay_of_log_names_first_step_that_differs(bundled, compared):
    first = bundled.models.first
    worse = Variant("", "", replace(first.form, mask_token=77)).apply(first)
    traces = written(bundled, "dflash", first=worse)
    result = compared(traces)
    server, local = result["rows"]
    assert server["whole"]["alpha"]["value"] < local["whole"]["alpha"]["value"]
    (said,) = [sentence for sentence in result["reading"] if "first step that differs" in sentence]
    step = int(said.split("is step ")[1].split()[0]) - 1
    assert "of run 1" in said
    run = traces[0]
    ids = run.token_ids[: 1 + sum(len(s.committed) for s in run.steps[:step])]
    assert f"after {len(ids)} tokens" in said
    again = bundled.generate([*run.prefill.prompt_token_ids, *ids[:-1]], DecodeConfig("dflash", 16, inspect=False))
    assert f"local drafter, {len(again.steps[0].committed)} would be written" in said
    assert f"the server wrote {len(run.steps[step].committed)}, " in said


def test_replay_refuses_unusable_logs(bundled):
    (run, _) = written(bundled, "dflash", first=bundled.models.first)
    other = (7,) * len(run.prefill.prompt_token_ids)
    for said, header, prompt in (
        ("return_token_ids", {"missing": ["tokens"]}, run.prefill.prompt_token_ids),
        ("needs a run at temperature 0", {"config": {"temperature": 1.0}}, run.prefill.prompt_token_ids),
        ("its token ids or its length do not fit", {}, (99_999, *other[1:])),
        ("was not written greedily", {}, other),
    ):
        prefill = structs.replace(run.prefill, prompt_token_ids=prompt)
        with pytest.raises(InputError, match=said):
            Replay(bundled, replace(run, header={**run.header, **header}, prefill=prefill))


def test_replay_allows_few_tokens_that_a_server_rounded_otherwise(bundled, monkeypatch, compared):
    """A log may contain up to a tenth of other tokens, and they are counted. A recorded run may not."""
    traces = written(bundled, "dflash", first=bundled.models.first)
    real, target = bundled.models.target.logits, bundled.models.target

    def rounded(hidden):
        logits = real(hidden)
        if len(logits) == 32:
            logits[3, (traces[0].token_ids[3] + 1) % logits.shape[-1]] = logits[3].max() + 1
        return logits

    monkeypatch.setattr(target, "logits", rounded)
    assert Replay(bundled, traces[0]).others == 1
    with pytest.raises(InputError, match="token 4 of its output"):
        Replay(bundled, replace(traces[0], header={**traces[0].header, "method": "dflash"}))
    monkeypatch.setattr("d2sd.cli.whatif.load_engine", lambda *_: bundled)
    assert any("2 of 64 tokens differ" in sentence for sentence in compared(traces)["reading"])


@pytest.mark.parametrize("method", ["autoregressive", "draft_model", "eagle3", "dflash", "d2sd", "d2sd_tree"])
def test_grid_contains_the_run_itself(bundled, method):
    config = bundled.resolve(DecodeConfig(method, 16, block_size=7, num_branches=3, node_budget=9))
    if "block_size" not in METHODS[method].settings:
        with pytest.raises(InputError, match="do not determine"):
            settings_grid(bundled, config)
        return
    trace = bundled.generate("Once upon a time", config)
    *_, last = replay_grid(bundled, trace)
    assert last.done == last.total == len(last.line["points"])
    (point,) = (point for point in last.line["points"] if point[:2] == last.line["own"])
    assert point[2] == [len(step.committed) for step in trace.steps]
    assert [work[2] for work in point[3]] == [len(step.nodes) for step in trace.steps]
    assert {k for k, *_ in last.line["points"]} == ({0, 1, 2, 3, 4, 6, 8} if config.num_branches and point[0] else {0})


def test_grid_keeps_a_longer_second_block(bundled):
    configs = settings_grid(bundled, bundled.resolve(DecodeConfig("d2sd", block_size=6, second_block_size=8)))
    assert {config.second_block_size for (k, _), config in configs.items() if k} == {8}
    assert all(gamma <= 8 for k, gamma in configs if k)


def test_grid_has_times_only_for_undisturbed_runs_and_refuses_other_weights(bundled):
    trace = bundled.generate("Once upon a time", DecodeConfig("d2sd", 8))
    baselines = (None, Baseline(100.0, 200.0), Baseline(100.0, 200.0, True))
    unmeasured, timed, disturbed = ([*replay_grid(bundled, trace, b)][-1].line["here"] for b in baselines)
    assert timed["milliseconds"] == pytest.approx(10)
    assert unmeasured is disturbed is None
    parts = {**trace.header["parts"], "first_drafter": {"weights": "0"}}
    with pytest.raises(InputError, match="another first drafter"):
        list(replay_grid(bundled, replace(trace, header={**trace.header, "parts": parts})))
