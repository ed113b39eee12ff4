"""The engine: models that generate, as a stream of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from d2sd.attention import choose, flashinfer
from d2sd.config import MAX_NODES, DecodeConfig
from d2sd.decoding.cost import MEASURED_SLOTS, VerifyCost, measure_verify_cost
from d2sd.decoding.generation import Generation
from d2sd.decoding.header import make_header
from d2sd.decoding.proposer import slots
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.loading import check_fit, check_vocabulary
from d2sd.models.target import Target
from d2sd.passes.passes import Passes, choose_mode
from d2sd.passes.shapes import row_shape
from d2sd.trace.events import Event, Finished, PrefillDone
from d2sd.trace.text import TokenTexts
from d2sd.trace.trace import Trace

MAX_PROMPT_CHARACTERS = 200_000
MIN_SLOTS = 2048  # of caches that stay: most texts fit, so what was captured for one serves the next
MODEL_CHAIN = 16  # γ at most (and by default) of the autoregressive draft model, which was trained with none


class Engine:
    """A target with its drafters; methods whose drafter is missing cannot run.

    first: DFlash drafter; second: VP-Drafter; draft_model: a small causal LM with the target's vocabulary; passes: how
    they are run, eager, padded or captured (``d2sd.passes.passes``), or "auto". Texts do not depend on it.
    """

    def __init__(
        self,
        target: Target,
        first: DFlashDraftModel | None = None,
        second: DFlashDraftModel | None = None,
        draft_model: Target | None = None,
        name: str = "custom",
        passes: str = "auto",
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
        self.mode = choose_mode(passes, target.device, target.capturable)
        self._costs: dict[str, VerifyCost] = {}
        self._free: list[tuple[str, Passes]] = []  # buffers and graphs that no generation uses at present

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
        backend = choose(config.backend, self.target.device, self.target.dtype, self.target.head_shape[2])
        config = replace(config, backend=backend)
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
                passes = Passes(self.mode, backend, MEASURED_SLOTS, self.target.device)
                self._costs[backend] = measure_verify_cost(self.target, passes)
        return self._costs[backend]

    def first_use(self, config: DecodeConfig) -> str | None:
        """A sentence for the person who waits, where a run with these settings first compiles kernels; else None."""
        compiles = self.resolve(config).backend == "flashinfer" and not flashinfer.compiled_before()
        return flashinfer.FIRST_USE if compiles else None

    def own_passes(self, config: DecodeConfig, tokens: int) -> Passes:
        """Eager passes with fresh buffers for so many tokens; config: resolved settings."""
        return Passes("eager", config.backend, slots(config, tokens), self.target.device)

    @contextmanager
    def _lent_passes(self, config: DecodeConfig, tokens: int) -> Iterator[Passes]:
        """Buffers for one generation; those of fixed-shape passes go to the next one with everything captured in them."""
        if self.mode == "eager":
            yield self.own_passes(config, tokens)
            return
        needed = slots(config, tokens)
        room = max(needed, tokens + row_shape(1 + MAX_NODES), MIN_SLOTS)  # for any other method as well
        with self.lock:
            fitting = [f for f in self._free if f[0] == config.backend and f[1].capacity >= needed]
            if fitting:
                lent = min(fitting, key=lambda f: f[1].capacity)
                self._free.remove(lent)
            else:
                # whatever is too small gives way: a card's memory is for the largest one
                self._free = [f for f in self._free if f[0] != config.backend]
                lent = config.backend, Passes(self.mode, config.backend, room, self.target.device)
        try:
            yield lent[1]
        except Exception:
            raise  # what a broken run leaves is not used again, and its memory is free
        except GeneratorExit:
            self._free.append(lent)
            raise
        self._free.append(lent)

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
        with self._lent_passes(config, len(ids) + config.max_new_tokens) as passes:
            run = Generation(self, ids, config, passes)
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
