"""A pair of drafters within the minutes given: the plan, what comes out, and what interrupts it."""

from __future__ import annotations

import json
import pkgutil
import shutil
import signal
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from d2sd import DecodeConfig, Engine, load
from d2sd.errors import InputError
from d2sd.train import pair, plan
from d2sd.train.acceptance import HeldOut
from d2sd.train.joint import PairObjective
from d2sd.train.pair import train_pair
from d2sd.train.plan import Speeds, divide
from d2sd.train.settings import PairTraining, RegenerateConfig
from d2sd.train.text import load_writer, regenerate, written
from tests.clocks import Ticking
from tests.train.texts import prompt_of, save_target, sums

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
        patch.setattr("d2sd.train.acceptance.HELD_OUT_TOKENS", 24)
        patch.setattr(plan, "FEWEST_STEPS", 60)
        yield


def settings(target, out, **more):
    prompts = tuple(prompt_of(text) for text in sums(300))
    return PairTraining(
        **{"target": target, "out": out, "minutes": MINUTES, "prompts": prompts, "max_new_tokens": 24, **more}
    )


def rows(out):
    return [json.loads(line) for line in (out / "training" / "metrics.jsonl").read_text().splitlines()]


def test_train_pair_fits_minutes_and_keeps_acceptance(target, tmp_path):
    train_pair(settings(target, tmp_path), Ticking(TICK))
    kept = json.loads((tmp_path / "pair.json").read_text())
    assert sum(kept["used"].values()) == pytest.approx(60 * MINUTES, rel=0.1)
    curve = [row["held_out_acceptance_length"] for row in rows(tmp_path) if "held_out_acceptance_length" in row]
    assert len(curve) == 5
    assert curve[-1] >= max(1.3, curve[0])  # both may be the most that there is
    engine = load(str(tmp_path))
    assert (engine.models.first.form.second_role, engine.models.second.form.second_role) == (False, True)
    plain = engine.generate("Question: Tom has", DecodeConfig("autoregressive", 24)).token_ids
    trace = engine.generate("Question: Tom has", DecodeConfig("d2sd", 24))
    assert trace.token_ids == plain
    assert trace.totals.mean_acceptance_length > 1.1
    card = (tmp_path / "README.md").read_text()
    assert f"| {rows(tmp_path)[-1]['step']} | {curve[-1]:.2f} |" in card


