"""``d2sd train pair``: the plan for the given minutes, the trained pair, and resuming after interruptions."""

from __future__ import annotations

import json
import pkgutil
import shutil
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from d2sd import DecodeConfig, load
from d2sd.calibration.alternatives import GRID
from d2sd.errors import InputError
from d2sd.folders.fingerprint import changes_since
from d2sd.folders.loading import load_target
from d2sd.folders.model_sets import named_from
from d2sd.train import pair, plan
from d2sd.train.acceptance import HeldOut, held_out_temperature
from d2sd.train.pair import State, train_pair
from d2sd.train.plan import Speeds, divide
from d2sd.train.settings import PairTraining, RegenerateConfig
from d2sd.train.text import respond_to
from tests.clocks import Ticking
from tests.train.texts import prompt_of, rows, save_target, sums

MINUTES, TICK = 0.1, 0.02


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    out = tmp_path_factory.mktemp("target") / "target"
    save_target(sums(300), out, 30)
    return out


@pytest.fixture(autouse=True, scope="module")
def small():
    """Short texts and few steps, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("d2sd.train.pair.HELD_OUT_TOKENS", 24)
        patch.setattr(plan, "FEWEST_STEPS", 60)
        yield


def settings(target, out, **more):
    prompts = tuple(prompt_of(text) for text in sums(300))
    return PairTraining(
        **{"target": target, "out": out, "minutes": MINUTES, "prompts": prompts, "max_new_tokens": 24, **more}
    )


def test_train_pair_fits_minutes_and_keeps_acceptance(target, tmp_path, capsys):
    train_pair(settings(target, tmp_path), Ticking(TICK))
    kept = json.loads((tmp_path / "pair.json").read_text())
    assert sum(kept["used"].values()) == pytest.approx(60 * MINUTES, rel=0.1)
    metrics = rows(tmp_path / "training" / "metrics.jsonl")
    (alpha,) = [row["held_out_acceptance_length"] for row in metrics if "held_out_acceptance_length" in row]
    assert alpha >= 1.3
    assert kept["plan"]["held_out"] >= 10
    engine = load(str(tmp_path))
    assert (engine.models.first.form.second_role, engine.models.second.form.second_role) == (False, True)
    plain = engine.generate("Question: Tom has", DecodeConfig("autoregressive", 24)).token_ids
    trace = engine.generate("Question: Tom has", DecodeConfig("d2sd", 24))
    assert trace.token_ids == plain
    assert trace.totals.mean_acceptance_length > 1.1
    for name, drafter in (("dflash", engine.models.first), ("vp", engine.models.second)):
        assert changes_since(str(tmp_path / name), drafter, engine.models.target, str(target)) == ()
    card, err = (tmp_path / "README.md").read_text(), capsys.readouterr().err
    assert f"| {metrics[-1]['step']} | {alpha:.2f} |" in card
    assert f"| training | {metrics[-1]['step']:,} steps, " in card
    assert f"with d2sd on {kept['plan']['held_out']} held-out texts" in err
    assert " tokens.\n" in err.partition("Computing the target’s features of ")[2]
    assert err.count("The mask token is ") == 1
    assert f"on {kept['plan']['held_out']} held-out texts. α is" in card
    assert "| temperature | 1: fitting and judging it needs 60 responses" in card


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("runs/a/own", "own"),
        ("runs/target", "../target"),
        ("target", "{}/target"),
        ("runs/b/target", "{}/runs/b/target"),
        ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B"),
    ],
)
def test_target_of_run_is_named_so_that_run_can_be_moved(tmp_path, monkeypatch, target, named):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/a/own", "runs/target", "target", "runs/b/target"):
        Path(folder).mkdir(parents=True)
    for path in (target, str(tmp_path / target)) if Path(target).exists() else (target,):
        assert named_from(Path("runs/a"), path) == named.format(tmp_path.as_posix())


@pytest.fixture(scope="module")
def killed(target, tmp_path_factory):
    """Copies of a run's folder by moment, each as a kill at that moment would leave it."""
    out, copies = tmp_path_factory.mktemp("killed") / "run", {}

    def copying(name, work, number):
        calls = count(1)

        def called(*given, **more):
            if next(calls) == number:
                copies[name] = shutil.copytree(out, out.with_name(name))
            return work(*given, **more)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name, owner, method, number in (
            ("held-out", "d2sd.train.pair", "save_drafter", 2),
            ("measuring", "d2sd.train.loop", "save_checkpoint", 3),
            ("ending", "d2sd.train.pair", "calibrated", 1),  # when the model card is written
        ):
            place = f"{owner}.{method}"
            patch.setattr(place, copying(name, pkgutil.resolve_name(place), number))
        patch.setattr(pair, "MEASURING", 0.6)  # time for all points
        train_pair(settings(target, out, minutes=0.06), Ticking(TICK))
    return copies


