"""The doctor: remarks on weights, what findings prove, and the examination from the folder to the report."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from d2sd.__main__ import main
from d2sd.calibration.replays import DraftingRun, DraftPosition, TextWalk
from d2sd.calibration.resampling import Estimate
from d2sd.doctor import examination
from d2sd.doctor.asked import Asked
from d2sd.doctor.diagnosis import diagnose
from d2sd.doctor.evidence import weight_remarks
from d2sd.doctor.examination import Examination
from d2sd.doctor.exchange import Exchange, Reference
from d2sd.doctor.findings import Failure, Findings
from d2sd.doctor.probes import TemplateTrial, Trial
from d2sd.doctor.report import doctor_report
from d2sd.doctor.variants import variants
from d2sd.engine import Engine
from d2sd.folders.checks import Check
from d2sd.nets.models import Models
from d2sd.replay.anchors import BlockRedrafter
from tests.nets import make_drafter, make_target
from tools.breaking import TINY, copied, each

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
        return ran(*walks_of(*shares, steps=steps), block=len(shares) + 1).shape

    assert of(0.9, 0.85, 0.8, 0.8) == ("smooth", None)
    assert of(0.3, 0.2, 0.2) == ("low", None)
    assert of(0.9, 0.85, 0.2, 0.2) == ("cliff", 3)
    assert of(0.9, 0.5, steps=10) == ("unclear", None)
    positions = [DraftPosition(1, 2, 1), DraftPosition(2, 1, 1), DraftPosition(3, 1, 0)]
    run = ran(TextWalk((2, 0, 1), 6), TextWalk((1,), 2), block=4)
    assert (run.positions, replace(run, visible=2).positions) == (positions, positions[2:])


def test_by_position_averages_beliefs_of_compared_tokens():
    rows = ([(0.9, 0.5), (0.7, 0.3)], [(0.5, 0.1), (0.1, 0.1)], [(0.2, 0.2), (0.2, 0.2)])
    run = ran(TextWalk((2, 0, 1), 6, beliefs=rows))
    first, second = run.positions
    assert (first.belief, first.head) == pytest.approx((0.7, 0.3))  # both steps that count
    assert (second.belief, second.head) == pytest.approx((0.7, 0.3))  # only the step that accepted position 1
    assert run.belief == pytest.approx((0.7, 2 / 3))


def test_weight_remarks_tell_what_is_unusual(bundled):
    model = copy.deepcopy(bundled.models.first)
    assert [*weight_remarks(model), *weight_remarks(bundled.models.eagle3)] == []
    model.norm.weight.data.fill_(1)
    model.hidden_norm.weight.data.fill_(1)
    model.layers[1].load_state_dict(model.layers[0].state_dict())
    model.layers[2].mlp.down_proj.weight.data[: 192 // 2] = 0
    model.layers[2].mlp.up_proj.weight.data *= 448 / model.layers[2].mlp.up_proj.weight.data.abs().max()
    model.fc.weight.data[3, 5] = 2.0**100
    assert sorted(weight_remarks(model)) == [
        "fc.weight: the largest entry is 1.27e+30, over 10000 times the median, as after a flipped bit",
        "hidden_norm.weight and 1 more: all weights are 1, as before training or after folding",
        "layers 0 and 1 are equal",
        "layers.2.mlp.down_proj.weight: 50% of the entries are zeros",
        "layers.2.mlp.up_proj.weight: the largest entry is 448, as in 8-bit floats without their scales",
    ]


def ran(*walks, block=3):
    return DraftingRun(tuple(walks), block)


def concluded(**found):
    """What an examination with these findings proves; by default, the drafter works."""
    known = {"asked": Asked("d"), "target": "t", "run": ran(*walks_of(0.9, 0.9))}
    return diagnose(Findings(**(known | found)))


def random_run(accepted, count=30):
    """A run over texts whose steps accept ``accepted`` tokens on average, each with the same probability."""
    rng = np.random.default_rng(0)
    counts = [tuple((rng.geometric(1 / (accepted + 1), 10) - 1).tolist()) for _ in range(count)]
    return ran(*(TextWalk(steps, sum(steps) + len(steps), steps) for steps in counts), block=16)


def trial(bundled, kind, accepted, number=0):
    """A change of this kind that helps, with ``accepted`` accepted tokens per step on average."""
    all_of = variants(bundled.models.first, bundled.models.target, 100, {"dflash_config": {}})
    variant = [v for v in all_of if v.kind == kind][number]
    return Trial(variant, Estimate(1.0, 0.5, 1.5), True, random_run(accepted))


# Findings for drafters with low acceptance.
LOW = {"run": ran(*walks_of(0.3, 0.3))}
TRIAL = TemplateTrial("the chat template", 3.0, Estimate(None), unusable=2)
ASK = "What it should reach is not known: give d2sd doctor --expect or --reference."
FINDINGS = {
    "a drafter that works": ({}, "none", f"position 1 is accepted 90% of the time, with a smooth decay. {ASK}"),
    "low acceptance": (LOW, "none", f"low from the start on (position 1 is accepted 30% of the time). {ASK}"),
    "less than is known": ({"asked": Asked("d", expected=9.0)}, "below", "It is significantly below the expected 9.00."),
    "as much as is known": ({"asked": Asked("d", expected=5.0), "run": random_run(4)}, "none", "not significantly below the expected 5.00."),
    "most texts empty": ({"unusable": (20, 30), "templates": (TRIAL,), **LOW}, "none", "The texts of 20 of 30 prompts are empty or repeat themselves: look at the template first. With the chat template, α is 3.00"),
    "texts that mean nothing": ({"surprise": 1.1}, "none", "The target's own loss on the prompts is 110% of a uniform guess's"),
    "few steps": ({"run": ran(*walks_of(0.9, steps=10))}, "unknown", "too few steps to judge; use about 30 prompts"),
    "a template that helps": ({"templates": (replace(TRIAL, change=Estimate(1.0, 0.5, 1.5)),)}, "none", "With the chat template, α is 3.00, on other texts"),
    "a failure": ({"failures": (Failure("the run", "it broke", whole=True),)}, "failed", "The examination ended early: the run failed (it broke)."),
}  # fmt: skip


@pytest.mark.parametrize("name", FINDINGS)
def test_diagnose_states_measurements_and_names_no_cause(name):
    found, cause, sentence = FINDINGS[name]
    diagnosis = concluded(**found)
    assert (diagnosis.cause, sentence in diagnosis.sentence) == (cause, True), diagnosis.sentence
    assert diagnosis.names_fault == (cause == "below")
    assert diagnosis.changes == ()


@pytest.mark.parametrize(
    ("share", "belief", "says"),
    [(0.3, 0.9, "; it is sure and wrong"), (0.3, 0.3, "; it is unsure itself"), (0.5, 0.65, "50% were. What")],
)
def test_diagnose_compares_low_acceptance_with_drafters_belief(share, belief, says):
    (walk,) = walks_of(share, share)
    walk = replace(walk, beliefs=tuple([(belief, float("nan"))] * 2 for _ in walk.accepted))
    assert says in concluded(run=ran(walk)).sentence


def test_diagnose_prefers_faults_of_folder(bundled):
    measured = {"run": random_run(0.2), "trials": (trial(bundled, "taps", 3),)}
    failures = (Failure("the run", "it broke", whole=True),)
    assert concluded(**measured).cause == "taps"
    assert concluded(checks=(Check("fc", "fault", "it is wrong", "this"),), failures=failures, **measured).cause == "fc"


def test_change_is_proved_without_level_only_if_common_alone_and_strong(bundled):
    taps = trial(bundled, "taps", 3)
    proved = concluded(run=random_run(0.3), trials=(taps,))
    assert (proved.cause, proved.fix, proved.changes) == ("taps", taps.variant.fix, (taps.variant,))
    assert proved.alpha == taps.run.alpha
    assert proved.sentence.startswith(f"With {taps.variant.description}, α is 4.55 instead of 1.")
    weak = concluded(run=random_run(2), trials=(taps,))  # accepted tokens do not double
    assert (weak.cause, weak.changes) == ("none", ())
    assert f"Of 1 change tried, {taps.variant.description} is the best: 4.55." in weak.sentence
    assert concluded(run=random_run(0.3), trials=(trial(bundled, "taps", 0.7),)).cause == "none"  # position 1 stays low
    rival = trial(bundled, "rope", 2.8)
    assert concluded(run=random_run(0.3), trials=(taps, rival)).cause == "none"  # another kind helps nearly as much
    assert concluded(run=random_run(0.3), trials=(taps, trial(bundled, "rope", 1))).cause == "taps"
    further = concluded(run=random_run(0.3), trials=(taps,), further=trial(bundled, "attention", 4))
    assert further.cause == "none"  # another change helps in addition, so there are two faults
    assert "is the best: 4.55; with a window of 32 in all layers too, 5.73." in further.sentence
    uncommon = replace(taps, variant=replace(taps.variant, common=False))
    assert concluded(run=random_run(0.3), trials=(uncommon,)).cause == "none"


def test_change_is_proved_with_level_only_if_it_reaches_it(bundled):
    attention = trial(bundled, "attention", 3)  # not a common mistake; α is 4.55 with it
    assert concluded(asked=Asked("d", expected=4.6), run=random_run(1), trials=(attention,)).cause == "attention"
    short = concluded(asked=Asked("d", expected=5.5), run=random_run(1), trials=(attention,))
    assert (short.cause, short.changes) == ("below", ())
    reached = concluded(asked=Asked("d", expected=1.5), run=random_run(1), trials=(attention,))
    assert reached.cause == "none"  # also without the change
    for level, cause in ((3, "attention"), (4, "below")):
        good = Reference(random_run(level), Estimate(2.0, 1.5, 2.5), ())
        assert concluded(reference=good, run=random_run(1), trials=(attention,)).cause == cause


def test_diagnose_names_exchanged_parts_only_if_few_and_restored(bundled):
    variant = trial(bundled, "taps", 3).variant
    swap = Exchange((), "fc", 0.1, variant, random_run(3), True, 5)
    good = Reference(random_run(3), Estimate(2.0, 1.5, 2.5), (), {"fc.weight": "rows in another order"}, True, swap)
    named = concluded(reference=good, run=random_run(1))
    assert (named.cause, named.changes, named.alpha) == ("exchange", (variant,), swap.run.alpha)
    assert "What lowers α is fc: with these parts of the reference, α is 4.55" in named.sentence
    many = concluded(reference=replace(good, exchange=replace(swap, parts=("fc",), share=0.6)), run=random_run(1))
    assert (many.cause, many.changes) == ("below", ())
    assert "more than half of all parts must come from it (fc): another training, or a fault of all of them. 1 of the 1 tensors that differ: rows in another order." in many.sentence  # fmt: skip
    unsure = concluded(reference=replace(good, exchange=replace(swap, restored=False)), run=random_run(1))
    assert "no exchange of its parts explains the difference" in unsure.sentence
    keys = (("num_hidden_layers", "2", "3"),)
    other = concluded(reference=replace(good, same_form=False, keys=keys, exchange=None), run=random_run(1))
    assert "of another kind or size, and their configs differ in num_hidden_layers (2; reference: 3)" in other.sentence
    alike = concluded(reference=replace(good, change=Estimate(0.1, -0.2, 0.4), exchange=None), **LOW)
    assert alike.cause == "none"
    assert "The reference drafts no better (4.55), although fc.weight differs; as both are low" in alike.sentence


@pytest.fixture
def sound(monkeypatch):
    """All folders pass the checks, even if there is no such folder."""
    monkeypatch.setattr(examination, "published_config", lambda _: {})
    monkeypatch.setattr(examination, "check_drafter_folder", lambda *_, **__: [Check("layout", "good", "nested")])


def test_examine_reports_stages_and_locks_engine_only_while_computing(tokenizer, monkeypatch, sound):
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

    def tell(progress):
        assert not engine.lock.locked()  # others may use the models between stages
        seen.append(progress.stage)

    found = Examination(asked, engine.models.target, engine, tell=tell).run()
    assert {"reading the folder", "generating the texts", "trying changes", "done"} < set(seen)
    assert found.diagnosis is not None
    assert "| expected by the drafter | " in doctor_report([found])


def test_examine_tries_chat_template(bundled, monkeypatch, sound):
    """The bundled target stops after “The end.”; the template makes it begin another story."""
    monkeypatch.setattr(examination, "TOKENS", 16)
    tokenizer = bundled.models.target.tokenizer
    story = "Once upon a time there was a little dog. The dog"
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n\n" + story + "{% endfor %}"
    prompts = ["They lived happily ever after. The end.", "Tom and his mom went home. They were happy.\n\nThe end.", "And they were very happy that day. The End."]  # fmt: skip
    try:
        found = Examination(Asked("d", prompts), bundled.models.target, bundled).run()
    finally:
        tokenizer.chat_template = None
    assert found.unusable == (3, 3)
    assert [(t.template, t.unusable) for t in found.templates] == [("the chat template", 0)]
    assert "The texts of 3 of 3 prompts are empty or repeat themselves" in found.diagnosis.sentence
    assert not found.names_fault


def test_examine_finds_faulty_part_by_exchange_with_reference(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 40)
    prompts = [*PROMPTS, "One day, Lily and Max went to the park. They saw", "Question: What is 3 + 4?"]
    folder = copied(tmp_path / "d", weights=each("mlp.down_proj.weight", lambda w: -w, 1))
    asked = Asked(str(folder), prompts, reference=str(TINY / "dflash"))
    one = Examination(asked, bundled.models.target)
    found = one.run()
    reference = found.reference
    assert dict(reference.tensors) == {"layers.1.mlp.down_proj.weight": "the reference's × -1"}
    assert [part.tensors for part in reference.exchange.parts] == [("layers.1.mlp.down_proj.weight",)]
    assert found.trials == ()  # the exchange explains the difference
    assert found.diagnosis.cause == "exchange"
    assert "What lowers α is down_proj of layer 1 (the reference's × -1)" in found.diagnosis.sentence
    assert f"α {found.run.alpha:.2f} → {reference.run.alpha:.2f}" in one.mend(tmp_path / "m")
    assert r"| layers.1.mlp.down\_proj.weight | the reference's × -1 | lowers α |" in doctor_report([found])
    data = found.to_dict()["reference"]
    assert data["parts"] == ["layers.1.mlp.down_proj.weight"]
    assert data["alpha_with_parts"] == data["alpha"]


def test_examine_vp_remarks_on_copy_of_first_drafter(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 8)
    monkeypatch.setattr(examination, "variants", lambda *args: [])
    asked = Asked(str(copied(tmp_path / "vp")), PROMPTS, visible=2, first=str(TINY / "dflash"))
    found = Examination(asked, bundled.models.target).run()
    (remark,) = found.remarks
    assert remark == "all of its weights equal the first drafter's: one is a copy of the other"
    other = replace(asked, drafter=str(TINY / "vp"))
    assert Examination(other, bundled.models.target).run().remarks == ()


def test_doctor_interrupt_reports_unexamined_drafters(bundled, monkeypatch, capsys):
    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(examination, "weight_remarks", stopped)
    assert main(["doctor", "tiny", str(TINY / "dflash"), "--vp", str(TINY / "vp")]) == 130
    first, second = capsys.readouterr().out.split(f"{TINY / 'vp'} for tiny/target")
    assert "Stopped before the end" in first
    assert "Not examined" in second
    assert "The folder" not in second
