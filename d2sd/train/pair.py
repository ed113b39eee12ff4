"""Trains a first drafter and a VP-Drafter for a target within a given time, as for the bundled SmolLM2 drafters.

First, the speeds of writing text, computing features and training are measured. From these speeds, the amount of text is chosen, so
that the time suffices for all stages. Then the target writes the text, features are computed, both drafters are trained in one
loop, the first drafter is calibrated, and a model card is written. All results are stored in the output folder, so that the same
command resumes an interrupted run.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from d2sd.__about__ import __version__
from d2sd.errors import InputError
from d2sd.folders.fingerprint import fingerprint
from d2sd.folders.model_sets import named_from
from d2sd.folders.weights import weights_digest
from d2sd.trace.files import write_whole
from d2sd.trace.text import duration
from d2sd.train.acceptance import HeldOut
from d2sd.train.block_drafters import mask_id, save_drafter
from d2sd.train.drafters import save_marked
from d2sd.train.eagle3 import train_eagle3
from d2sd.train.features import batch_of, feature_bytes
from d2sd.train.files import digest_of
from d2sd.train.joint import (
    ANCHORS,
    BETA,
    FEWEST_JUDGED,
    PairObjective,
    Temperature,
    divide_logits,
    features_of,
    held_out_temperature,
    new_pair,
    taps_of,
)
from d2sd.train.loop import digest, train
from d2sd.train.plan import (
    ENDING,
    FEWEST_TEXTS,
    HELD_OUT_TOKENS,
    LONGEST,
    MEASURING,
    POINTS,
    TYPICAL,
    WRITING_HELD_OUT,
    TrainingPlan,
    describe,
    divide,
    measure_speeds,
    points_of,
    seconds_of,
)
from d2sd.train.settings import (
    QUESTIONS,
    Clock,
    Eagle3Objective,
    Eagle3Training,
    LoopConfig,
    PairTraining,
    RegenerateConfig,
)
from d2sd.train.text import (
    ask,
    load_writer,
    prompt_ids,
    read_jsonl,
    read_responses,
    regenerate,
    repeat_key,
)
from d2sd.train.writer import Stop, most_rows, write

# Beginnings of questions, used in turn. If the beginning is empty, the model writes the whole question.
FIRST_WORDS = ("", "", "", "", "Why ", "How do I ", "What is ", "Write a short story about ", "Explain ", "I need advice on ",
               "Write a Python function that ", "", "Calculate ", "Tell me about ", "What are the ", "Can you write ", "If ",
               "How does ", "Tell me a story about ", "What is the sum of ", "A ", "Write a function to ", "How can I ", "Give me ",
               "Describe ", "Write a poem about ", "Who ", "What should I ", "My ", "Summarize ", "What happens ", "Solve ")  # fmt: skip
HELD_OUT, VALIDATION = 32, 128  # maximum numbers of prompts to measure α on, and of responses to calibrate on
KEPT_EVERY = 5  # seconds between writes of the elapsed time of a stage
SCHEDULE = 1000  # steps of the time-based training schedules
EAGLE3_SHARE = 0.1  # share of EAGLE-3 in the time of a recipe


class State:
    """State from which a run resumes, stored in ``pair.json``: the plan, finished stages, and elapsed seconds of each stage."""

    def __init__(self, path: Path, identity: dict[str, Any], clock: Clock):
        """Reads the file ``path`` if it exists. Raises ``InputError`` if it belongs to a run with other settings that has finished
        a stage.
        """
        self._path, self._identity, self._clock = path, digest_of(identity), clock
        self._used, self.plan, self.done = dict[str, float](), None, list[str]()
        # name and start time of the stage, as if it had not been interrupted
        self._running: tuple[str, float] | None = None
        self._kept = -math.inf  # time of the last write
        if path.exists():
            kept = json.loads(path.read_bytes())
            same = kept["identity"] == self._identity
            if not same and kept["done"]:
                raise InputError(f"{path.parent} was made with other settings, prompts or minutes; give the same ones to resume, or name another folder")  # fmt: skip
            if same:  # otherwise no stage of the earlier run finished, for example because its settings were rejected
                self._used, self.done = kept["used"], kept["done"]
                self.plan = None if kept["plan"] is None else msgspec.convert(kept["plan"], TrainingPlan)

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[], bool]]:
        """Context of a stage. Yields a function that returns whether the stage has used its planned seconds.

        If no exception is raised, the stage counts as done. The state is written in any case.
        """
        start = self._clock() - self._used.get(name, 0.0)
        planned = self.plan.seconds.get(name, 0.0) if self.plan else 0.0
        self._running = name, start

        def over() -> bool:
            now = self._clock()
            if now - self._kept >= KEPT_EVERY:
                self.keep()
            return now - start >= planned

        try:
            yield over
            if name not in self.done:
                self.done.append(name)
        finally:
            self._used, self._running = self.used, None
            self.keep()

    def keep(self) -> None:
        """Writes the file, so that the elapsed time is known even if the run is killed."""
        self._kept = self._clock()
        write_whole(self._path, json.dumps({"identity": self._identity, "used": self.used, "done": self.done,
                                            "plan": msgspec.to_builtins(self.plan)}))  # fmt: skip

    @property
    def used(self) -> dict[str, float]:
        if self._running is None:
            return self._used
        name, start = self._running
        return {**self._used, name: self._clock() - start}

    @property
    def spent(self) -> float:
        return sum(self.used.values())


# Sentences about the result.


def acceptance(curve: Sequence[dict[str, float]], texts: int) -> str:
    """Returns a sentence with the newest α of both methods, or with the reason why α was not measured.

    curve: the logged rows of training with a measured α.
    texts: number of measured held-out texts; if ``curve`` is empty, the number of held-out texts for which there would be time.
    """
    number = f"{texts} held-out text{'' if texts == 1 else 's'}"
    if not curve:
        return f"α of dflash and d2sd was not measured: {number} could be used, but at least {FEWEST_TEXTS} are needed"
    alone, both = (curve[-1][name] for name in ("held_out_acceptance_length", "d2sd_acceptance_length"))
    return f"α {alone:.2f} with dflash and {both:.2f} with d2sd on {number}"


def calibrated(temperature: Temperature) -> str:
    """Returns a sentence about the temperature of the first drafter."""
    if temperature.tried is None:
        return f"the logits of `dflash` are unchanged: fitting and judging a temperature needs {2 * FEWEST_JUDGED} responses that were not trained on"
    fitted = f"{temperature.tried:.2f}, fitted on {temperature.fitted} responses that were not trained on"
    if temperature.divisor == 1:
        return f"the logits of `dflash` are unchanged: a temperature of {fitted}, was not clearly better on {temperature.judged} others"
    return f"the logits of `dflash` are divided by a temperature of {fitted}; it was clearly better on {temperature.judged} others"


# Stages of the run.


def train_pair(settings: PairTraining, clock: Clock = time.monotonic) -> None:
    """Trains both drafters and saves them in ``dflash`` and ``vp`` under the output folder, with a model card.

    The output folder can be used as ``--model``. Raises ``InputError`` if the settings do not fit the target, or if there is no
    training text.

    clock: function that returns the time in seconds.
    """
    began, out = clock(), settings.out
    out.mkdir(parents=True, exist_ok=True)
    state = State(out / "pair.json", json.loads(json.dumps(asdict(settings) | {"out": None}, default=str)), clock)
    if "ending" in state.done:
        print(f"{out} already contains trained drafters; name another folder to train again.", file=sys.stderr)
        return
    state.keep()  # marks the folder as a training folder, even if this run is killed
    with state.stage("start"):
        run = PairRun(settings, state, clock, began)
    with state.stage("questions") as over:
        run.write_questions(over)
    with state.stage("writing") as over:
        run.write_responses(over)
    with state.stage("features"):
        run.read_features()
    with state.stage("held-out"):
        run.make_drafters()
        run.write_held_out()
    with state.stage("training"):
        run.train()
    with state.stage("ending"):
        run.write_card(run.calibrate())
    print(f"{out}: {acceptance(run.curve, run.plan.held_out)}, in {duration(state.spent)}. "
          f"Try it: d2sd generate --model {out} --prompt …", file=sys.stderr)  # fmt: skip


class PairRun:
    """The stages of ``train_pair``, which calls one or two methods of this class per stage.

    data: the target's responses.
    features: the target's features that both drafters read.
    first, second: the drafters.
    validation: number of responses that are not trained on; they are the last ones.
    """

    def __init__(self, settings: PairTraining, state: State, clock: Clock, began: float):
        """Loads the target and, unless the run is resumed, plans the run.

        began: time at which the run began, by ``clock``.
        """
        self._settings, self._state, self._clock, self._out = settings, state, clock, settings.out
        target = load_writer(settings.target, settings.dtype or ("bfloat16" if torch.cuda.is_available() else None))
        self.target, self._chat = target, bool(target.tokenizer.chat_template)
        if not settings.prompts and not self._chat:
            raise InputError(f"{target.name} has no chat template, so this model cannot write questions; give texts to continue with --prompts")  # fmt: skip
        if settings.mask_token is not None:
            mask_id(target.tokenizer, target.model, set(), settings.mask_token)
        self.plan = state.plan = state.plan or self._planned(began)
        print(describe(self.plan, target.device.type), file=sys.stderr)
        write_whole(self._out / "target", f"{named_from(self._out, settings.target)}\n")

    def _planned(self, began: float) -> TrainingPlan:
        """Measures this machine's speeds, and returns the plan for the remaining time."""
        settings, target, chat, total = self._settings, self.target, self._chat, 60 * self._settings.minutes
        rows = most_rows(target, LONGEST + settings.max_new_tokens)
        if not chat:
            rows = min(rows, max(1, len(settings.prompts)))
        speeds = measure_speeds(settings, target, rows, self._clock)
        bytes_per_token = 2 * len(taps_of(settings, target)) * target.config.hidden_size
        given = len(settings.prompts) * (TYPICAL if chat else settings.max_new_tokens)
        left = total - (self._clock() - began)
        if left < total / 2:
            raise InputError(f"{settings.minutes:g} minutes are too few: measuring this machine's speeds took more than half of them; give more --minutes")  # fmt: skip
        plan = divide(speeds, left, sum(feature_bytes(target.device)) // bytes_per_token, rows, False, None)
        return divide(speeds, left, plan.room, rows, chat and given < plan.tokens, None if chat else given)

    def write_questions(self, over: Stop) -> None:
        """Lets the target write questions, if the plan has time for this.

        over: function that returns whether the planned time is used up.
        """
        plan = self.plan
        if plan.seconds["questions"] and "questions" not in self._state.done:
            config = replace(QUESTIONS, batch_size=plan.rows, seed=self._settings.seed)
            attempts = max(plan.rows, plan.tokens // 30)
            ask(self.target, FIRST_WORDS, attempts, self._out / "questions.jsonl", config, over)

    def write_responses(self, over: Stop) -> None:
        """Lets the target answer the training prompts.

        over: as for ``write_questions``.
        """
        prompts, self._held_out_prompts = self._prompts()
        if "writing" not in self._state.done:
            config = RegenerateConfig(self.plan.rows, self._settings.max_new_tokens, seed=self._settings.seed)
            self._answer(prompts, "responses.jsonl", config, over, self.plan.room)

    def _prompts(self) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the token ids of the training prompts, shuffled, and of the held-out prompts. Raises ``InputError`` if there are
        too few.
        """
        settings, target, path = self._settings, self.target, self._out / "questions.jsonl"
        questions = [row["prompt"] for row in read_jsonl(path, "prompt")] if path.exists() else []
        texts = {repeat_key(text): text for text in (*settings.prompts, *questions)}
        for text in settings.held_out:
            texts.pop(repeat_key(text), None)
        mixed = list(texts.values())
        random.Random(settings.seed).shuffle(mixed)
        # Hold out a tenth of the prompts, but at least FEWEST_TEXTS (or a quarter of the prompts, if less) and at most HELD_OUT.
        count = 0 if settings.held_out else min(HELD_OUT, max(len(mixed) // 10, min(FEWEST_TEXTS, len(mixed) // 4)))

        def encoded(texts: Sequence[str]) -> list[list[int]]:
            ids = (prompt_ids(target.tokenizer, target.name, text, self._chat) for text in texts)
            return [prompt for prompt in ids if 0 < len(prompt) <= LONGEST]

        training, held_out = encoded(mixed[count:]), encoded([*settings.held_out, *mixed[:count]])
        if not held_out or not training:
            raise InputError(f"too few different prompts of at most {LONGEST} tokens (there are {len(mixed)} of any length); give 10 or more with --prompts, or more --minutes")  # fmt: skip
        return training, held_out

    def _answer(
        self, prompts: Sequence[list[int]], name: str, config: RegenerateConfig, stop: Stop, most: int | None = None
    ) -> None:  # fmt: skip
        """Writes the target's answers to the prompts into the file ``name`` of the output folder.

        stop: as for ``write``.
        most: as for ``regenerate``.
        """
        target = self.target
        in_order = lambda requests: write(target, sorted(requests, key=lambda r: r.number), config, stop)  # noqa: E731
        identity = {**asdict(config), "target": weights_digest(target.base)}
        regenerate(in_order, prompts, self._out / name, config, identity, most)

    def read_features(self) -> None:
        longest, end = LONGEST + self._settings.max_new_tokens, self.target.tokenizer.eos_token_id
        self.data = read_responses(self._out / "responses.jsonl", longest, end)
        again, began = " again" if "features" in self._state.done else "", self._clock()
        print(f"Computing the target’s features of {int(self.data.lengths.sum()):,} tokens{again}.", file=sys.stderr)
        self.features = features_of(self._settings, self.target, self.data)
        self._seconds_of_features = self._clock() - began
        self.validation = min(VALIDATION, len(self.data.ids) // 10)
        if self.validation < 2 * FEWEST_JUDGED:
            self.validation = 0  # too few to fit and judge a temperature, so train on all responses

    def make_drafters(self) -> None:
        self.first, self.second = new_pair(self._settings, self.target, self.data)
        self._mark = fingerprint(str(self._settings.target), self.target.tokenizer, self.target.config, self.first)
        self._objective = PairObjective(self.first, self.second, self.target.model)

    def save(self) -> None:
        for name, drafter in (("dflash", self.first), ("vp", self.second)):
            save_marked(save_drafter, drafter, self._out / name, self._mark)

    def write_held_out(self) -> None:
        """Lets the target answer the held-out prompts, and plans the measurements of α and the time for training."""
        state, path, total = self._state, self._out / "held-out.jsonl", 60 * self._settings.minutes
        finished = "held-out" in state.done
        if not finished:
            latest = self._clock() + WRITING_HELD_OUT * total
            config = RegenerateConfig(HELD_OUT, HELD_OUT_TOKENS)
            self._answer(self._held_out_prompts, path.name, config, lambda: self._clock() >= latest)
        rows = read_jsonl(path, "prompt_ids", "response_ids")
        self._held_out = HeldOut(self.target, ((row["prompt_ids"], row["response_ids"]) for row in rows))
        if finished:
            return
        self.save()  # from now on, the folder can be loaded
        lengths = self._held_out.lengths
        points, texts, tokens, last = 0, len(lengths), HELD_OUT_TOKENS, 0.0
        if texts >= FEWEST_TEXTS:
            seconds_per_token = seconds_of(lambda: self.measure(1, tokens), 0.0, self._clock) / lengths[0]
            points, texts, tokens = points_of(lengths, seconds_per_token, MEASURING * total)
            last = seconds_per_token * sum(min(n, tokens) for n in lengths[:texts]) if points else 0.0
        # training gets the remaining time, except for the last measurement and the last stage
        seconds = {**self.plan.seconds, "training": max(1.0, total - state.spent - last - ENDING * total)}
        changes = {"seconds": seconds, "points": points, "held_out": texts, "tokens_held_out": tokens}
        self.plan = state.plan = msgspec.structs.replace(self.plan, **changes)
        if not points:
            print(f"Held-out prompts: {acceptance([], texts)}.", file=sys.stderr)

    def measure(self, texts: int, tokens: int) -> dict[str, float]:
        """Returns α of both methods over the first held-out texts.

        texts: number of texts.
        tokens: maximum tokens of each text.
        """
        alone, both = (
            self._held_out.measure(method, self.first, self.second, texts, tokens) for method in ("dflash", "d2sd")
        )
        return alone | {"d2sd_acceptance_length": both["held_out_acceptance_length"]}

    def _evaluate(self, last: bool) -> dict[str, float]:
        """Saves both drafters, and measures α if the plan has time for this. Returns the measured figures.

        last: whether training ends.
        """
        self.save()
        self._state.keep()
        plan = self.plan
        if not plan.points or (plan.points == 1 and not last):
            return {}
        figures = self.measure(plan.held_out, plan.tokens_held_out)
        print(f"Held-out prompts: {acceptance([figures], plan.held_out)}.", file=sys.stderr)
        return figures

    def train(self) -> None:
        """Trains both drafters in place. They are saved even if Ctrl-C interrupts the training."""
        data, seed = self.data, self._settings.seed
        loop = LoopConfig(
            SCHEDULE, self.plan.batch, seconds=self.plan.seconds["training"], save_every=SCHEDULE // POINTS, seed=seed
        )
        sample = partial(batch_of, self._objective, data, self.features)
        count, identity = len(data.ids) - self.validation, {"data": digest(data.ids)}
        try:
            train(
                self._objective, count, sample, self._out / "training", loop, self._evaluate, "pair", identity, clock=self._clock
            )  # fmt: skip
        except KeyboardInterrupt:
            self.save()
            raise

    def calibrate(self) -> Temperature:
        """Divides the first drafter's logits by a temperature if this is clearly better, and saves both drafters. Returns the
        temperature.
        """
        count = len(self.data.ids)
        held_out = torch.arange(count - self.validation, count)
        temperature = held_out_temperature(self._objective, self.data, self.features, held_out)
        divide_logits(self.first, temperature.divisor)
        self.save()
        return temperature

    @property
    def curve(self) -> list[dict[str, float]]:
        """The logged rows of training in which α was measured."""
        logged = map(json.loads, (self._out / "training" / "metrics.jsonl").read_bytes().splitlines())
        return [row for row in logged if "held_out_acceptance_length" in row]

    def write_card(self, temperature: Temperature) -> None:
        """Writes the model card."""
        settings, target, data, drafter, plan = self._settings, self.target, self.data, self.first, self.plan
        form, curve, used = drafter.form, self.curve, self._state.used
        checkpoint = json.loads((self._out / "training" / "checkpoint" / "state.json").read_bytes())
        rows = int(checkpoint["rows"])
        device = (
            torch.cuda.get_device_name(target.device)
            if target.device.type == "cuda"
            else f"CPU, {torch.get_num_threads()} threads"
        )
        tokens, anchors = int(data.lengths.sum()), rows * ANCHORS
        facts = {
            "target": f"{settings.target}, {target.numbers}, fingerprint {weights_digest(target.base)}",
            "machine": f"{device}; torch {torch.__version__}, transformers {transformers.__version__}, d2sd {__version__}",
            "date": datetime.now(UTC).date().isoformat(),
            "drafters": f"{len(drafter.layers)} layers, γ = {form.block_size}, target features of layers {', '.join(map(str, form.taps))}, "
            f"{form.draft_vocabulary or target.config.vocab_size:,} tokens, Markov head of rank {form.markov_rank}, mask token {target.tokenizer.convert_ids_to_tokens(form.mask_token)}; "
            f"{sum(p.numel() for p in drafter.parameters()) / 1e6:.1f}M parameters each, bfloat16",
            "text": f"{len(data.ids):,} greedy responses of at most {settings.max_new_tokens} tokens; {tokens:,} tokens including the prompts",
            "training": f"{checkpoint['step']:,} steps, {rows:,} sequences ({rows / len(data.ids):.1f} epochs) with {ANCHORS} anchors each, {anchors:,} anchors in all; batches of "
            f"{plan.batch}; Muon and AdamW; D-PACE loss weights; the VP-Drafter sees l tokens with probability ∝ {BETA:g}^l",
            "time": ", ".join(f"{name} {duration(seconds)}" for name, seconds in used.items()) + f"; {settings.minutes:g} minutes were planned",
            "speeds": f"{tokens / used['writing']:,.0f} tokens/s written, features for {tokens / self._seconds_of_features:,.0f} tokens/s, "
            f"{anchors / used['training']:,.0f} anchors/s in training both drafters (including measurements of α)",
            "temperature": calibrated(temperature),
        }  # fmt: skip
        table = "".join(f"| {name} | {fact} |\n" for name, fact in facts.items())
        steps = "".join(
            f"| {int(row['step'])} | {row['held_out_acceptance_length']:.2f} | {row['d2sd_acceptance_length']:.2f} | {row['draft_length']:.2f} |\n"
            for row in curve
        )
        if curve:
            steps = f"\n| step | α `dflash` | α `d2sd` | draft length in training |\n| --- | --- | --- | --- |\n{steps}"
        text = f"""# Drafters for {settings.target}

A DFlash drafter (`dflash/`) and a VP-Drafter for D²SD (`vp/`), trained by `d2sd train pair`. Run them with `d2sd generate --model FOLDER`.

| | |
| --- | --- |
{table}
{acceptance(curve, plan.held_out).replace("dflash", "`dflash`").replace("d2sd", "`d2sd`")}. α is the number of committed tokens per step, at temperature 0, on the
first {plan.tokens_held_out} tokens of answers to prompts that were not trained on. Unless held-out prompts were given, these prompts resemble the
training prompts: expect a lower α on other kinds of text.
{steps}"""
        write_whole(self._out / "README.md", text)


def train_recipe(target: str, out: Path, minutes: float, prompts: tuple[str, ...]) -> None:
    """Trains all drafters of SmolLM2-135M-Instruct: a first drafter, a VP-Drafter and an EAGLE-3 drafter. Resumes an interrupted
    run.

    target: folder, hub id, or a name known to ``d2sd get``.
    out: folder of the drafters.
    minutes: time for all drafters.
    prompts: questions in addition to those that the target writes.
    """
    train_pair(
        PairTraining(
            target=target, out=out, minutes=(1 - EAGLE3_SHARE) * minutes, prompts=prompts, layers=2, block_size=8,
            target_layer_ids=[1, 7, 14, 20, 26], mask_token="<empty_output>", draft_vocab_size=16_384, markov_rank=32,
        )
    )  # fmt: skip
    # a draft vocabulary of only 4,096 tokens keeps the file small
    train_eagle3(
        Eagle3Training(
            target=target, responses=out / "responses.jsonl", out=out / "eagle3", target_layer_ids=[1, 14, 26], draft_vocab_size=4096,
            objective=Eagle3Objective(5, rows=24), loop=LoopConfig(SCHEDULE, batch_size=12, seconds=EAGLE3_SHARE * 60 * minutes),
        )
    )  # fmt: skip
