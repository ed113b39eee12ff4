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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from d2sd.__about__ import HOME, __version__
from d2sd.errors import require
from d2sd.folders.fingerprint import fingerprint
from d2sd.folders.loading import load_target
from d2sd.folders.model_sets import FOLDERS, named_from
from d2sd.folders.weights import weights_digest
from d2sd.nets.models import late_taps
from d2sd.trace.files import write_whole
from d2sd.trace.text import duration
from d2sd.train.acceptance import (
    FEWEST_JUDGED,
    HeldOut,
    acceptance,
    calibrated,
    card,
    divide_logits,
    held_out_temperature,
)
from d2sd.train.block_drafters import drafters_of, save_drafter
from d2sd.train.eagle3 import train_eagle3
from d2sd.train.features import Features
from d2sd.train.files import digest_of, training_step
from d2sd.train.loop import Loop, save_marked
from d2sd.train.plan import (
    ENDING,
    FEWEST_TEXTS,
    HELD_OUT_TOKENS,
    LONGEST,
    MEASURING,
    POINTS,
    WRITING_HELD_OUT,
    TrainingPlan,
    describe,
    plan_minutes,
    plan_steps,
    points_of,
    seconds_of,
)
from d2sd.train.settings import (
    ANCHORS,
    BETA,
    MAX_LENGTH,
    QUESTIONS,
    Clock,
    Eagle3Objective,
    Eagle3Training,
    LoopConfig,
    PairTraining,
    RegenerateConfig,
)
from d2sd.train.text import Responses, ask, prompt_ids, read_jsonl, read_responses, regenerate, repeat_key
from d2sd.train.writer import Stop, numbers_of, write

# Beginnings of questions, used in turn. If the beginning is empty, the model writes the whole question.
FIRST_WORDS: list[str] = json.loads((HOME / "assets" / "prompts" / "first-words.json").read_bytes())
HELD_OUT, VALIDATION = 32, 128  # maximum numbers of prompts to measure α on, and of responses to calibrate on
KEPT_EVERY = 5  # seconds between writes of the elapsed time of a stage
SCHEDULE = 1000  # steps of the time-based training schedules
EAGLE3_SHARE = 0.1  # share of EAGLE-3 in the time of a recipe


class State:
    """State from which a run resumes, stored in ``pair.json``: the plan, finished stages, and elapsed seconds of each stage.

    used: elapsed seconds by stage, up to date after ``count``.
    """

    def __init__(self, path: Path, identity: dict[str, Any], clock: Clock):
        """Reads the file ``path`` if it exists. Raises ``InputError`` if it belongs to a run with other settings that has finished
        a stage.
        """
        self._path, self._identity, self._clock, self._stage = path, digest_of(identity), clock, "start"
        before: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        same = before.get("identity") == self._identity
        require(same or not before.get("done"), f"{path.parent} was made with other settings, prompts or minutes; give the same ones to resume, or name another folder")  # fmt: skip
        # if the settings differ, the earlier run finished no stage, for example because its settings were rejected
        kept = before if same else {}
        self.used: dict[str, float] = kept.get("used", {})
        self.done: list[str] = kept.get("done", [])
        self.plan = msgspec.convert(kept.get("plan", {}), TrainingPlan)
        self._counted = self._kept = clock()  # times of the last calls of ``count`` and ``keep``

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """Context of a stage. Yields whether an earlier run finished it.

        If no exception is raised, the stage counts as done. The state is written in any case.
        """
        self._stage, self._counted, done = name, self._clock(), name in self.done
        try:
            yield done
            self.done += [] if done else [name]
        finally:
            self.keep()

    def over(self) -> bool:
        """Returns whether the running stage has used its planned seconds. Stages without such a plan are never over."""
        self.count()
        if self._counted - self._kept >= KEPT_EVERY:
            self.keep()
        return self.used[self._stage] >= self.plan.seconds.get(self._stage, math.inf)

    def count(self) -> float:
        """Counts the seconds since the last call. Returns the seconds of all stages."""
        last, self._counted = self._counted, self._clock()
        self.used[self._stage] = self.used.get(self._stage, 0.0) + self._counted - last
        return sum(self.used.values())

    def keep(self) -> None:
        """Writes the file, so that the elapsed time is known even if the run is killed."""
        self.count()
        self._kept = self._counted
        write_whole(self._path, json.dumps({"identity": self._identity, "used": self.used, "done": self.done,
                                            "plan": msgspec.to_builtins(self.plan)}))  # fmt: skip


