"""Failures inside the doctor: each is reported, and no half-written folder is left."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from d2sd.__main__ import main
from d2sd.calibration.resampling import Estimate
from d2sd.cli.common import FAULT_NAMED
from d2sd.cli.examination import write_mended
from d2sd.doctor import changes, examination, probes
from d2sd.doctor.changes import Variant
from d2sd.doctor.checks import Check
from d2sd.doctor.diagnosis import diagnose
from d2sd.doctor.evidence import WeightFault
from d2sd.doctor.examination import stream_findings
from d2sd.doctor.findings import Asked, Failure, Findings
from d2sd.doctor.report import doctor_report
from d2sd.doctor.variants import variants
from d2sd.doctor.weight_edits import weight_variants
from d2sd.engine import Engine
from d2sd.folders.loading import load_drafter
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied
from tools.doctor_faults import FAULTS, Prober, random_fault

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He", "The sun was warm and Anna"]


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
    monkeypatch.setattr(examination, "variants", lambda *args: variants(*args)[:8])
    monkeypatch.setattr(examination, "mask_tokens", lambda *_: [])
    monkeypatch.setattr("d2sd.doctor.diagnosis.UNRELATED", 2.0)  # every text surprises a random target
    target = make_target(tokenizer)
    return Engine(Models(target, make_drafter(target)))


def broken(*_, **__):
    raise ZeroDivisionError("division by zero")


def report_of(engine, **known):
    asked = Asked("a/drafter", PROMPTS, **known)
    found = list(stream_findings(asked, engine.models, engine))[-1].found
    return found, doctor_report([found], full=True)


PARTS_OF_EXAMINATION = {
    "weight_faults": "the statistics of the weights", "surprise": "the statistics of the texts", "variants": "changes of the drafter",
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS_OF_EXAMINATION)
def test_examine_reports_failed_part_and_continues(engine, monkeypatch, name):
    monkeypatch.setattr(examination, name, broken)
    found, report = report_of(engine)
    part = PARTS_OF_EXAMINATION[name]
    assert f"Not done: {part} failed (ZeroDivisionError: division by zero)." in report
    assert "| layout | ok | nested |" in report
    assert "| position | 1" in report
    assert found.diagnosis.cause != "failed"


@pytest.mark.parametrize(
    ("name", "part"),
    [("generate_texts", "generating the texts"), ("walk_text", "drafting over the texts"), ("weight_faults", None)],
)
def test_examine_reports_checks_if_run_fails(engine, monkeypatch, name, part):
    monkeypatch.setattr(examination, name, broken)
    found, report = report_of(engine)
    assert "| layout | ok | nested |" in report
    assert (found.failed and found.failed.part) == part
    assert (
        f"Not done: {part or 'the statistics of the weights'} failed (ZeroDivisionError: division by zero)." in report
    )


def test_examine_reports_failed_diagnosis(engine, monkeypatch):
    monkeypatch.setattr(examination, "diagnose", broken)
    _, report = report_of(engine)
    assert "the diagnosis failed" in report
    assert "| position | 1" in report


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


def test_diagnose_prefers_named_fault_to_failure():
    failure = Failure("the run", "it broke", whole=True)
    unfinished = diagnose(Findings(Asked("d"), "t", failures=(failure,)))
    assert unfinished.sentence == "The examination ended early: the run failed (it broke)."
    assert not unfinished.names_fault
    weights = (WeightFault("padded", False),)  # not certain: the drafter may work
    assert diagnose(Findings(Asked("d"), "t", failures=(failure,), weights=weights)) == unfinished
    empty = (WeightFault("empty"),)
    assert diagnose(Findings(Asked("d"), "t", failures=(failure,), weights=empty)).cause == "weights"
    wrong = Check("fc", "fault", "it is wrong", "tensors")
    assert diagnose(Findings(Asked("d"), "t", (wrong,), failures=(failure,))).cause == "tensors"


def test_examine_reports_unforeseen_error_of_loading(bundled, monkeypatch):
    monkeypatch.setattr(examination, "with_drafter", broken)
    asked = Asked(str(TINY / "dflash"), PROMPTS)
    found = list(stream_findings(asked, Models(bundled.models.target)))[-1].found
    assert found.run is None
    assert found.diagnosis.sentence == "The folder has a fault: ZeroDivisionError: division by zero."
    assert "| tensors | ok |" in doctor_report([found])


def test_doctor_prints_checks_if_target_writes_nothing(bundled, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.doctor.examination.load_models", lambda *_, **__: bundled.models)
    monkeypatch.setattr(examination, "generate_texts", broken)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--limit", "1"]) == 2
    out = capsys.readouterr().out
    assert re.search(r"^tensors +ok ", out, re.MULTILINE)
    assert "generating the texts failed" in out


@pytest.mark.parametrize(("gain", "complete"), [(0.5, False), (0.01, True)])
def test_search_is_complete_if_no_other_change_gains_clearly(bundled, monkeypatch, gain, complete):
    """Only three changes without effect are tried; all appear to gain ``gain``."""
    monkeypatch.setattr(examination, "TOKENS", 12)
    monkeypatch.setattr(examination, "mask_tokens", lambda *_: [])
    monkeypatch.setattr(
        examination,
        "variants",
        lambda model, *_: [Variant("taps", f"change {n}", "nothing", model.form) for n in range(3)],
    )
    monkeypatch.setattr(probes, "SCREEN_FLOOR", -9.0)
    monkeypatch.setattr(probes, "relative_gain", lambda *_: Estimate(gain, 0.01, 10.0))
    monkeypatch.setattr(probes, "is_clear", lambda *_: True)
    found, _ = report_of(bundled, expected=1.0)
    assert found.failures == ()
    assert [len(t.walks) for t in found.trials] == [len(PROMPTS)] * 3
    assert found.repair.complete == complete
    assert len(found.repair.steps) == 2


def test_weight_variants_accept_huge_weights(bundled):
    """A flipped bit of the exponent makes entries whose squares are infinite in float32."""
    target = bundled.models.target
    model = load_drafter(str(TINY / "dflash"), torch.float32, "cpu", target)
    for layer in model.layers[:2]:
        layer.self_attn.q_proj.weight.data[0, 0] = 3e38
    described = [v.description for v in weight_variants(model, target) if v.kind == "scale"]
    assert any("q_proj" in description for description in described)


class FullDisk:
    def __call__(self, tensors, folder, **_):
        (folder / "model.safetensors").write_bytes(b"half of it")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_write_mended_leaves_nothing_on_full_disk(bundled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.doctor.examination.load_models", lambda *_, **__: bundled.models)
    monkeypatch.setattr(changes, "save_torch_state_dict", FullDisk())
    folder = copied(tmp_path / "d", weights=lambda w: {f"module.{k}": v for k, v in w.items()})
    out = tmp_path / "mended" / "m"
    assert main(["doctor", "tiny", str(folder), "--mend", str(out), "--limit", "1"]) == FAULT_NAMED
    said = capsys.readouterr()
    assert "No space left on device" in said.err
    assert "begin with module." in said.out
    assert list(out.parent.iterdir()) == []


SOME = (0, 17, 22)  # faults of different kinds, in different drafters


@pytest.mark.parametrize("number", SOME)
def test_doctor_reports_random_fault(bundled, tmp_path, monkeypatch, number):
    monkeypatch.setattr(examination, "TOKENS", 6)
    found = Prober(bundled.models, 1).report(random_fault(number), tmp_path)
    assert found.diagnosis is not None
    assert found.failures == ()


def test_random_fault_follows_from_its_number():
    weights = {name: torch.randn(8, 4) for name in "abcd"}
    assert {random_fault(n).kind for n in range(len(FAULTS))} == set(FAULTS)
    for number in range(len(FAULTS)):
        one, other = (random_fault(number).change(weights) for _ in range(2))
        assert any(not torch.equal(one[n], w) for n, w in weights.items()), number
        assert all(torch.equal(one[n].nan_to_num(), other[n].nan_to_num()) for n in weights)


def test_write_mended_says_that_nothing_was_examined(tmp_path):
    found = Findings(Asked("d"), "t", failures=(Failure("the run", "it broke", whole=True),))
    assert "was not written" in write_mended(replace(found, diagnosis=diagnose(found)), tmp_path / "m")
