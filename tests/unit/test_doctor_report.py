"""The doctor's output: findings as data, reports as plain text and as Markdown, exit status."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from d2sd.__main__ import main
from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import FAULT_NAMED
from d2sd.doctor import Findings, examination, examine
from d2sd.doctor.report import doctor_report, plain_text
from d2sd.doctor.variants import variants
from d2sd.errors import InputError
from d2sd.folders.checks import Check
from tools.breaking import TINY
from tools.broken_ways import WAYS

COUNT = 6
HOSTILE = "\x1b[31m <b>*x*</b> | \ud800"
TOKENS, KINDS = 48, ("mask", "attention", "lag")  # few changes are tried, for speed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WAYS["mask token"].drafter(tmp_path_factory.mktemp("broken") / "masked_drafter")


@pytest.fixture(scope="module")
def found(folder) -> Findings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examination, "TOKENS", TOKENS)
        patch.setattr(examination, "variants", lambda *args: [v for v in variants(*args) if v.kind in KINDS])
        return examine("tiny", str(folder), [p.text for p in read_prompts("heldout", COUNT)])


def test_examine_names_fault_and_what_repairs_it(found):
    assert found.names_fault
    assert (found.diagnosis.cause, found.diagnosis.fix) == ("mask", "dflash_config.mask_token_id: 1")
    assert found.helping[0].variant.description.startswith("mask token 1 ")


def test_examine_refuses_invalid_input():
    for arguments, sentence in (
        (("tiny", "gone/drafter/folder"), "cannot load the drafter"),
        (("gone/target/folder", str(TINY / "dflash")), "cannot load the target"),
        (("tiny", str(TINY / "dflash"), "a text"), "must be a list of texts"),
    ):
        with pytest.raises(InputError, match=sentence):
            examine(*arguments)
    with pytest.raises(InputError, match="it is at least 1"):
        examine("tiny", str(TINY / "dflash"), expected=0.5)


def test_findings_to_dict_is_json_with_all_figures(found):
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["cause"], data["fix"], data["names_fault"]) == ("mask", "dflash_config.mask_token_id: 1", True)
    assert data["alpha"]["low"] <= data["alpha"]["value"] <= data["alpha"]["high"]
    assert data["alpha"]["value"] == found.run.alpha
    assert data["prompts"] == COUNT
    assert [p["position"] for p in data["acceptance"]] == [p.number for p in found.run.positions]
    assert {c["name"]: c["state"] for c in data["checks"]}["mask token"] == "note"
    assert data["changes"][0]["gain"]["low"] > 0
    assert data["changes"][0]["alpha"] > data["alpha"]["value"]
    assert len(data["changes"]) + data["other_changes"] == len(found.trials)
    assert data["repair"] == [found.helping[0].variant.description]
    assert data["repaired_alpha"] == data["changes"][0]["alpha"] == found.diagnosis.alpha
    assert all(0 < p["believed"] < 1 for p in data["acceptance"])
    assert {p["confidence_head"] for p in data["acceptance"]} == {None}
    assert (data["reference"], data["since_training"], data["remarks"], data["failures"]) == (None, None, [], [])


def test_findings_to_dict_of_begun_examination_has_empty_values(found):
    data = Findings(found.asked, "t").to_dict()
    assert {data[name] for name in ("diagnosis", "cause", "fix", "alpha", "repaired_alpha", "reference")} == {None}
    assert (data["names_fault"], data["checks"], data["acceptance"]) == (False, [], [])


def test_doctor_report_states_facts_first_and_lists_measured_changes(found):
    short, full = (plain_text(doctor_report([found], full=full)) for full in (False, True))
    tried = {one: one.partition("What was tried")[2] for one in (short, full)}
    listed = {one: sum(t.variant.description in said for t in found.trials) for one, said in tried.items()}
    assert listed[full] == len(found.trials)
    assert listed[short] == sum(bool(t.run.walks) for t in found.trials) <= 5
    count = len(found.helping)
    assert f"Of {len(found.trials)} changes tried, one at a time, {count} raised α clearly; d2sd doctor --full lists them all." in short  # fmt: skip
    order = [short.index(words) for words in ("With mask token 1", "A short run", "What was tried", "The folder")]
    assert order == sorted(order)


def test_doctor_report_says_that_no_change_helps(found):
    trials = tuple(replace(t, helps=False, failure=None) for t in found.trials)
    report = doctor_report([replace(found, trials=trials)])
    assert f"Of {len(trials)} changes tried, one at a time, none raised α clearly; `d2sd doctor --full` lists" in report
    trials = (replace(trials[0], failure="it broke"), *trials[1:])
    report = doctor_report([replace(found, trials=trials)], full=True)
    assert f"Of {len(trials)} changes tried, one at a time, none raised α clearly; 1 could not be tried." in report


def test_doctor_report_says_what_changed_since_training(found):
    since = ("the embedding of the mask token changed", "its tokenizer no longer adds a start token")
    report = doctor_report([replace(found, since=since)])
    assert f"Changed since training: {since[0]}; {since[1]}." in report
    assert "Changed since training: nothing." in doctor_report([replace(found, since=())])
    assert "since training" not in doctor_report([replace(found, since=None)])


def test_doctor_report_as_plain_text_has_no_markdown_and_no_control_characters(found):
    asked = replace(found.asked, drafter=f"a_`drafter{HOSTILE}")
    hostile = replace(found, asked=asked, checks=(*found.checks, Check("norms", "note", HOSTILE)))
    markdown = doctor_report([hostile])
    assert r"| norms | note | \\x1b\[31m \<b\>\*x\*\</b\> \| \\ud800 |" in markdown
    plain = plain_text(markdown)
    assert re.search(r"^norms +note +\\x1b\[31m <b>\*x\*</b> \| \\ud800$", plain, re.MULTILINE)
    assert "a_ˋdrafter\\x1b[31m <b>*x*</b> ¦ \\ud800 for tiny/target\n-----" in plain
    assert not re.search(r"\\[_*<|\[]|\*\*|^#|^\|", plain.replace("\\x1b[", ""), re.MULTILINE)
    for report in (markdown, plain):
        report.encode()  # no lone surrogates are left
    json.dumps(hostile.to_dict(), ensure_ascii=False).encode()


def test_doctor_json_prints_one_object_and_exits_3_for_fault(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 12)
    folder, mended = WAYS["a prefix"].drafter(tmp_path / "d"), tmp_path / "mended"
    command = ["doctor", "tiny", str(folder), "--limit", "2", "--json", "--out", str(tmp_path / "o.md")]
    assert main([*command, "--mend", str(mended)]) == FAULT_NAMED == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out)["cause"] == "tensors"
    assert "α " in printed.err  # the result of --mend
    assert "**The folder has a fault" in (tmp_path / "o.md").read_text(encoding="utf-8")
    both = ["--vp", str(TINY / "vp"), "--reference", str(TINY / "dflash"), "--vp-reference", str(TINY / "vp")]
    assert main(["doctor", "tiny", str(mended), *both, "--limit", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert not data["names_fault"]
    assert data["vp"]["drafter"] == data["vp"]["reference"]["drafter"] == str(TINY / "vp")
    assert (data["reference"]["tensors"], data["reference"]["parts"]) == ({}, [])


def test_doctor_json_is_refused_without_examination(tmp_path, capsys):
    assert main(["doctor", "tiny", "x", "--config-only", "--json"]) == 2
    assert "leave out --config-only" in capsys.readouterr().err
