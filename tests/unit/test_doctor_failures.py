"""The doctor on drafters and machines that break its calculations: there is a report of each, and no half-written folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError

from d2sd.__main__ import main
from d2sd.calibration.resampling import Estimate
from d2sd.cli.doctor import load_checked, write_mended
from d2sd.config import DecodeConfig
from d2sd.doctor import changes, examination, probes
from d2sd.doctor.changes import Variant
from d2sd.doctor.checks import Check
from d2sd.doctor.diagnosis import diagnose
from d2sd.doctor.evidence import WeightFindings
from d2sd.doctor.examination import examine
from d2sd.doctor.findings import Examination, Failure
from d2sd.doctor.probes import Trial, completed
from d2sd.doctor.redraft import BlockRedrafter, Walk, generate_texts, walk, with_features
from d2sd.doctor.report import markdown
from d2sd.doctor.variants import variants
from d2sd.doctor.weight_edits import weight_variants
from d2sd.engine import Engine
from d2sd.folders.loading import load_drafter
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied
from tools.doctor_faults import FAULTS, Prober, random_fault

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He", "The sun was warm and Anna"]


@pytest.fixture
def engine(tokenizer, monkeypatch):
    """A random pair, whose texts are short, and on which few changes are tried."""
    monkeypatch.setattr(examination, "TOKENS", 8)
    monkeypatch.setattr(examination, "variants", lambda *args: variants(*args)[:8])
    monkeypatch.setattr(examination, "mask_tokens", lambda *_: [])
    monkeypatch.setattr("d2sd.doctor.diagnosis.UNRELATED", 2.0)  # of a random target every text is a surprise
    target = make_target(tokenizer)
    return Engine(Models(target, make_drafter(target)))


def broken(*_, **__):
    raise ZeroDivisionError("division by zero")


def report_of(engine, **known):
    found = Examination("a/drafter", "a/target", [Check("layout", "good", "nested")], **known)
    for _ in examine(engine, PROMPTS, DecodeConfig("autoregressive"), found):
        pass
    return found, markdown([found])


PARTS_OF_EXAMINATION = {
    "examine_weights": "the statistics of the weights", "examine_texts": "the statistics of the texts", "variants": "changes of the drafter",
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
    [("generate_texts", "writing the texts"), ("walk", "drafting over the texts"), ("quantised_bits", None)],
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
    unfinished = diagnose(Examination("d", "t", [], failures=[failure]))
    assert unfinished.sentence == "Not examined to the end: the run failed (it broke)."
    assert not unfinished.names_fault
    weights = WeightFindings(random_matrices=("a.weight",))  # which says nothing of a drafter that may work
    assert diagnose(Examination("d", "t", [], failures=[failure], weights=weights)) == unfinished
    wrong = Check("fc", "fault", "it is wrong", "tensors")
    assert diagnose(Examination("d", "t", [wrong], failures=[failure])).cause == "tensors"


def test_load_checked_reports_unforeseen_error(bundled, monkeypatch):
    monkeypatch.setattr("d2sd.cli.doctor.with_drafter", broken)
    found = Examination(str(TINY / "dflash"), "t", [])
    assert load_checked(Models(bundled.models.target), None, found) is None
    assert found.diagnosis.sentence == "The folder has a fault: ZeroDivisionError: division by zero."
    assert "| tensors | ok |" in markdown([found])


def test_doctor_prints_checks_if_target_writes_nothing(bundled, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.cli.doctor.load_models", lambda *_, **__: bundled.models)
    monkeypatch.setattr(examination, "generate_texts", broken)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--limit", "1"]) == 2
    out = capsys.readouterr().out
    assert "| tensors | ok |" in out
    assert "writing the texts failed" in out


def test_completed_trial_counts_all_texts(bundled):
    """A change may help most over the first texts, and be dropped there for others: it is compared over all of them."""
    target, model = bundled.models.target, bundled.models.first
    config = DecodeConfig("autoregressive", 8)
    texts = [with_features(target, t, model.target_layer_ids) for t in generate_texts(target, [bundled.encode(p, config) for p in PROMPTS], 8)]  # fmt: skip
    base = [walk(BlockRedrafter(target, model), t) for t in texts]
    variant = next(v for v in variants(model, target, 100, False) if v.kind == "rows")
    nothing = Trial(variant, None, None, Estimate(9.0, 8.0, 10.0), 0, True)
    whole = completed(target, model, 0, texts, base, nothing, 1)
    assert (whole.texts, len(whole.walks)) == (len(texts), len(texts))
    assert whole.gain.value < 0
    begun = replace(nothing, texts=1, walks=whole.walks[:1])
    assert completed(target, model, 0, texts, base, begun, 1) == whole


def favour(monkeypatch, over_a_text):
    """Three changes alone are tried, which change nothing; all help, by so much over one text, and by less over more of them."""
    monkeypatch.setattr(examination, "TOKENS", 12)
    monkeypatch.setattr(examination, "mask_tokens", lambda *_: [])
    monkeypatch.setattr(
        examination,
        "variants",
        lambda model, *_: [Variant("taps", f"change {n}", "nothing", model.form) for n in range(3)],
    )
    monkeypatch.setattr(probes, "SCREEN_FLOOR", -9.0)
    monkeypatch.setattr(probes, "ROUNDS", ((1, 1, -9.0),))
    judged = probes._judged

    def favoured(variant, walks, base, tests):
        trial = judged(variant, walks, base, tests)
        return replace(trial, helps=True, gain=Estimate(over_a_text / len(walks), 0.01, 10.0))

    monkeypatch.setattr(probes, "_judged", favoured)


def test_search_completes_change_that_was_dropped(bundled, monkeypatch):
    """With labels one off, a change helped most over the texts on which it was dropped, and the next probes had fewer texts."""
    favour(monkeypatch, 9.0)
    found, _ = report_of(bundled)
    assert found.failures == []
    assert [t.texts for t in found.trials] == [len(PROMPTS)] * 3


@pytest.mark.parametrize(("gain", "complete"), [(0.5, False), (0.1, True)])
def test_search_is_complete_where_nothing_gains_clearly(bundled, monkeypatch, gain, complete):
    favour(monkeypatch, gain)
    found, _ = report_of(bundled, expected=1.0)
    assert found.repair.complete == complete
    assert len(found.repair.steps) == 2


def test_weight_variants_accept_huge_weights(bundled):
    """Squares of entries after a bit of their exponent was flipped are infinite in float32."""
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
    monkeypatch.setattr("d2sd.cli.doctor.load_models", lambda *_, **__: bundled.models)
    monkeypatch.setattr(changes, "save_torch_state_dict", FullDisk())
    folder = copied(tmp_path / "d", weights=lambda w: {f"module.{k}": v for k, v in w.items()})
    out = tmp_path / "mended" / "m"
    assert main(["doctor", "tiny", str(folder), "--mend", str(out), "--limit", "1"]) == 1
    said = capsys.readouterr()
    assert "No space left on device" in said.err
    assert "begin with module." in said.out
    assert list(out.parent.iterdir()) == []


SOME = (0, 17, 22)  # of different kinds, in different drafters


@pytest.mark.parametrize("number", SOME)
def test_doctor_reports_random_fault(bundled, tmp_path, monkeypatch, number):
    monkeypatch.setattr(examination, "TOKENS", 6)
    found = Prober(bundled.models, 1).report(random_fault(number), tmp_path)
    assert found.diagnosis is not None
    assert found.failures == []


def test_random_fault_follows_from_its_number():
    weights = {name: torch.randn(8, 4) for name in "abcd"}
    assert {random_fault(n).kind for n in range(len(FAULTS))} == set(FAULTS)
    for number in range(len(FAULTS)):
        one, other = (random_fault(number).change(weights) for _ in range(2))
        assert any(not torch.equal(one[n], w) for n, w in weights.items()), number
        assert all(torch.equal(one[n].nan_to_num(), other[n].nan_to_num()) for n in weights)


def test_write_mended_says_that_nothing_was_examined(tmp_path):
    found = Examination("d", "t", [], failures=[Failure("the run", "it broke", whole=True)], walks=[Walk((), 0)])
    found.diagnosis = diagnose(found)
    assert "was not written" in write_mended(found, tmp_path / "m")