@pytest.mark.parametrize("moment", ["held-out", "measuring", "ending"])
def test_train_pair_resumes_after_kill(target, killed, moment, monkeypatch, capsys):
    out = killed[moment]
    lines, state = (out / "responses.jsonl").read_bytes(), out / "training" / "checkpoint" / "state.json"
    assert not (out / "README.md").exists()
    done = json.loads(state.read_text())["step"] if state.exists() else 0
    assert (done > 0) == (moment != "held-out")
    texts = (out / "held-out.jsonl").read_bytes()
    monkeypatch.setattr(pair, "MEASURING", 0.6)
    train_pair(settings(target, out, minutes=0.06), Ticking(TICK))
    assert " tokens again.\n" in capsys.readouterr().err.partition("Computing the target’s features of ")[2]
    assert (out / "held-out.jsonl").read_bytes().startswith(texts)
    metrics = rows(out / "training" / "metrics.jsonl")
    assert sum("held_out_acceptance_length" in row for row in metrics) == 5
    assert (out / "responses.jsonl").read_bytes() == lines
    assert json.loads(state.read_text())["step"] > done or moment == "ending"
    steps = [row["step"] for row in metrics]
    assert steps == sorted(set(steps))
    assert (out / "README.md").exists()
    load(str(out))
    with pytest.raises(InputError, match="made with other settings"):
        train_pair(settings(target, out, minutes=0.06, layers=3))


def test_train_pair_writes_questions_for_chat_model(target, tmp_path, monkeypatch):
    monkeypatch.setattr(pair, "FIRST_WORDS", ("Question: Tom", "Question: Mia"))
    chat = shutil.copytree(target, tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(chat)
    end = "\nAnswer:"  # after this, the target writes something for most questions
    tokenizer.chat_template = f"{{% for m in messages %}}<|endoftext|>{{{{ m['content'] }}}}{end}{{% endfor %}}"
    tokenizer.save_pretrained(chat)
    out = tmp_path / "out"

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pair, "Features", stop)  # all texts are written by then
    with pytest.raises(KeyboardInterrupt):
        train_pair(settings(chat, out, prompts=()), Ticking(TICK / 4))
    questions = [row["prompt"] for row in rows(out / "questions.jsonl")]
    assert len(questions) == len(set(questions)) > 10
    assert all(q.startswith(("Question: Tom", "Question: Mia")) for q in questions)
    answered = [row["prompt_ids"] for row in rows(out / "responses.jsonl")]
    texts = {tokenizer.decode(ids, skip_special_tokens=True).removesuffix(end) for ids in answered}
    assert texts < set(questions)  # some are held out


def test_state_keeps_time_of_running_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(pair, "KEPT_EVERY", 3)
    state = State(tmp_path / "pair.json", {}, Ticking(1))
    with state.stage("writing"):
        for _ in range(10):
            state.over()
        killed = State(tmp_path / "pair.json", {}, Ticking(1))
        assert 7 < killed.used["writing"] < state.used["writing"]
        assert not killed.done
    assert State(tmp_path / "pair.json", {}, Ticking(1)).done == ["writing"]


