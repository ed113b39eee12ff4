"""Failures inside the doctor: each is reported, and no half-written folder is left."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from d2sd.__main__ import main
from d2sd.cli.common import FAULT_NAMED
from d2sd.doctor import changes, examination
from d2sd.doctor.examination import Examination
from d2sd.doctor.findings import Asked
from d2sd.doctor.report import doctor_report
from d2sd.doctor.variants import variants
from d2sd.engine import Engine
from d2sd.folders.checks import Check
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied
from tools.doctor_faults import Prober, random_fault

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
    asked = Asked(str(TINY / "dflash"), PROMPTS)
    found = Examination(asked, bundled.models.target).run()
    assert found.run is None
    assert found.diagnosis.sentence == "The folder has a fault: ZeroDivisionError: division by zero."
    assert "| tensors | ok |" in doctor_report([found])


def test_doctor_prints_checks_if_target_writes_nothing(bundled, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))
    monkeypatch.setattr(examination, "generate_texts", broken)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--limit", "1"]) == 2
    out = capsys.readouterr().out
    assert re.search(r"^tensors +ok ", out, re.MULTILINE)
    assert "generating the texts failed" in out


class FullDisk:
    def __call__(self, tensors, folder, **_):
        (folder / "model.safetensors").write_bytes(b"half of it")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_write_mended_leaves_nothing_on_full_disk(bundled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))
    monkeypatch.setattr(changes, "save_torch_state_dict", FullDisk())
    folder = copied(tmp_path / "d", weights=lambda w: {f"module.{k}": v for k, v in w.items()})
    out = tmp_path / "mended" / "m"
    assert main(["doctor", "tiny", str(folder), "--mend", str(out), "--limit", "1"]) == FAULT_NAMED
    said = capsys.readouterr()
    assert "No space left on device" in said.err
    assert "contain module." in said.out
    assert list(out.parent.iterdir()) == []


SOME = (0, 17)  # faults of different kinds, in different drafters


@pytest.mark.parametrize("number", SOME)
def test_doctor_reports_random_fault(bundled, tmp_path, monkeypatch, number):
    monkeypatch.setattr(examination, "TOKENS", 6)
    found = Prober(bundled.models.target, 1).report(random_fault(number), tmp_path)
    assert found.diagnosis is not None
    assert found.failures == ()


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
