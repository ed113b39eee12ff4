"""A server's log compared with local drafting: equal for the same drafter, fewer accepted tokens for a worse one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from d2sd import DecodeConfig, Engine, InputError
from d2sd.__main__ import main
from d2sd.cli.whatif import served_lines as lines
from d2sd.doctor.changes import Variant
from d2sd.doctor.served import PositionShares, ServedStep, compare_served, redraft_served
from d2sd.folders.loading import BUNDLED
from d2sd.nets.models import Models
from d2sd.trace.logs.requests import Counts, Texts
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
    return Counts(
        "vllm", "log", len(accepted), sum(accepted), sum(drafted), accepted=accepted, drafted=drafted,
        prompt_ids=run.prefill.prompt_token_ids, output_ids=tuple(run.token_ids),
    ).result(Texts())  # fmt: skip


def compared(bundled, model, traces):
    return compare_served(list(redraft_served(bundled, model, traces)), traces)


def test_served_comparison_with_same_drafter_is_equal(bundled):
    for method, name in (("dflash", "first"), ("eagle3", "eagle3")):
        model = getattr(bundled.models, name)
        traces = written(bundled, method, **{name: model})
        found = compared(bundled, model, traces)
        assert (found.less, found.more, found.first, found.others) == (0, 0, None, 0)
        assert [p.server for p in found.places if p.run == 0] == [len(s.accepted) for s in traces[0].steps]
        assert all(at.server == at.reference for at in found.positions)
        assert found.tokens == 64


def test_served_comparison_names_first_worse_step(bundled):
    first = bundled.models.first
    worse = Variant("", "", replace(first.form, mask_token=77)).apply(first)
    traces = written(bundled, "dflash", first=worse)
    found = compared(bundled, first, traces)
    assert found.less > found.more
    place = found.first
    assert place == next(p for p in found.places if p.server < p.reference)
    ids = traces[place.run].token_ids[: place.at]
    again = bundled.generate(
        [*traces[place.run].prefill.prompt_token_ids, *ids[:-1]], DecodeConfig("dflash", 16, inspect=False)
    )
    assert again.token_ids[0] == ids[-1]
    assert len(again.steps[0].accepted) == place.reference
    assert found.difference.value < 0
    said = list(lines(found, 2))
    assert f"step {place.step + 1} of run {place.run + 1}, after {place.at} tokens" in said[1]
    assert "Intervals need at least" in said[-1]


def test_served_position_shares_exclude_unknown_positions():
    counts = ((0, 1, 2, 2, 2, False), (1, 4, 2, 1, 2, False), (2, 6, 2, 0, 0, True))
    steps = [ServedStep(0, *step) for step in counts]
    found = compare_served([(steps, 0)], [])
    assert found.positions == (PositionShares(1.0, 1.0), PositionShares(0.5, 1.0))


def changed(trace, **header):
    return replace(trace, header={**trace.header, **header})


def test_redraft_served_refuses_unusable_logs(bundled):
    model = bundled.models.first
    (run, _) = written(bundled, "dflash", first=model)
    refused = {
        "has totals but no steps": replace(run, steps=()),
        "return_token_ids": changed(run, missing=["tokens"]),
        "needs a run at temperature 0": changed(run, config={"temperature": 1.0}),
        "has no drafted tokens": replace(run, steps=tuple(structs.replace(s, first_draft=None) for s in run.steps)),
        "its token ids or its length do not fit": replace(
            run, prefill=structs.replace(run.prefill, prompt_token_ids=(99_999, *run.prefill.prompt_token_ids[1:]))
        ),
        "was not generated greedily": replace(
            run, prefill=structs.replace(run.prefill, prompt_token_ids=(7,) * len(run.prefill.prompt_token_ids))
        ),
    }
    for said, trace in refused.items():
        with pytest.raises(InputError, match=said):
            list(redraft_served(bundled, model, [trace]))


def test_whatif_served_option_compares_log_with_drafter(bundled, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    write_traces(log, written(bundled, "dflash", first=bundled.models.first))
    assert main(["whatif", str(log), "--served"]) == 0
    out = capsys.readouterr().out
    assert "lower in 0, and higher in 0." in out
    tiny = BUNDLED / "tiny"
    assert main(["whatif", str(log), "--served", "--drafter", str(tiny / "eagle3"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drafter"] == "tiny/eagle3"
    assert found["less"] + found["more"] > 0
    assert main(["whatif", str(log), "--served", "--methods", "d2sd"]) == 2
    assert "without --methods" in capsys.readouterr().err