def test_train_pair_resumes_after_ctrl_c(target, tmp_path, monkeypatch):
    sample, calls = PairObjective.sample, []

    def interrupted(self, data, features, index, generator):
        calls.append(len(index))
        if len(calls) == 25:
            signal.raise_signal(signal.SIGINT)
        return sample(self, data, features, index, generator)

    monkeypatch.setattr(PairObjective, "sample", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run in the background
    given = settings(target, tmp_path, minutes=0.06)
    with pytest.raises(KeyboardInterrupt):
        train_pair(given, Ticking(TICK))
    signal.signal(signal.SIGINT, before)
    state = json.loads((tmp_path / "training" / "checkpoint" / "state.json").read_text())
    assert 0 < state["step"] <= 25
    load(str(tmp_path))
    responses = (tmp_path / "responses.jsonl").read_bytes()
    train_pair(given, Ticking(TICK))
    assert (tmp_path / "responses.jsonl").read_bytes() == responses
    steps = [row["step"] for row in rows(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] > state["step"]
    assert (tmp_path / "README.md").exists()
    with pytest.raises(InputError, match="made with other settings"):
        train_pair(settings(target, tmp_path, minutes=0.06, layers=3))


@pytest.fixture(scope="module")
def killed(target, tmp_path_factory):
    """Copies of a run's folder at some moments, as a kill at that moment leaves it, by the name of the moment."""
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
            ("writing", "d2sd.train.text", "_tokens", 10),  # called for every line
            ("held-out", "d2sd.train.pair", "save_drafter", 2),
            ("measuring", "d2sd.train.loop", "save_checkpoint", 3),
            ("ending", "d2sd.train.pair", "cool", 1),
            ("card", "d2sd.train.pair", "card", 1),
        ):
            place = f"{owner}.{method}"
            patch.setattr(place, copying(name, pkgutil.resolve_name(place), number))
        train_pair(settings(target, out, minutes=0.06), Ticking(TICK))
    return copies


@pytest.mark.parametrize("moment", ["writing", "held-out", "measuring", "ending", "card"])
def test_train_pair_resumes_after_kill(target, killed, moment):
    out = killed[moment]
    lines, state = (out / "responses.jsonl").read_bytes(), out / "training" / "checkpoint" / "state.json"
    assert not (out / "README.md").exists()
    done = json.loads(state.read_text())["step"] if state.exists() else 0
    assert (done > 0) == (moment not in ("writing", "held-out"))
    train_pair(settings(target, out, minutes=0.06), Ticking(TICK))
    assert (out / "responses.jsonl").read_bytes().startswith(lines)
    assert json.loads(state.read_text())["step"] > done or moment in ("ending", "card")
    steps = [row["step"] for row in rows(out)]
    assert steps == sorted(set(steps))
    assert (out / "README.md").exists()
    load(str(out))


def test_regenerate_stops_at_token_limit(target, tmp_path):
    writer, config = load_writer(target, None), RegenerateConfig(4, 8, greedy_share=1.0)
    prompts = [writer.tokenizer(prompt_of(text))["input_ids"] for text in sums(40)]
    regenerate(partial(written, writer, config=config), prompts, tmp_path / "r.jsonl", config, {}, most=500)
    rows = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    lengths = [len(row["prompt_ids"]) + len(row["response_ids"]) for row in rows]
    assert 500 <= sum(lengths) < 500 + max(lengths)


def test_train_pair_writes_questions_for_chat_model(target, tmp_path, monkeypatch):
    monkeypatch.setattr(pair, "FIRST_WORDS", ("Question: Tom", "Question: Mia"))
    chat = shutil.copytree(target, tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(chat)
    end = "\nAnswer:"  # behind which this target writes something, for most questions
    tokenizer.chat_template = f"{{% for m in messages %}}<|endoftext|>{{{{ m['content'] }}}}{end}{{% endfor %}}"
    tokenizer.save_pretrained(chat)
    out = tmp_path / "out"

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pair, "features_of", stop)  # all is written by then
    with pytest.raises(KeyboardInterrupt):
        train_pair(settings(chat, out, prompts=()), Ticking(TICK / 4))
    questions = [json.loads(line)["prompt"] for line in (out / "questions.jsonl").read_text().splitlines()]
    assert len(questions) == len(set(questions)) > 10
    assert all(q.startswith(("Question: Tom", "Question: Mia")) for q in questions)
    answered = [json.loads(line)["prompt_ids"] for line in (out / "responses.jsonl").read_text().splitlines()]
    texts = {tokenizer.decode(ids, skip_special_tokens=True).removesuffix(end) for ids in answered}
    assert texts < set(questions)  # some are held out


def test_held_out_continues_until_non_empty_text(target, monkeypatch):
    texts = iter([1, 1, 3, 3])
    monkeypatch.setattr(Engine, "generate", lambda *_: SimpleNamespace(token_ids=[0] * next(texts)))
    assert len(HeldOut(load_writer(target, None), ["a", "b", "c", "d"], False, lambda: True)) == 1


SPEEDS = Speeds(writing=1000.0, features=10_000.0, training=100.0, batch=128)


@pytest.mark.parametrize("questions", [True, False])
def test_divide_fills_given_seconds(questions):
    divided = divide(SPEEDS, 600, 10**9, 64, questions, None)
    assert sum(divided.seconds.values()) == pytest.approx(600 * (1 - 0.03 - 5 * 0.015 - 0.02))
    assert divided.tokens == pytest.approx(1000 * divided.seconds["writing"], abs=1000)
    assert divided.seconds["training"] * 100 == pytest.approx(plan.ANCHORS_PER_TOKEN * divided.tokens, rel=0.01)
    assert (divided.seconds["questions"] > 0) == questions


def test_divide_adds_text_before_training():
    short, long, longest = (divide(SPEEDS, seconds, 100_000, 64, False, None) for seconds in (300, 600, 1200))
    assert short.tokens < long.tokens <= longest.tokens == 100_000
    assert longest.seconds["writing"] == pytest.approx(100)
    assert longest.seconds["training"] > 2 * long.seconds["training"]
    assert divide(SPEEDS, 600, 10**9, 64, False, 50).tokens == 50


def test_train_pair_without_chat_template_needs_prompts(target, tmp_path):
    with pytest.raises(InputError, match="give it texts to continue with --prompts"):
        train_pair(settings(target, tmp_path, prompts=()), Ticking(TICK))
    with pytest.raises(InputError, match="give 10 or more with --prompts"):
        train_pair(settings(target, tmp_path / "few", prompts=("Question: Tom",)), Ticking(TICK))