def train_pair(settings: PairTraining, clock: Clock = time.monotonic) -> None:
    """Trains both drafters, or one of them, and saves them in ``dflash`` and ``vp`` under the output folder, with a model card.

    The output folder can be used as ``--model``. Raises ``InputError`` if the settings do not fit the target, or if there is no
    training text.

    clock: function that returns the time in seconds.
    """
    run = PairRun(settings, clock)
    if run.ended:
        print(f"{settings.out} already contains trained drafters; name another folder to train again.", file=sys.stderr)
        return
    for stage in (run.start, run.questions, run.writing, run.features, run.held_out, run.training, run.ending):
        with run.stage(stage.__name__) as done:
            stage(done)
    print(f"{settings.out}: {acceptance(run.curve, run.plan.held_out)}, in {duration(sum(run.used.values()))}."
          f"{'' if settings.only else f' Try it: d2sd generate --model {settings.out} --prompt …'}", file=sys.stderr)  # fmt: skip


class PairRun(State):
    """A run of ``train_pair``, a method for each stage. Their argument ``done`` tells whether an earlier run finished the stage; then
    they only read its result.

    drafters: the drafters to train, by role.
    validation: number of responses that are not trained on; they are the last ones.
    """

    def __init__(self, settings: PairTraining, clock: Clock):
        """Reads the state of an earlier run, if there is one. Raises ``InputError`` if that run had other settings."""
        self._settings, self._began, self._out = settings, clock(), settings.out
        self._out.mkdir(parents=True, exist_ok=True)
        free = dict.fromkeys(("out", "steps", "keep_every"))  # a finished run may be resumed with more steps
        super().__init__(self._out / "pair.json", asdict(settings) | free, clock)
        if not self.ended:
            self.keep()  # marks the folder as a training folder, even if this run is killed

    @property
    def ended(self) -> bool:
        """Whether an earlier run ended, with the same number of steps."""
        return "ending" in self.done and self._settings.steps in (None, training_step(self._out / "training"))

    def start(self, done: bool) -> None:
        """Loads the target, and plans the run."""
        settings = self._settings
        dtype = settings.dtype or ("bfloat16" if torch.cuda.is_available() else None)
        self.target = target = load_target(str(settings.target), dtype, batched=True)
        self._chat = bool(target.tokenizer.chat_template)
        print(f"{target.name} writes in {numbers_of(target)}.", file=sys.stderr)
        require(settings.prompts or settings.responses or self._chat, f"{target.name} has no chat template, so this model cannot write questions; give texts to continue with --prompts")  # fmt: skip
        if not done:
            if settings.steps is None:
                tokens = int(self.data.lengths.sum()) if settings.responses else None
                plan = plan_minutes(settings, target, tokens, self._began, self._clock)
            else:
                plan = plan_steps(settings, self._chat)
            self.plan = msgspec.structs.replace(plan, batch=settings.batch_size or plan.batch)
        if speeds := self.plan.speeds:
            print(describe(self.plan, speeds, target.device.type), file=sys.stderr)
        write_whole(self._out / "target", f"{named_from(self._out, settings.target)}\n")

    def questions(self, done: bool) -> None:
        """Lets the target write questions, if the plan has time for this."""
        plan = self.plan
        if not done and plan.questions:
            config = replace(QUESTIONS, batch_size=plan.rows, seed=self._settings.seed)
            ask(self.target, FIRST_WORDS, plan.questions, self._out / "questions.jsonl", config, self.over)

    def writing(self, done: bool) -> None:
        """Lets the target answer the training prompts."""
        settings, (prompts, self._held_out_prompts) = self._settings, self._prompts()
        if not done and not settings.responses:
            config = RegenerateConfig(self.plan.rows, settings.max_new_tokens, seed=settings.seed)
            self._answer(prompts, "responses.jsonl", config, self.over, self.plan.room)

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
        unmeasured = settings.only == "second"
        count = (
            0
            if settings.held_out or unmeasured
            else min(HELD_OUT, max(len(mixed) // 10, min(FEWEST_TEXTS, len(mixed) // 4)))
        )

        def encoded(texts: Sequence[str]) -> list[list[int]]:
            ids = (prompt_ids(target.tokenizer, target.name, text, self._chat) for text in texts)
            return [prompt for prompt in ids if 0 < len(prompt) <= LONGEST]

        training, held_out = encoded(mixed[count:]), encoded([*settings.held_out, *mixed[:count]])
        enough = training and (held_out or unmeasured)
        require(settings.responses or enough, f"too few different prompts of at most {LONGEST} tokens (there are {len(mixed)} of any length); give 10 or more with --prompts, or more --minutes")  # fmt: skip
        return training, held_out

    def _answer(
        self, prompts: Sequence[list[int]], name: str, config: RegenerateConfig, stop: Stop, most: float = math.inf,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """Writes the target's answers to the prompts into the file ``name`` of the output folder.

        stop, exact: as for ``write``.
        most: as for ``regenerate``.
        """
        answer = partial(write, self.target, config=config, stop=stop, exact=exact)
        regenerate(answer, prompts, self._out / name, config, weights_digest(self.target.base), most)

    @cached_property
    def data(self) -> Responses:
        """The target's responses."""
        settings, target = self._settings, self.target
        path = settings.responses or self._out / "responses.jsonl"
        longest = max(MAX_LENGTH, LONGEST + settings.max_new_tokens)
        data = read_responses(path, longest, target.tokenizer.eos_token_id)
        require(int(data.ids.max()) < target.config.vocab_size, f"{path} has token ids that {target.name} does not have; give responses of this target")  # fmt: skip
        return data

    def features(self, done: bool) -> None:
        """Makes the drafters, and computes the target's features of all responses, unless they are computed in each step."""
        settings, target, data, tokens = self._settings, self.target, self.data, int(self.data.lengths.sum())
        self.drafters, self._objective = drafters_of(settings, target, data)
        self._drafter = drafter = next(iter(self.drafters.values()))
        mask = drafter.mask_token_id
        print(f"The mask token is {target.tokenizer.convert_ids_to_tokens(mask)!r} ({mask}).", file=sys.stderr)
        if warning := late_taps(drafter.target_layer_ids, target.config.num_hidden_layers):
            print(f"Note: this drafter {warning}", file=sys.stderr)
        self._mark = fingerprint(str(settings.target), target, drafter)
        stored = settings.responses is None or self.plan.tokens >= tokens
        if stored:
            print(f"Computing the target’s features of {tokens:,} tokens{' again' if done else ''}.", file=sys.stderr)
        self._features = Features(target, drafter.target_layer_ids, data, store=stored)
        self.validation = min(VALIDATION, len(data.ids) // 10)
        if self.validation < 2 * FEWEST_JUDGED or "first" not in self.drafters:
            self.validation = 0  # too few to fit and judge a temperature, so train on all responses

    def held_out(self, done: bool) -> None:
        """Lets the target answer the held-out prompts, and plans the measurements of α and the time for training."""
        path = self._out / "held-out.jsonl"
        if not done and self._held_out_prompts:
            latest = self._clock() + WRITING_HELD_OUT * self._settings.seconds
            config = RegenerateConfig(HELD_OUT, HELD_OUT_TOKENS)
            self._answer(self._held_out_prompts, path.name, config, lambda: self._clock() >= latest, exact=True)
        rows = read_jsonl(path, "prompt_ids", "response_ids") if path.exists() else ()
        self._held_out = HeldOut(self.target, ((row["prompt_ids"], row["response_ids"]) for row in rows))
        if done:
            return
        self.save()  # from now on, the folder can be loaded
        self.plan = self._with_measurements()

    def _with_measurements(self) -> TrainingPlan:
        """Returns the plan with the measurements of α; and, if the time is limited, with the remaining time for training."""
        lengths, total = self._held_out.lengths, self._settings.seconds
        seconds_per_token = last = 0.0
        if len(lengths) >= FEWEST_TEXTS and total < math.inf:
            seconds_per_token = seconds_of(lambda: self.measure(1, HELD_OUT_TOKENS), 0.0, self._clock) / lengths[0]
        points, texts, tokens = points_of(lengths, seconds_per_token, MEASURING * total)
        if points:
            last = seconds_per_token * sum(min(n, tokens) for n in lengths[:texts])
        # training gets the remaining time, except for the last measurement and the last stage
        left = {"training": max(1.0, total - self.count() - last - ENDING * total)} if total < math.inf else {}
        seconds = self.plan.seconds | left
        return msgspec.structs.replace(
            self.plan, points=points, held_out=texts, tokens_held_out=tokens, seconds=seconds
        )

    def save(self, step: int | None = None) -> None:
        """Saves the trained drafters. step: saves them in a new folder for this step."""
        for role, drafter in self.drafters.items():
            folder = self._out / FOLDERS[role]
            save_marked(save_drafter, drafter, folder if step is None else folder / f"step-{step}", self._mark)

    def measure(self, texts: int, tokens: int) -> dict[str, float]:
        """Returns α of each method with a trained drafter, over the first held-out texts.

        texts: number of texts.
        tokens: maximum tokens of each text.
        """
        figures = self._held_out.measure("dflash", texts, tokens, first=self.drafters["first"])
        if "second" in self.drafters:
            both = self._held_out.measure("d2sd", texts, tokens, **self.drafters)
            figures["d2sd_acceptance_length"] = both["held_out_acceptance_length"]
        return figures

    def _evaluate(self, last: bool) -> dict[str, float]:
        """Saves the drafters, and measures α if the plan has time for this. Returns the measured figures.

        last: whether training ends.
        """
        self.save()
        self.keep()
        plan = self.plan
        if not plan.points or (plan.points == 1 and not last):
            return {}
        figures = self.measure(plan.held_out, plan.tokens_held_out)
        print(f"Held-out prompts: {acceptance([figures], plan.held_out)}.", file=sys.stderr)
        return figures

    def training(self, done: bool) -> None:
        """Trains the drafters in place. They are saved even if Ctrl-C interrupts the training."""
        data, settings = self.data, self._settings
        steps = settings.steps or SCHEDULE
        config = LoopConfig(
            steps, self.plan.batch, seconds=self.plan.seconds.get("training"), save_every=max(1, steps // POINTS),
            seed=settings.seed, keep_every=settings.keep_every,
        )  # fmt: skip
        sample = partial(self._features.batch, self._objective)
        count, identity = len(data.ids) - self.validation, {"data": data.digest}
        self._loop = Loop(self._objective, count, sample, self._out / "training", config, identity, self._clock)
        try:
            self._loop.run(self._evaluate, self.save)
        except KeyboardInterrupt:
            self.save()
            raise

    def ending(self, done: bool) -> None:
        """Divides the first drafter's logits by a temperature if this is clearly better, saves the drafters, and writes the card."""
        facts, count = self._facts(), len(self.data.ids)
        if first := self.drafters.get("first"):
            objective: Any = getattr(self._objective, "first", self._objective)
            held_out = torch.arange(count - self.validation, count)
            temperature = held_out_temperature(objective, self._features, held_out)
            divide_logits(first, temperature.divisor)
            facts["temperature"] = calibrated(temperature)
        self.save()
        write_whole(self._out / "README.md", card(self._settings.target, facts, self.curve, self.plan))

    @property
    def curve(self) -> list[dict[str, float]]:
        """The logged rows of training in which α was measured."""
        logged = map(json.loads, (self._out / "training" / "metrics.jsonl").read_bytes().splitlines())
        return [row for row in logged if "held_out_acceptance_length" in row]

    def _facts(self) -> dict[str, str]:
        """Returns the rows of the model card."""
        settings, target, data, drafter = self._settings, self.target, self.data, self._drafter
        form, origin, start = drafter.form, settings.responses, settings.start
        rows = self._loop.rows
        prefixes = f"; the VP-Drafter sees l tokens with probability ∝ {BETA:g}^l" if "second" in self.drafters else ""
        device = (
            torch.cuda.get_device_name(target.device)
            if target.device.type == "cuda"
            else f"CPU, {torch.get_num_threads()} threads"
        )
        return {
            "target": f"{settings.target}, {target.numbers}, fingerprint {weights_digest(target.base)}",
            "machine": f"{device}; torch {torch.__version__}, transformers {transformers.__version__}, d2sd {__version__}",
            "date": datetime.now(UTC).date().isoformat(),
            "drafters": f"{' and '.join(FOLDERS[role] for role in self.drafters)}: {len(drafter.layers)} layers, γ = {form.block_size}, target features of layers {', '.join(map(str, form.taps))}, "
            f"{form.drafted:,} tokens, Markov head of rank {form.markov_rank}, mask token {target.tokenizer.convert_ids_to_tokens(form.mask_token)}; "
            f"{sum(p.numel() for p in drafter.parameters()) / 1e6:.1f}M parameters each, bfloat16; {f'continued from {start}' if start else 'new'}",
            "text": f"{len(data.ids):,} responses {f'from {origin.name}' if origin else f'of at most {settings.max_new_tokens} tokens'}; "
            f"{int(data.lengths.sum()):,} tokens including the prompts",
            "training": f"{self._loop.step:,} steps, {rows:,} sequences ({rows / len(data.ids):.1f} epochs) with {ANCHORS} anchors each, {rows * ANCHORS:,} anchors in all; batches of "
            f"{self.plan.batch}; seed {settings.seed}; Muon and AdamW; D-PACE loss weights{prefixes}",
            "time": ", ".join(f"{name.replace('_', '-')} {duration(seconds)}" for name, seconds in self.used.items()),
        }  # fmt: skip


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
            target=target, out=out, minutes=(1 - EAGLE3_SHARE) * minutes, prompts=prompts,
            target_layer_ids=[1, 7, 14, 20, 26], mask_token="<empty_output>",
        )
    )  # fmt: skip
    # a draft vocabulary of only 4,096 tokens keeps the file small
    train_eagle3(
        Eagle3Training(
            target=target, responses=out / "responses.jsonl", out=out / "eagle3", target_layer_ids=[1, 14, 26], draft_vocab_size=4096,
            objective=Eagle3Objective(5, rows=24), loop=LoopConfig(SCHEDULE, seconds=EAGLE3_SHARE * 60 * minutes),
        )
    )  # fmt: skip
