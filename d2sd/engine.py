"""The engine: loads models and generates text as a stream of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, index
from pathlib import Path
from typing import Any, Unpack, overload

import torch

from d2sd.config import MAX_NODES, DecodeConfig, Settings, check_prompt, with_settings
from d2sd.costs import kept
from d2sd.costs.machines import StageCosts
from d2sd.decoding.cost_aware import Experience
from d2sd.decoding.drafters import CachedDrafters, slots
from d2sd.decoding.generation import Generation, make_header
from d2sd.decoding.stage_times import MEASURED_TOKENS, measure_costs
from d2sd.decoding.verifier import Verifier
from d2sd.errors import InputError, require
from d2sd.folders.loading import load_models
from d2sd.folders.model_sets import longest_block, obstacle, resolve
from d2sd.folders.store import home
from d2sd.folders.weights import parts
from d2sd.methods import METHODS
from d2sd.nets import flashinfer
from d2sd.nets.attention import choose
from d2sd.nets.models import Models
from d2sd.nets.passes import Passes, choose_mode, row_shape
from d2sd.trace.events import Event, PrefillDone
from d2sd.trace.stream import EventStream
from d2sd.trace.text import TokenTexts, encodable
from d2sd.trace.trace import Trace

MIN_SLOTS = 2048  # minimum number of cache slots of buffers that are reused; enough for most texts
# The default method is the first of these methods that the models can run.
PREFERRED = ("d2sd", "dflash", "eagle3", "draft_model", "autoregressive")


@dataclass(frozen=True, slots=True)
class Request:
    """A validated prompt with resolved settings.

    prompt: the prompt as text; None if it was given as token ids.
    ids: token ids of the prompt.
    config: the resolved settings.
    endless: whether to continue after end-of-text tokens. Only used for measurements.
    """

    prompt: str | None
    ids: tuple[int, ...]
    config: DecodeConfig
    endless: bool = False


class Engine:
    """Loaded models that generate text, created by ``d2sd.load``.

    models: a target with its drafters.
    passes: how forward passes run: "eager", "padded" (to fixed shapes), "captured" (as CUDA graphs), or "auto" ("captured" if
        possible, otherwise "eager"). The generated text does not depend on it.
    """

    def __init__(self, models: Models, passes: str = "auto"):
        self.models = models
        self.texts = TokenTexts(models.target.tokenizer)
        self.lock = threading.Lock()  # held while the models compute
        self.mode = choose_mode(passes, models.target.device, models.target.capturable, models.target.fixable)
        self._costs: dict[tuple[object, ...], StageCosts] = {}
        self._plain: dict[str, StageCosts | None] = {}  # by backend
        self._experience: dict[tuple[str, StageCosts], Experience] = {}  # by method
        self._free: list[tuple[str, Passes]] = []  # buffers and graphs not in use

    def __repr__(self) -> str:
        target = self.models.target
        parts = ", ".join(name.replace("_", " ") for name in self.models.drafters)
        return f"<Engine {self.models.name}: target {target.name} in {target.numbers} on {target.device}; {parts or 'no drafter'}>"

    @overload
    def generate(
        self, prompt: str | Sequence[int], config: DecodeConfig | None = None, **settings: Unpack[Settings]
    ) -> Trace: ...
    @overload
    def generate(
        self, prompt: list[str] | tuple[str, ...], config: DecodeConfig | None = None, **settings: Unpack[Settings]
    ) -> list[Trace]: ...
    def generate(self, prompt: Any, config: DecodeConfig | None = None, **settings: Unpack[Settings]) -> Any:
        """Generates a text to its end. Returns the trace of the run; for a list of prompts, returns a list of traces.

        prompt: a text, its token ids, or a list of texts, which are continued one after another.
        config: settings. None: the default settings with ``default_method``.
        settings: fields of ``DecodeConfig``. They replace those of ``config``.

        Raises ``InputError`` for an invalid prompt or setting, before anything is generated.
        """
        if isinstance(prompt, list | tuple) and any(isinstance(one, str) for one in prompt):
            requests = [self.request(one, config, **settings) for one in prompt]
            return [self.finish(request)() for request in requests]
        return self.finish(self.request(prompt, config, **settings))()

    def finish(self, request: Request) -> Callable[[], Trace]:
        """Generates a text to its end. Returns a function that builds the trace of the run.

        Building the trace takes time, so it is left out of measurements: a caller stops its clock before it calls the function.

        request: a result of ``request``.
        """
        with self._after_prefill(request) as (run, prefill):
            steps = []
            while run.stop_reason is None:
                with self.lock:
                    steps.append(run.step())
        return lambda: Trace.of(self.header(request), [prefill, *(describe() for describe in steps), run.finished()])

    def stream(
        self,
        prompt: str | Sequence[int],
        config: DecodeConfig | None = None,
        stop: Callable[[], bool] = lambda: False,
        **settings: Unpack[Settings],
    ) -> EventStream:
        """Generates a text step by step. Returns an iterator over ``PrefillDone``, a ``StepDone`` per step, and ``Finished``.

        prompt: a text, or its token ids.
        config, settings: as for ``generate``.
        stop: called before every step; the run ends when it returns True. Closing the iterator also ends the run.

        Raises ``InputError`` for an invalid prompt or setting, before the first event is requested.
        """
        request = self.request(prompt, config, **settings)
        return EventStream(lambda: self.header(request), self.run(request, stop))

    def request(
        self, prompt: str | Sequence[int], config: DecodeConfig | None = None, **settings: Unpack[Settings]
    ) -> Request:
        """Returns the prompt and the resolved settings, both checked, as the argument of ``run`` and ``finish``.

        prompt: a text, or its token ids.
        config, settings: as for ``generate``.

        Raises ``InputError`` if the prompt or a setting is invalid.
        """
        config = self.resolve(with_settings(config or DecodeConfig(self.default_method), settings))
        return Request(prompt if isinstance(prompt, str) else None, tuple(self.encode(prompt, config)), config)

    @property
    def default_method(self) -> str:
        """The first of d2sd, dflash, eagle3, draft_model and autoregressive that these models can run."""
        return next(method for method in PREFERRED if self.obstacle(method) is None)

    def header(self, request: Request) -> dict[str, object]:
        """Returns the header of a run's trace. It contains the models, settings, versions and hardware.

        request: a result of ``request``.
        """
        return make_header(self.models, self.parts, request.config, request.prompt)

    @cached_property
    def parts(self) -> dict[str, dict[str, object]]:
        """Descriptions of the models, as in trace headers: the fingerprint of the weights, dtype, RoPE and more, by part."""
        return parts(self.models)

    def resolve(self, config: DecodeConfig) -> DecodeConfig:
        """Returns the settings with the engine's choices of γ, γ₂, node budget and backend in place of None and "auto".

        config: settings, as for ``generate``.

        Raises ``InputError`` if these models cannot run with these settings.
        """
        models, method = self.models, METHODS[config.method]
        target = models.target
        config = replace(
            config,
            backend=choose(config.backend, target.device, target.dtype, target.head_shape[2], target.plain_attention),
        )
        if reason := self.obstacle(method.id):
            raise InputError(reason)
        if (
            config.confidence == "head"
            and method.first_drafter
            and (models.first is None or models.first.confidence_head is None)
        ):
            raise InputError(
                f"the first drafter of {models.name} has no confidence head; set confidence to softmax, or use a DSpark drafter"
            )
        if method.eagle3:
            return replace(config, node_budget=config.node_budget or method.default_budget)
        longest = self.longest_block(method.id)
        return config if longest is None else config.for_drafter(longest)

    def longest_block(self, method: str) -> int | None:
        """Returns the maximum γ of a method with these models, which is also the default; None if the method drafts no blocks.

        method: id of the method.
        """
        return longest_block(self.models, method, attrgetter("block_size"))

    def obstacle(self, method: str) -> str | None:
        """Returns the reason why these models cannot run a method, as a sentence; None if they can.

        method: id of the method.
        """
        return obstacle(self.models, method)

    def costs(self, config: DecodeConfig) -> StageCosts:
        """Returns the times of the stages of a step on this machine.

        The times are measured on first use and then stored in a file, from which later processes read them. A measurement holds
        ``lock``, and takes one or two seconds with a small model.

        config: resolved settings.
        """
        method, gamma, top_k = METHODS[config.method], config.block_size or 2, 1
        if method.eagle3:
            gamma, top_k = config.draft_depth + 2, config.draft_top_k
        key = config.backend, gamma, top_k, method.draft_model, method.second_drafter, bool(method.default_budget)
        with self.lock:
            if key not in self._costs:
                room = slots(config, MEASURED_TOKENS)
                passes = Passes(self.mode, config.backend, room, self.models.target.device)
                stored_key = [*self._hardware(*self.parts), *key]
                costs = kept.find(kept_costs(), stored_key)
                if costs is None:
                    drafters = CachedDrafters(self.models, config, passes)
                    costs, steady = measure_costs(drafters, Verifier(self.models.target, passes))
                    if steady:
                        kept.keep_costs(kept_costs(), stored_key, costs)
                self._costs[key] = costs
            return self._costs[key]

    def plain(self, backend: str) -> StageCosts | None:
        """Returns the time of a plain decoding step on this machine, as stored by ``keep_plain``; None if unknown.

        backend: attention backend, as ``resolve`` returns it.
        """
        if backend not in self._plain:
            self._plain[backend] = kept.find(kept_costs(), self._plain_key(backend))
        return self._plain[backend]

    def keep_plain(self, backend: str, costs: StageCosts | None) -> None:
        """Stores the time that ``plain`` returns.

        backend: attention backend, as ``resolve`` returns it.
        costs: result of ``d2sd.costs.runs.plain_step``. None: the stored time is wrong, so ``plain`` returns None in the rest of this process.
        """
        self._plain[backend] = costs
        if costs is not None:
            kept.keep_costs(kept_costs(), self._plain_key(backend), costs)

    def _plain_key(self, backend: str) -> list[object]:
        return [*self._hardware("target"), backend, "plain step"]

    def _hardware(self, *parts: str) -> list[object]:
        """Returns everything besides the settings that affects the times of these model parts: processor, threads, versions, kind of
        passes, and weights."""
        device = self.models.target.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else kept.processor()
        weights = [self.parts[part][what] for part in parts for what in ("weights", "dtype")]
        return [name, torch.get_num_threads(), torch.__version__, kept.PASSES, self.mode, *weights]

    def first_use(self, backend: str) -> str | None:
        """Returns a message for the user if the next run has to compile kernels first, which takes long; None otherwise.

        backend: attention backend, as ``resolve`` returns it.
        """
        return flashinfer.FIRST_USE if backend == "flashinfer" and not flashinfer.compiled_before() else None

    def _eager_passes(self, config: DecodeConfig, tokens: int) -> Passes:
        return Passes("eager", config.backend, slots(config, tokens), self.models.target.device)

    @contextmanager
    def _lent_passes(self, config: DecodeConfig, tokens: int) -> Iterator[Passes]:
        """Context manager that yields the buffers of one generation. Buffers of fixed shape, and the graphs captured with them, are
        reused by later generations."""
        if self.mode == "eager":
            yield self._eager_passes(config, tokens)
            return
        needed = slots(config, tokens)
        room = max(needed, tokens + row_shape(1 + MAX_NODES), MIN_SLOTS)  # enough for any method
        with self.lock:
            large = [free for free in self._free if free[0] == config.backend and free[1].capacity >= needed]
            if large:
                lent = min(large, key=lambda free: free[1].capacity)
                self._free.remove(lent)
            else:
                # free the smaller buffers first, so that there is enough GPU memory for the new ones
                self._free = [free for free in self._free if free[0] != config.backend]
                lent = config.backend, Passes(self.mode, config.backend, room, self.models.target.device)
        intact = False
        try:
            yield lent[1]
            intact = True
        except GeneratorExit:  # the run was closed early
            intact = True
            raise
        finally:
            if intact:  # after an error the buffers are not reused
                with self.lock:
                    self._free.append(lent)

    def encode(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """Returns the token ids of a prompt. If ``config.chat`` is true, a text is put into the chat template first.

        prompt: a text, or its token ids.
        config: settings; only ``chat``, ``thinking`` and ``max_new_tokens`` are used.

        Raises ``InputError`` if the prompt is empty or too long, or contains invalid token ids.
        """
        ids: list[int]
        if isinstance(prompt, str):
            check_prompt(prompt)
            prompt = encodable(prompt)  # tokenizers cannot encode lone surrogates
            if config.chat:
                ids = self.models.target.chat_ids(prompt, config.thinking)
            else:
                ids = list(self.models.target.tokenizer(prompt, add_special_tokens=True)["input_ids"])
        else:
            size = self.models.target.config.vocab_size
            try:
                ids = [index(i) for i in prompt]
            except TypeError:
                ids = [-1]
            if not all(0 <= i < size for i in ids):
                raise InputError(f"a prompt given as token ids must contain only whole numbers from 0 to {size - 1}")
        room = self.models.target.max_positions - config.max_new_tokens
        require(ids, "the prompt is empty; write a few words to continue from")
        if len(ids) > room:
            raise InputError(
                f"the prompt has {len(ids)} tokens, but at most {max(0, room)} fit: this target has "
                f"{self.models.target.max_positions} positions, and {config.max_new_tokens} of them are for new tokens; "
                "shorten the prompt or generate fewer tokens"
            )
        return ids

    def run(self, request: Request, stop: Callable[[], bool] = lambda: False) -> Generator[Event]:
        """Generates a text step by step. Yields ``PrefillDone``, a ``StepDone`` per step, and ``Finished``.

        request: a result of ``request``.
        stop: called before every step; the run ends when it returns True. Closing the iterator also ends the run. In both
            cases, the run releases its caches.
        """
        with self._after_prefill(request) as (run, prefill):
            yield prefill
            while run.stop_reason is None:
                if stop():
                    run.stop_reason = "stopped"
                    break
                with self.lock:
                    describe = run.step()
                yield describe()
        yield run.finished()

    @contextmanager
    def _after_prefill(self, request: Request) -> Iterator[tuple[Generation, PrefillDone]]:
        """Context manager that yields a generation after its prefill, and the event of the prefill."""
        ids, config = request.ids, request.config
        with self._lent_passes(config, len(ids) + config.max_new_tokens) as passes:
            run = self.generation(ids, config, passes)
            if request.endless:
                run.drafters.end_ids = frozenset()
            with self.lock:
                prefill = run.prefill()
            yield run, prefill

    def generation(self, ids: Sequence[int], config: DecodeConfig, passes: Passes) -> Generation:
        """Returns a generation, which can be run step by step. All cost-aware generations with the same method share statistics.

        ids: token ids of the prompt.
        config: resolved settings.
        passes: buffers with room for the prompt and the new tokens.
        """
        experience = None
        if config.decides:
            costs = self.costs(config)
            experience = self._experience.setdefault((config.method, costs), Experience(costs))
        return Generation(self.models, self.texts, ids, config, passes, experience)

    def drafters(self, config: DecodeConfig, tokens: int, experience: Experience | None = None) -> CachedDrafters:
        """Returns drafters for use without the target. They have separate buffers.

        config: resolved settings.
        tokens: capacity of the buffers, in tokens.
        experience: statistics that cost-aware drafting uses and updates.
        """
        passes = self._eager_passes(config, tokens)
        return CachedDrafters(self.models, config, passes, experience if config.decides else None)


def kept_costs() -> Path:
    return home().parent / "costs.json"


def load(
    name: str = "tiny",
    *,
    target: str | None = None,
    drafter: str | None = None,
    second_drafter: str | None = None,
    draft_model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    load_in_8bit: bool = False,
    passes: str = "auto",
) -> Engine:
    """Loads models and returns an engine for them.

    name: a bundled preset ("tiny", "smollm2"), or a folder with ``target/``, ``dflash/`` and optionally ``vp/``, ``draft/`` and
        ``eagle3/``.
    target: replaces the preset's target: folder, hub id, GGUF file, or a name from ``d2sd get``.
    drafter: replaces the preset's first drafter: folder or hub id of a DFlash, DSpark or EAGLE-3 drafter.
    second_drafter: replaces the preset's VP-Drafter, which continues prefixes of the first draft: folder or hub id.
    draft_model: replaces the preset's autoregressive draft model: folder or hub id.
    dtype: "float32", "mixed" (float32 with weights in float16, on a CPU), "bfloat16" or "float16". None: "mixed" for a target of 50
        million parameters or more on a CPU that supports it, otherwise "float32".
    device: a torch device, or "auto" to spread the target over all GPUs; None: "cuda" if there is a GPU, otherwise "cpu".
    load_in_8bit: quantise the target's weights to 8 bits with bitsandbytes.
    passes: as for ``Engine``.

    Raises ``InputError`` if a model is missing or broken, or if the models do not fit together.
    """
    models = resolve(
        name,
        target=target,
        drafter=drafter,
        second_drafter=second_drafter,
        draft_model=draft_model,
        dtype=dtype,
    )
    return Engine(load_models(models, device, load_in_8bit), passes)
