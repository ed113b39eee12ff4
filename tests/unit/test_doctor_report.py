"""The doctor's output: findings as data, reports as plain text and as Markdown, exit status, failures inside it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from d2sd.__main__ import main
from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import FAULT_NAMED
from d2sd.doctor import Findings, changes, examination, examine
from d2sd.doctor.asked import Asked
from d2sd.doctor.examination import Examination
from d2sd.doctor.report import doctor_report, plain_text
from d2sd.doctor.variants import variants
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.folders.checks import Check
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied
from tools.broken_ways import WAYS

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He", "The sun was warm and Anna"]
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


def test_examine_refuses_one_text_instead_of_list():
    with pytest.raises(InputError, match="must be a list of texts"):
        examine("tiny", str(TINY / "dflash"), "a text")


def test_findings_to_dict_is_json_with_all_figures(found):
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["cause"], data["fix"], data["names_fault"]) == ("mask", "dflash_config.mask_token_id: 1", True)
    assert data["alpha"]["low"] <= data["alpha"]["value"] <= data["alpha"]["high"]
    assert data["alpha"]["value"] == found.run.alpha
    assert [p["position"] for p in data["acceptance"]] == [p.number for p in found.run.positions]
    assert {c["name"]: c["state"] for c in data["checks"]}["mask token"] == "note"
    assert data["changes"][0]["gain"]["low"] > 0
    assert len(data["changes"]) + data["other_changes"] == len(found.trials)
    assert data["repair"] == [found.helping[0].variant.description]
    assert data["repaired_alpha"] == data["changes"][0]["alpha"] == found.diagnosis.alpha
    assert Findings(found.asked, "t").to_dict().keys() == data.keys()  # also of an examination that has only begun


def test_doctor_report_states_facts_first_and_lists_measured_changes(found):
    short, full = (plain_text(doctor_report([found], full=full)) for full in (False, True))
    assert all(t.variant.description in full.partition("What was tried")[2] for t in found.trials)
    listed = sum(t.variant.description in short.partition("What was tried")[2] for t in found.trials)
    assert listed == sum(bool(t.run.walks) for t in found.trials) <= 5
    assert f"{len(found.helping)} raised α clearly; d2sd doctor --full lists them all." in short
    order = [short.index(words) for words in ("With mask token 1", "A short run", "What was tried", "The folder")]
    assert order == sorted(order)


def test_doctor_report_says_that_no_change_helps_and_what_changed_since_training(found):
    first, *others = (replace(t, helps=False, failure=None) for t in found.trials)
    trials, since = (replace(first, failure="it broke"), *others), ("the mask token changed", "its tokenizer changed")
    report = doctor_report([replace(found, trials=trials, since=since)], full=True)
    assert f"Of {len(trials)} changes tried, one at a time, none raised α clearly; 1 could not be tried." in report
    assert f"Changed since training: {since[0]}; {since[1]}." in report
    assert "Changed since training: nothing." in doctor_report([replace(found, since=())])


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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x", "--config-only", "--json"], "leave out --config-only"),
        (["nosuch"], "error: cannot load the drafter nosuch"),
        ([str(TINY / "dflash"), "--vp-reference", str(TINY / "vp")], "--vp-reference names the reference of --vp"),
        ([str(TINY / "dflash"), "--expect", "0.5"], "it is at least 1"),
    ],
)
def test_doctor_refuses_arguments_that_do_not_fit(capsys, arguments, sentence):
    assert main(["doctor", "tiny", *arguments]) == 2
    assert sentence in capsys.readouterr().err


# Failures inside the doctor: each is reported, and no half-written folder is left.


@pytest.fixture(autouse=True)
def sound(monkeypatch):
    """The checks pass for a/drafter, which does not exist."""
    check = examination.check_drafter_folder
    layout = [Check("layout", "good", "nested")]
    monkeypatch.setattr(
        examination,
        "check_drafter_folder",
        lambda source, *args, **how: layout if source == "a/drafter" else check(source, *args, **how),
    )


@pytest.fixture
def engine(tokenizer, monkeypatch):
    """A random target and drafter, with short texts and few changes to try."""
    monkeypatch.setattr(examination, "TOKENS", 8)
    monkeypatch.setattr(examination, "published_config", lambda _: {})
    monkeypatch.setattr(examination, "variants", lambda *args: variants(*args)[:8])
    monkeypatch.setattr("d2sd.doctor.diagnosis.UNRELATED", 2.0)  # every text surprises a random target
    target = make_target(tokenizer)
    return Engine(Models(target, make_drafter(target)))


def broken(*_, **__):
    raise ZeroDivisionError("division by zero")


def report_of(engine, **known):
    asked = Asked("a/drafter", PROMPTS, **known)
    found = Examination(asked, engine.models.target, engine).run()
    return found, doctor_report([found], full=True)


@pytest.mark.parametrize(
    ("name", "part", "ends"),
    [
        ("examination.weight_remarks", "reading the weights", False),
        ("examination.changes_since", "comparing with the training", False),
        ("examination.generate_texts", "generating the texts", True),
        ("probes.Redrafter.steps", "drafting over the texts", True),
        ("examination.surprise", "reading the texts", False),
        ("examination.probe", "trying changes", False),
        ("diagnosis.proved", "the diagnosis", True),
    ],
)
def test_examine_reports_failed_part_and_checks(engine, monkeypatch, name, part, ends):
    monkeypatch.setattr(f"d2sd.doctor.{name}", broken)
    found, report = report_of(engine)
    assert f"Not done: {part} failed (ZeroDivisionError: division by zero)." in report
    assert "| layout | ok | nested |" in report
    assert ("| position | 1" in report) == (part not in ("generating the texts", "drafting over the texts"))
    assert (found.diagnosis.cause == "failed", found.failed is not None) == (ends, ends)


def test_examine_reports_failed_change(engine, monkeypatch):
    made = examination.variants

    def with_one_broken(*args):
        first, *rest = made(*args)
        return [replace(first, edit_weights=broken), *rest]

    monkeypatch.setattr(examination, "variants", with_one_broken)
    found, report = report_of(engine)
    (failed,) = [t for t in found.trials if t.failure]
    assert failed.failure == "ZeroDivisionError: division by zero"
    assert "failed: ZeroDivisionError: division by zero |" in report
    assert len(found.trials) == 8


def test_examine_reports_reference_that_cannot_be_loaded(bundled, monkeypatch, tmp_path):
    monkeypatch.setattr(examination, "TOKENS", 8)
    monkeypatch.setattr(examination, "variants", lambda *args: variants(*args)[:2])
    broken_reference = copied(tmp_path / "r", weights=lambda w: {k: v for k, v in w.items() if k != "fc.weight"})
    asked = Asked(str(TINY / "dflash"), PROMPTS, reference=str(broken_reference))
    found = Examination(asked, bundled.models.target).run()
    assert [f.part for f in found.failures] == ["reading the reference"]
    assert len(found.trials) == 2


def test_examine_reports_unforeseen_error_of_loading(bundled, monkeypatch):
    monkeypatch.setattr(examination, "with_drafter", broken)
    found = Examination(Asked(str(TINY / "dflash"), PROMPTS), bundled.models.target).run()
    assert found.diagnosis.sentence == "The folder has a fault: ZeroDivisionError: division by zero."
    assert "| tensors | ok |" in doctor_report([found])


def test_doctor_exits_2_with_checks_if_target_writes_nothing(bundled, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))
    monkeypatch.setattr(examination, "generate_texts", broken)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--limit", "1"]) == 2
    assert re.search(r"^tensors +ok ", capsys.readouterr().out, re.MULTILINE)


def test_write_mended_leaves_nothing_on_full_disk(bundled, tmp_path, monkeypatch, capsys):
    def full(_, folder, **__):
        (folder / "model.safetensors").write_bytes(b"half of it")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))
    monkeypatch.setattr(changes, "save_torch_state_dict", full)
    folder = copied(tmp_path / "d", weights=lambda w: {f"module.{k}": v for k, v in w.items()})
    out = tmp_path / "mended" / "m"
    assert main(["doctor", "tiny", str(folder), "--mend", str(out), "--limit", "1"]) == FAULT_NAMED
    said = capsys.readouterr()
    assert "No space left on device" in said.err
    assert "contain module." in said.out
    assert list(out.parent.iterdir()) == []


def test_mend_writes_nothing_without_proof(bundled, tmp_path):
    examination = Examination(Asked(str(TINY / "dflash")), bundled.models.target)
    assert "was not written: no fault is proved" in examination.mend(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_mend_removes_copy_that_does_not_load_or_draft(bundled, tmp_path, monkeypatch):
    """The names of the mended copy are right, but the weights are not."""
    monkeypatch.setattr(examination, "TOKENS", 8)

    def prefixed(change):
        return lambda w: {f"module.{k}": change(v) for k, v in w.items()}

    for name, change, reason in (
        ("NaN", lambda v: v * torch.nan, "holds NaN or infinity"),
        ("random", lambda v: torch.randn(v.shape, generator=torch.Generator().manual_seed(0)), "its α is only 1."),
    ):
        folder = copied(tmp_path / name, weights=prefixed(change))
        one = Examination(Asked(str(folder), PROMPTS), bundled.models.target)
        assert one.run().diagnosis.changes
        said = one.mend(tmp_path / f"{name} mended")
        assert "was not written: the changed drafter does not work (" in said
        assert reason in said
        assert not (tmp_path / f"{name} mended").exists()