def test_held_out_leaves_out_texts_without_drafts_and_of_other_models(target, capsys):
    writer = load_target(str(target), batched=True)
    prompts = [list(writer.tokenizer(prompt_of(text))["input_ids"]) for text in sums(3)]
    first, second, third = respond_to(writer, prompts, RegenerateConfig(max_new_tokens=8))
    other = [*second[:-1], (second[-1] + 1) % 500]
    assert HeldOut(writer, zip(prompts, [first, other, third[:1]], strict=True)).lengths == [len(first)]
    assert "2 of 3 answers cannot be used: empty, or different without batching" in capsys.readouterr().err


def test_acceptance_is_measured_on_at_least_ten_texts():
    for lengths, seconds, expected in (
        ([64] * 32, 400, (5, 12, 64)),
        ([64] * 32, 60, (1, 18, 32)),
        ([64] * 32, 31, (0, 9, 32)),
        ([64] * 9, 400, (0, 9, 32)),
    ):
        assert plan.points_of(lengths, 0.1, seconds) == expected
    assert pair.acceptance([], 1).endswith("10 held-out texts, but 1 held-out text could be used")


def outcomes_of(temperatures, count=60):
    """A fake objective, whose tokens are right as often as logits / temperature predict, and fake features."""
    odds = torch.linspace(-2, 3, 24)
    sure = torch.stack([(odds / t).sigmoid() for t in GRID], -1)
    texts = []
    for number in range(count):
        chance, draw = (odds / temperatures[number % 2]).sigmoid(), torch.Generator().manual_seed(number)
        texts.append((sure, torch.rand(24, generator=draw) < chance))
    first = SimpleNamespace(drafter=SimpleNamespace(device="cpu"), outcomes=lambda _, ids: texts[int(ids)])
    return first, SimpleNamespace(batch=lambda _, index, __: {"ids": index[:, None]})


@pytest.mark.parametrize(("temperatures", "divided"), [((2, 2), True), ((1, 1), False), ((2, 0.8), False)])
def test_temperature_is_fitted_and_judged_on_different_halves(temperatures, divided):
    temperature = held_out_temperature(*outcomes_of(temperatures), torch.arange(60))
    assert (temperature.fitted, temperature.judged) == (30, 30)
    assert temperature.tried == pytest.approx(temperatures[0], rel=0.25)
    assert temperature.divisor == (temperature.tried if divided else 1)
    assert ("logits of `dflash` are divided by it" in pair.calibrated(temperature)) == divided


SPEEDS = Speeds(writing=1000.0, features=10_000.0, training=100.0, batch=128)


@pytest.mark.parametrize("questions", [True, False])
def test_divide_fills_given_seconds(questions):
    divided = divide(SPEEDS, 600, 10**9, 64, questions, None)
    assert sum(divided.seconds.values()) == pytest.approx(600 * (1 - 0.03 - 5 * 0.015 - 0.02))
    assert divided.tokens == pytest.approx(1000 * divided.seconds["writing"], abs=1000)
    assert (divided.seconds["questions"] > 0) == questions


def test_divide_adds_text_before_training():
    short, long, longest = (divide(SPEEDS, seconds, 100_000, 64, False, None) for seconds in (300, 600, 1200))
    assert short.tokens < long.tokens <= longest.tokens == 100_000
    assert longest.seconds["writing"] == pytest.approx(100)
    assert longest.seconds["training"] > 2 * long.seconds["training"]
    assert divide(SPEEDS, 600, 10**9, 64, False, 50).tokens == 50


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"minutes": float("nan")}, "minutes must be a number above 0"),
        ({"minutes": 0}, "minutes must be a number above 0"),
        ({"prompts": ()}, "give texts to continue with --prompts"),  # the target has no chat template
        ({"prompts": ("Question: Tom",)}, "give 10 or more with --prompts"),
    ],
)
def test_train_pair_refuses_unusable_settings(target, tmp_path, changed, sentence):
    with pytest.raises(InputError, match=sentence):
        train_pair(settings(target, tmp_path, **changed), Ticking(TICK))
