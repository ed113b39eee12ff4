"""A server's log replayed by the local drafter: equal for the same drafter, fewer accepted tokens for a worse one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from d2sd import DecodeConfig, Engine, InputError
from d2sd.__main__ import main
from d2sd.doctor.changes import Variant
from d2sd.folders.model_sets import BUNDLED
from d2sd.logs import Figures, Texts
from d2sd.logs.steps import Output, Reply, Request
from d2sd.nets.models import Models
from d2sd.replay.recorded import Replay
from d2sd.trace.trace import write_traces

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He"]


def written(bundled, method, **models):
    """Logs of a server with these drafters: counts per step, and token ids."""
    engine = Engine(Models(bundled.models.target, **models))
    settings = {"draft_top_k": 1} if method == "eagle3" else {}
    return [logged(engine.generate(p, DecodeConfig(method, 32, inspect=False, **settings))) for p in PROMPTS]


def logged(run):
    accepted = tuple(len(s.accepted) for s in run.steps)
    drafted = tuple(max(n.depth for n in s.nodes) for s in run.steps)
    figures = Figures(engine="vllm", steps=len(accepted), accepted=sum(accepted), drafted=sum(drafted))
    return Request(
        figures=figures, accepted=accepted, drafted=drafted,
        reply=Reply(prompt_token_ids=list(run.prefill.prompt_token_ids), choices=[Output(token_ids=run.token_ids)]),
    ).result(Texts())  # fmt: skip


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
    found = compared(traces, "--drafter", str(BUNDLED / "tiny" / method))
    server, local = found["rows"]
    assert server["name"] == "recorded: vllm"
    assert (server["whole"]["alpha"], server["reached"]) == (local["whole"]["alpha"], local["reached"])
    assert local["whole"]["difference"]["value"] == 0
    assert "Every step of the server committed as many tokens as with the local drafter." in found["reading"]


def test_replay_of_log_drafts_as_many_tokens_as_the_server(bundled, compared):
    config = DecodeConfig("dflash", 32, block_size=4, inspect=False)
    traces = [logged(Engine(bundled.models).generate(prompt, config)) for prompt in PROMPTS]
    server, local = compared(traces)["rows"]
    assert server["whole"]["alpha"] == local["whole"]["alpha"]
    assert local["nodes_per_step"] <= 4


def test_replay_of_log_names_first_step_that_differs(bundled, compared):
    first = bundled.models.first
    worse = Variant("", "", replace(first.form, mask_token=77)).apply(first)
    traces = written(bundled, "dflash", first=worse)
    found = compared(traces)
    server, local = found["rows"]
    assert server["whole"]["alpha"]["value"] < local["whole"]["alpha"]["value"]
    (said,) = [sentence for sentence in found["reading"] if "first step that differs" in sentence]
    step = int(said.split("is step ")[1].split()[0]) - 1
    assert "of run 1" in said
    run = traces[0]
    ids = run.token_ids[: 1 + sum(len(s.committed) for s in run.steps[:step])]
    assert f"after {len(ids)} tokens" in said
    again = bundled.generate([*run.prefill.prompt_token_ids, *ids[:-1]], DecodeConfig("dflash", 16, inspect=False))
    assert f"local drafter, {len(again.steps[0].committed)} would be committed" in said
    assert f"the server committed {len(run.steps[step].committed)}, " in said


def changed(trace, **header):
    return replace(trace, header={**trace.header, **header})


def test_replay_refuses_unusable_logs(bundled):
    (run, _) = written(bundled, "dflash", first=bundled.models.first)
    other = (7,) * len(run.prefill.prompt_token_ids)
    refused = {
        "return_token_ids": changed(run, missing=["tokens"]),
        "needs a run at temperature 0": changed(run, config={"temperature": 1.0}),
        "its token ids or its length do not fit": replace(
            run, prefill=structs.replace(run.prefill, prompt_token_ids=(99_999, *other[1:]))
        ),
        "was not written greedily": replace(run, prefill=structs.replace(run.prefill, prompt_token_ids=other)),
    }
    for said, trace in refused.items():
        with pytest.raises(InputError, match=said):
            Replay(bundled, trace)


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
        Replay(bundled, changed(traces[0], method="dflash"))
    monkeypatch.setattr("d2sd.cli.whatif.load_engine", lambda _: bundled)
    assert any("2 of 64 tokens differ" in sentence for sentence in compared(traces)["reading"])
