"""The engine: models that generate, as a stream of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from d2sd.attention import BACKENDS
from d2sd.config import DecodeConfig
from d2sd.cost import VerifyCost, measure_verify_cost
from d2sd.errors import InputError
from d2sd.events import Event, Finished, PrefillDone
from d2sd.generation import Generation
from d2sd.methods import METHODS
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.loading import check_fit, check_vocabulary
from d2sd.models.target import Target
from d2sd.text import TokenTexts
from d2sd.trace import Trace, make_header

MAX_PROMPT_CHARACTERS = 200_000
MODEL_CHAIN = 16  # γ at most (and by default) of the autoregressive draft model, which was trained with none


class Engine:
    """A target with its drafters; methods whose drafter is missing cannot run.

    first: DFlash drafter; second: VP-Drafter; draft_model: a small causal LM with the target's vocabulary.
    """

    def __init__(
        self,
        target: Target,
        first: DFlashDraftModel | None = None,
        second: DFlashDraftModel | None = None,
        draft_model: Target | None = None,
        name: str = "custom",
    ):
        for drafter in (first, second):
            if drafter is not None:
                check_fit(target, drafter)
                target.tap(drafter.target_layer_ids)
        if draft_model is not None:
            check_vocabulary(target, draft_model)
        self.target, self.first, self.second, self.draft_model, self.name = target, first, second, draft_model, name
        self.texts = TokenTexts(target.tokenizer)
        self.lock = threading.Lock()
        self._costs: dict[str, VerifyCost] = {}

    def generate(self, prompt: str | Sequence[int], config: DecodeConfig) -> Trace:
        """Run to the end and return the whole trace."""
        events = list(self.stream(prompt, config))
        return Trace.of(self.header(prompt, config), events)

    def header(self, prompt: str | Sequence[int], config: DecodeConfig) -> dict[str, object]:
        """First line of a trace of this run: models, settings, versions, hardware."""
        models = {
            "preset": self.name,
            "target": self.target.name,
            "first_drafter": self.first.config.name_or_path if self.first else None,
            "second_drafter": self.second.config.name_or_path if self.second else None,
            "draft_model": self.draft_model.name if self.draft_model else None,
        }
        return make_header(models, self.resolve(config), prompt if isinstance(prompt, str) else None, self.target)

    def resolve(self, config: DecodeConfig) -> DecodeConfig:
        """The settings with γ and the backend filled in; raises ``InputError`` where these models cannot run them."""
        method = METHODS[config.method]
        if config.backend == "auto":
            config = replace(config, backend="dense" if self.target.device.type == "cpu" else "cascade")
        if method.draft_model:
            if self.draft_model is None:
                raise InputError(
                    f"method {method.id!r} needs a draft model, and {self.name} has none; use another method"
                )
            return config.for_drafter(MODEL_CHAIN)
        if not method.first_drafter:
            return config
        if self.first is None:
            raise InputError(
                f"method {method.id!r} needs a drafter, and {self.name} has none; give one or use autoregressive"
            )
        sizes = [self.first.block_size]
        if method.second_drafter == "vp":
            if self.second is None:
                raise InputError(f"method {method.id!r} needs a VP-Drafter, and {self.name} has none; use dflash_twice")
            sizes.append(self.second.block_size)
        return config.for_drafter(min(sizes))

    def verify_cost(self, backend: str) -> VerifyCost:
        """What verified nodes cost here; measured at the first call (a fraction of a second)."""
        if backend not in self._costs:
            with self.lock:
                self._costs[backend] = measure_verify_cost(self.target, BACKENDS[backend])
        return self._costs[backend]

    def encode(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """Prompt token ids, of a text as ``config.chat`` says; raises ``InputError`` on an empty or over-long prompt."""
        ids: list[int]
        if isinstance(prompt, str):
            if not prompt.strip():
                raise InputError("the prompt is empty; write a few words to continue from")
            if len(prompt) > MAX_PROMPT_CHARACTERS:
                raise InputError(f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT_CHARACTERS} are read")
            prompt = prompt.encode("utf-8", "replace").decode()  # lone surrogates have no tokens
            if config.chat:
                ids = self.target.chat_ids(prompt, config.thinking)
            else:
                ids = list(self.target.tokenizer(prompt, add_special_tokens=True)["input_ids"])
        else:
            ids = list(prompt)
        room = self.target.max_positions - config.max_new_tokens
        if not ids:
            raise InputError("the prompt is empty; write a few words to continue from")
        if len(ids) > room:
            raise InputError(
                f"the prompt has {len(ids)} tokens; with {config.max_new_tokens} new tokens at most {max(0, room)} "
                f"fit this target's {self.target.max_positions} positions: shorten the prompt or ask for fewer tokens"
            )
        return ids

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Generate; yields ``PrefillDone``, a ``StepDone`` per cycle, ``Finished``.

        Input is checked at the call, before the first event is asked for. ``stop`` is asked before every cycle;
        closing the iterator also ends the run. Either way its caches are freed.
        """
        config = self.resolve(config)
        return self._run(self.encode(prompt, config), config, stop)

    def _run(self, ids: list[int], config: DecodeConfig, stop: Callable[[], bool]) -> Iterator[Event]:
        run = Generation(self, ids, config)
        with self.lock:
            seconds = run.prefill()
        yield PrefillDone(tuple(ids), run.prompt_texts, seconds)
        while run.stop_reason is None:
            if stop():
                run.stop_reason = "stopped"
                break
            with self.lock:
                event = run.step()
            yield event
        out = run.output
        text = self.target.tokenizer.decode(out, skip_special_tokens=True)
        yield Finished(run.stop_reason, text, tuple(out), run.steps, run.elapsed, seconds)
