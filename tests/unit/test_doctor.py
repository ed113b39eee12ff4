"""The doctor: evidence in weights, the diagnosis, and the command that examines and reports."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from d2sd.__main__ import main
from d2sd.calibration.resampling import Estimate
from d2sd.cli.examination import write_mended
from d2sd.doctor import examination
from d2sd.doctor.checks import Check
from d2sd.doctor.diagnosis import diagnose
from d2sd.doctor.evidence import (
    WeightFault,
    empty_part,
    moved_by_training,
    prominence,
    quantised_bits,
    weight_faults,
)
from d2sd.doctor.examination import stream_findings
from d2sd.doctor.findings import Asked, DraftingRun, Findings, Repair
from d2sd.doctor.probes import Template, TemplateTrial, Trial
from d2sd.doctor.redraft import BlockRedrafter, DraftPosition, TextWalk, alpha, by_position, shape
from d2sd.doctor.report import code, doctor_report, text
from d2sd.doctor.variants import variants
from d2sd.engine import Engine
from d2sd.folders.loading import load_drafter
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied, inner
from tools.broken_ways import WAYS

PROMPTS = ["Once upon a time there was a little dog. The dog", "Tom had a red ball. He", "The sun was warm and Anna"]


def walks_of(*shares, steps=200):
    """A text whose steps accept these shares by position; the end of the text cuts its last step."""
    accepted, left = [], steps
    for position, share in enumerate(shares):
        further = round(share * left)
        accepted += [position] * (left - further)
        left = further
    return [TextWalk((*accepted, *[len(shares)] * left, 0), 1)]


def test_shape_classifies_acceptance_by_position():
    def of(*shares, steps=200):
        return shape(by_position(walks_of(*shares, steps=steps), len(shares) + 1))

    assert of(0.9, 0.85, 0.8, 0.8) == ("smooth", None)
    assert of(0.3, 0.2, 0.2) == ("low", None)
    assert of(0.9, 0.85, 0.2, 0.2) == ("cliff", 3)
    assert of(0.9, 0.5, steps=10) == ("unclear", None)
    found = [DraftPosition(1, 2, 1), DraftPosition(2, 1, 1), DraftPosition(3, 1, 0)]
    assert by_position([TextWalk((2, 0, 1), 6), TextWalk((1,), 2)], 4) == found
    assert by_position([TextWalk((2, 0, 1), 6), TextWalk((1,), 2)], 4, visible=2) == found[2:]


def faults_of(model, target):
    return [fault.sentence.partition("Most likely ")[2] for fault in weight_faults(model, target)]


def test_weight_faults_finds_damaged_weights(bundled):
    model, target = copy.deepcopy(bundled.models.first), bundled.models.target
    assert faults_of(model, target) == []
    assert faults_of(bundled.models.eagle3, target) == []
    assert moved_by_training(model) == pytest.approx((4.6, 0.25), abs=0.1)
    model.norm.weight.data.fill_(1)
    model.layers[1].load_state_dict(model.layers[0].state_dict())
    model.layers[2].mlp.down_proj.weight.data.zero_()
    model.layers[2].self_attn.k_norm.weight.data.fill_(1)
    limit = 0.6 * model.fc.weight.std()
    model.fc.weight.data.clamp_(-limit, limit)
    assert faults_of(model, target) == [
        "its weights were damaged: layers.2.mlp.down_proj.weight holds only zeros.",
        "its weights were damaged: fc.weight was clipped: many of its entries have the same, largest magnitude.",
        "the weights of layers.2.self_attn.k_norm.weight were lost: all are equal, although comparable norms were trained.",
        "the weights of norm.weight were lost: all are equal, although comparable norms were trained.",
        "its weights were damaged: layer 1 is a copy of layer 0.",
    ]


def shuffle(w):
    w.data = w.data.flatten()[torch.randperm(w.numel(), generator=torch.Generator().manual_seed(0))].view_as(w)


def test_weight_faults_finds_weights_that_look_random(bundled):
    assert prominence(torch.randn(200, 300, generator=torch.Generator().manual_seed(0))) == pytest.approx(1, abs=0.05)
    model, target = copy.deepcopy(bundled.models.first), bundled.models.target
    shuffle(model.layers[0].self_attn.v_proj.weight)  # v_proj looks random in every layer
    assert faults_of(model, target) == []
    shuffle(model.layers[0].self_attn.q_proj.weight)
    (one,) = weight_faults(model, target)
    assert "layers.0.self_attn.q_proj.weight looks like random numbers" in one.sentence
    assert not one.certain
    for w in model.layers[1].parameters():
        shuffle(w)
    layer = next(f for f in weight_faults(model, target) if "layer 1 are" in f.sentence)
    assert not layer.certain  # an untrained drafter's look the same


DAMAGED = {
    "half of every MLP": "50% of the rows of layers.0.mlp.gate_proj.weight hold only zeros, and so do rows or columns of 5 other matrices",
    "half of the inputs of a layer": "50% of the columns of layers.1.mlp.down_proj.weight hold only zeros.",
    "fc without a tap": "20% of the columns of fc.weight hold only zeros",
    "fp8 without scales": "8-bit floats whose scales were dropped: the largest entry of",
    "2 bits": "quantised to 2 bits",
    "a copied layer": "layer 2 is a copy of layer 1",
    "a flipped bit": "layers.1.self_attn.q_proj.weight has an entry of 1.33e+36, far larger than all others",
    "final norm lost": "the weights of norm.weight were lost",
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_diagnose_names_damage_that_weights_show(bundled, tmp_path, name):
    """The weights alone suffice, even if the drafter works well in the run."""
    target = bundled.models.target
    model = load_drafter(str(WAYS[name].drafter(tmp_path / "d")), torch.float32, "cpu", target)
    diagnosis = concluded(weights=tuple(weight_faults(model, target)))
    assert diagnosis.cause in WAYS[name].causes.split()
    assert DAMAGED[name] in diagnosis.sentence


def test_examine_stops_at_damage_that_weights_prove(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "quantised_bits", lambda target: 4)
    asked = Asked(str(WAYS["a copied layer"].drafter(tmp_path / "d")), PROMPTS)
    found = list(stream_findings(asked, Models(bundled.models.target)))[-1].found
    assert "layer 2 is a copy of layer 1" in found.diagnosis.sentence
    assert (found.run, found.bits) == (None, 4)
    assert found.moved == moved_by_training(bundled.models.first)


def test_empty_part_ignores_little_padding():
    weight = torch.ones(40, 40)
    assert empty_part(weight) is None
    assert empty_part(torch.zeros(40, 40)) is None  # a matrix of zeros is a different finding
    weight[:2] = 0
    assert empty_part(weight) == (pytest.approx(0.05), "of the rows")
    padded = (WeightFault("padded", False),)
    assert concluded(weights=padded).cause == "none"
    assert concluded(weights=padded, **LOW).cause == "weights"


def test_weight_faults_finds_head_of_target(bundled):
    target = bundled.models.target  # its head and embedding are tied
    model = copy.deepcopy(bundled.models.eagle3)
    model.lm_head.weight.data = target.embedding.weight.data.clone()
    (lost,) = weight_faults(model, target)
    assert (lost.cause, lost.certain) == ("tables", False)
    head = SimpleNamespace(weight=-target.head.weight)
    untied = SimpleNamespace(base=target.base, embedding=target.embedding, head=head)
    (replaced,) = weight_faults(model, untied)
    assert (replaced.cause, replaced.certain) == ("tables", True)


def test_weight_faults_reports_constant_qk_norms_as_lost(bundled):
    model, target = copy.deepcopy(bundled.models.first), bundled.models.target
    for layer in model.layers:
        layer.self_attn.q_norm.weight.data.fill_(1)
        layer.self_attn.k_norm.weight.data.fill_(1)
    assert len(faults_of(model, target)) == 6
    for name, w in model.named_parameters():
        if name.endswith("norm.weight"):
            w.data.fill_(1)  # as after training in bfloat16
    assert faults_of(model, target) == []


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [None, 32])
def test_quantised_bits_detects_weight_grid(bundled, bits, group):
    assert quantised_bits(bundled.models.target) is None
    layers = copy.deepcopy(bundled.models.target.base.layers[:1])
    for w in (w for w in layers.parameters() if w.dim() == 2):
        rows = w.data if group is None else w.data.unflatten(1, (-1, group)).flatten(0, 1)
        step = rows.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        w.data = ((rows / step).round() * step).view_as(w).bfloat16().float()
    assert quantised_bits(SimpleNamespace(base=SimpleNamespace(layers=layers))) == bits


def ran(*walks, block=3):
    return DraftingRun(tuple(walks), block)


def concluded(**found):
    """The diagnosis of an examination with these findings; by default, the drafter works."""
    known = {"asked": Asked("d"), "target": "t", "run": ran(*walks_of(0.9, 0.9))}
    return diagnose(Findings(**(known | found)))


def random_walks(accepted, count=30):
    """Texts whose steps accept ``accepted`` tokens on average, each with the same probability."""
    rng = np.random.default_rng(0)
    counts = [tuple((rng.geometric(1 / (accepted + 1), 10) - 1).tolist()) for _ in range(count)]
    return tuple(TextWalk(steps, sum(steps) + len(steps), steps) for steps in counts)


def repair(bundled, kind, accepted, before=0, complete=True):
    """A change of this kind, with ``before`` and then ``accepted`` accepted tokens per step on average."""
    variant = next(v for v in variants(bundled.models.first, bundled.models.target, 100, True) if v.kind == kind)
    trial = Trial(variant, Estimate(1.0, 0.5, 1.5), True, random_walks(accepted))
    return Repair((trial,), ran(*random_walks(before), block=16), ran(*trial.walks, block=16), complete)


# Findings for drafters with low acceptance.
LOW, POOR = {"run": ran(*walks_of(0.3, 0.3))}, {"run": ran(*walks_of(0.05, 0.3))}
TRIAL = TemplateTrial(Template("the chat template", "--chat", ()), 3.0, Estimate(None), 0, False, unusable=2)
FINDINGS = {
    "an untrained fc": ({"moved": (1.0, 0.0), **LOW}, "training", "hardly trained"),
    "an untrained fc of a drafter that works": ({"moved": (1.0, 0.0)}, "none", "No fault found"),
    "lost norms": ({"weights": (WeightFault("lost", cause="norms"),)}, "norms", "lost"),
    "a random matrix": ({"weights": (WeightFault("random", False),)}, "none", "No fault found"),
    "a random matrix of a drafter that does not work": ({"weights": (WeightFault("random", False),), **LOW}, "weights", "random"),
    "a quantised target": ({"bits": 8}, "rounding", "quantised to 8 bits, which is harmless"),
    "next to nothing accepted": (POOR, "weights", "or were trained for another target"),
    "less than is known": ({"asked": Asked("d", expected=9.0)}, "below", "significantly below the expected 9.00"),
    "as much as is known": ({"asked": Asked("d", expected=5.0), "run": ran(*random_walks(4), block=16)}, "none", "No fault found"),
    "most texts empty, and not in the template": ({"unusable": (20, 30), "templates": [TRIAL], **POOR}, "template", "20 of 30 prompts are empty"),
    "most texts empty in any template": ({"unusable": (20, 30), "templates": [replace(TRIAL, unusable=19)]}, "none", "No fault found"),
    "few steps": ({"run": ran(*walks_of(0.9, steps=10))}, "unknown", "about 30 prompts"),
    "low acceptance": (LOW, "unknown", "Unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINDINGS)
def test_diagnose_names_only_proven_faults(name):
    found, cause, sentence = FINDINGS[name]
    diagnosis = concluded(**found)
    assert (diagnosis.cause, sentence in diagnosis.sentence) == (cause, True), diagnosis.sentence
    assert diagnosis.names_fault == (cause not in ("none", "unknown", "rounding"))


def test_diagnose_prefers_strongest_evidence(bundled):
    trial = TemplateTrial(Template("the chat template", "--chat", ()), 3.0, Estimate(1.0, 0.5, 1.5), 30, True)
    found = {
        "checks": [Check("fc", "fault", "it is wrong", "tensors", "this")],
        "surprise": 1.1,
        "repair": repair(bundled, "taps", 3),
        "templates": [trial],
    }
    causes = []
    while found:
        causes.append(concluded(**found).cause)
        del found[next(iter(found))]
    assert causes == ["tensors", "tokenizer", "taps", "template"]
    rope = repair(bundled, "rope", 3)
    assert concluded(repair=rope, weights=(WeightFault("padded", False),), **LOW).cause == "weights"
    assert concluded(repair=rope, **LOW).cause == "rope"
    assert concluded(repair=repair(bundled, "layer", 3)).cause == "weights"


def test_repair_confirmed_only_if_drafter_works(bundled):
    assert repair(bundled, "taps", 3).confirmed  # position 1 is accepted as often as with a trained drafter
    assert not repair(bundled, "taps", 0).confirmed
    unfinished = repair(bundled, "window", 3, before=2, complete=False)  # another change would still help
    assert not unfinished.confirmed
    assert replace(unfinished, complete=True).confirmed
    twice = repair(bundled, "rope", 3)
    assert not replace(twice, before=twice.after).confirmed  # no gain at all
    little = concluded(repair=unfinished)
    assert (little.cause, little.names_fault) == ("little", False)
    assert little.sentence.startswith(
        "No fault was proved: position 1 is accepted 90% of the time. The best change found is a window"
    )
    assert "α rises from 3.40 to 4.55. This gain does not prove the cause." in little.sentence


def test_repair_confirmed_only_near_known_level(bundled):
    found = repair(bundled, "taps", 3, complete=False)  # α is 4.55 after the change
    assert not found.confirmed  # no known level, and another change would still help
    assert replace(found, level=6.0).confirmed
    assert not replace(found, level=6.2).confirmed  # 4.55 is below three quarters of 6.2
    assert not replace(found, level=6.2, complete=True).confirmed
    asked, run = Asked("d", expected=9.0), ran(*random_walks(1), block=16)
    named = concluded(repair=replace(found, level=9.0), run=run, asked=asked)
    assert (named.cause, named.changes) == ("below", ())
    assert "α rises from 1.00 to 4.55 (known to be possible: 9.00)" in named.sentence
    assert "and other changes still help. Something else is wrong too, so the cause is still unknown." in named.sentence


@pytest.fixture
def sound(monkeypatch):
    """All folders pass the checks."""
    monkeypatch.setattr(examination, "check_drafter_folder", lambda *_, **__: [Check("layout", "good", "nested")])


def test_examine_fills_report_and_can_be_closed(tokenizer, monkeypatch, sound):
    monkeypatch.setattr(examination, "TOKENS", 12)
    monkeypatch.setattr("d2sd.doctor.diagnosis.UNRELATED", 2.0)  # every text surprises a random target
    target = make_target(tokenizer)
    engine = Engine(Models(target, make_drafter(target)))
    asked = Asked("a/drafter", PROMPTS)
    drafted, seen = BlockRedrafter._hidden, []

    def hidden(*args):
        assert engine.lock.locked()
        return drafted(*args)

    monkeypatch.setattr(BlockRedrafter, "_hidden", hidden)
    for progress in stream_findings(asked, engine.models, engine):
        assert not engine.lock.locked()  # others may use the models between stages
        seen.append(progress.stage)
    found = progress.found
    assert seen.count("mask tokens") > 1
    assert list(dict.fromkeys(seen)) == [
        "reading the folder", "reading the weights", "generating the texts", "drafting over the texts", "reading the texts", "mask tokens", "probes", "done",
    ]  # fmt: skip
    report = doctor_report([found])
    assert found.diagnosis is not None
    assert "| position | 1" in report
    assert "γ counts the anchor" in report
    run = stream_findings(asked, engine.models, engine)
    while (stopped := next(run)).stage != "probes":
        pass
    run.close()
    assert "Stopped before the end" in doctor_report([stopped.found])
    assert len(stopped.found.trials) == 1


def test_examine_tries_chat_template_before_probes(bundled, monkeypatch, sound):
    """The bundled target stops after “The end.”; the template makes it begin another story."""
    monkeypatch.setattr(examination, "TOKENS", 16)
    tokenizer = bundled.models.target.tokenizer
    story = "Once upon a time there was a little dog. The dog"
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n\n" + story + "{% endfor %}"
    prompts = ["They lived happily ever after. The end.", "Tom and his mom went home. They were happy.\n\nThe end.", "And they were very happy that day. The End."]  # fmt: skip
    try:
        steps = list(stream_findings(Asked("d", prompts), bundled.models, bundled))
    finally:
        tokenizer.chat_template = None
    found = steps[-1].found
    assert found.unusable == (3, 3)
    assert (found.diagnosis.cause, found.diagnosis.fix) == ("template", "--chat")
    assert "3 of 3 prompts are empty" in found.diagnosis.sentence
    assert "probes" not in [step.stage for step in steps]


def test_examine_reference_reports_differing_tensors_and_keys(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 40)
    name = "layers.1.mlp.down_proj.weight"
    folder = copied(tmp_path / "d", inner(mask_token_id=2), lambda w: {**w, name: -w[name]})
    asked = Asked(str(folder), PROMPTS, reference=str(TINY / "dflash"))
    run = stream_findings(asked, Models(bundled.models.target))
    found = next(step.found for step in run if step.found.reference is not None)
    run.close()
    assert [(t.name, round(t.share, 3)) for t in found.reference.tensors] == [(name, 2.0)]
    assert found.reference.keys == (("dflash_config.mask_token_id", "2", "1"),)
    assert found.reference.change.value > 0
    assert found.level == alpha(found.reference.walks)
    assert diagnose(found).names_fault
    report = doctor_report([found])
    assert "| accepted by the reference | " in report
    assert re.search(r"α \d\.\d\d, a difference of \+\d\.\d\d", report)
    assert r"| layers.1.mlp.down\_proj.weight | 200.0% |" in report
    poor = replace(found.reference, change=Estimate(1.0, 0.5, 1.5))
    assert concluded(reference=poor, run=ran(*random_walks(3), block=16)).cause == "below"


def test_doctor_report_escapes_names_and_tokens():
    assert code("a`<b>|\n") == "`aˋ<b>¦\\n`"
    assert text("<img> [x](y) |") == r"\<img\> \[x\](y) \|"
    found = Findings(Asked("`</code><script>"), "t", (Check("mask token", "good", "'<script>' | *"),))
    assert r"| '\<script\>' \| \* |" in doctor_report([found])


def test_write_mended_refuses_repair_of_unnamed_cause(bundled, tmp_path):
    """If the texts mean nothing to the target, a change may help, but it does not repair the cause."""
    known = {"surprise": 1.1, "repair": repair(bundled, "taps", 3)}
    diagnosis = concluded(**known)
    assert diagnosis.cause == "tokenizer"
    found = Findings(Asked(str(TINY / "dflash")), "t", diagnosis=diagnosis, **known)
    assert "was not written" in write_mended(found, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_examine_skips_run_after_failed_check(bundled, monkeypatch):
    monkeypatch.setattr(examination, "check_drafter_folder", lambda *_, **__: [Check("fc", "fault", "it is wrong")])
    monkeypatch.setattr(examination, "with_drafter", lambda *_: pytest.fail("nothing is loaded"))
    steps = list(stream_findings(Asked("d", PROMPTS), bundled.models))
    assert steps[-1].found.run is None
    assert steps[-1].found.diagnosis.sentence == "The folder has a fault: it is wrong."


def test_doctor_interrupt_reports_unexamined_drafters(bundled, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.doctor.examination.load_models", lambda *_, **__: bundled.models)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(examination, "weight_faults", stopped)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--vp", str(TINY / "vp")]) == 130
    first, second = capsys.readouterr().out.split(f"{TINY / 'vp'} for tiny/target")
    assert "Stopped before the end" in first
    assert "Not examined" in second
    assert "The folder" not in second
