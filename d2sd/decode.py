"""The decoding loop: prefill, then draft → re-draft → verify → commit until done, as a stream of events."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from d2sd.attention import BACKENDS
from d2sd.config import DecodeConfig
from d2sd.drafting import Block, DraftSession
from d2sd.errors import InputError
from d2sd.events import Committed, Event, Finished, PrefillDone, StageSeconds, StepDone, StopReason
from d2sd.inspection import Inspection, describe_choices, describe_draft, describe_nodes, proposer
from d2sd.methods import METHODS, Drafters, Method, Proposal
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.loading import check_fit
from d2sd.models.target import Target
from d2sd.sampling import Sampler
from d2sd.text import Detokenizer, TokenTexts
from d2sd.trace import Trace, make_header
from d2sd.verify import Walk, first_draft_boundary, walk

MAX_PROMPT_CHARACTERS = 200_000


class Engine:
    """A target with its drafters. ``second`` may be missing: then only methods without a VP-Drafter run."""

    def __init__(
        self,
        target: Target,
        first: DFlashDraftModel | None = None,
        second: DFlashDraftModel | None = None,
        name: str = "custom",
    ):
        for drafter in (first, second):
            if drafter is not None:
                check_fit(target, drafter)
                target.tap(drafter.target_layer_ids)
        self.target, self.first, self.second, self.name = target, first, second, name
        self.texts = TokenTexts(target.tokenizer)
        self._lock = threading.Lock()

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
        }
        return make_header(models, self.resolve(config), prompt if isinstance(prompt, str) else None, self.target)

    def resolve(self, config: DecodeConfig) -> DecodeConfig:
        """The settings with γ and the backend filled in; raises ``InputError`` where these models cannot run them."""
        method = METHODS[config.method]
        if config.backend == "auto":
            config = replace(config, backend="dense" if self.target.device.type == "cpu" else "cascade")
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
        return config.for_drafter(min(sizes), branches=method.second_drafter != "none")

    def encode(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """Prompt token ids; raises ``InputError`` on an empty or over-long prompt."""
        if isinstance(prompt, str):
            if not prompt.strip():
                raise InputError("the prompt is empty; write a few words to continue from")
            if len(prompt) > MAX_PROMPT_CHARACTERS:
                raise InputError(f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT_CHARACTERS} are read")
            prompt = prompt.encode("utf-8", "replace").decode()  # lone surrogates have no tokens
            ids: list[int] = list(self.target.tokenizer(prompt, add_special_tokens=True)["input_ids"])
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
        run = _Run(self, ids, config)
        with self._lock:
            seconds = run.prefill()
        yield PrefillDone(tuple(ids), run.prompt_texts, seconds)
        while run.stop_reason is None:
            if stop():
                run.stop_reason = "stopped"
                break
            with self._lock:
                event = run.step()
            yield event
        out = run.output
        text = self.target.tokenizer.decode(out, skip_special_tokens=True)
        yield Finished(run.stop_reason, text, tuple(out), run.steps, run.elapsed, seconds)


class _Run:
    """State of one generation: committed ids, caches, clock."""

    def __init__(self, engine: Engine, ids: list[int], config: DecodeConfig):
        self.engine, self.target, self.config = engine, engine.target, config
        self.method: Method = METHODS[config.method]
        self.ids, self.steps, self.elapsed = list(ids), 0, 0.0
        self.output: list[int] = []
        self.stop_reason: StopReason | None = None
        self.block_size = config.block_size if self.method.first_drafter and config.block_size else 1
        branches = config.num_branches if self.method.second_drafter != "none" else 0
        room = len(ids) + config.max_new_tokens
        self.backend = BACKENDS[config.backend]
        self.cache = self.target.new_cache(room + 1 + (self.block_size - 1) * (1 + branches))
        models = {"none": None, "vp": engine.second, "first": engine.first}
        first = engine.first if self.method.first_drafter else None
        second = models[self.method.second_drafter]
        sessions = {
            id(m): DraftSession(m, self.target, room, self.backend, config.inspect)
            for m in (first, second)
            if m is not None
        }
        self.sessions = list(sessions.values())
        self.first = sessions.get(id(first))
        self.second = sessions.get(id(second))
        self.second_name: Literal["first", "second"] = "second" if self.method.second_drafter == "vp" else "first"
        self.sampler = Sampler(config.temperature, config.top_k, config.top_p, config.seed)
        self.pieces = Detokenizer(self.target.tokenizer)
        # one detokenizer for both: the output may complete a character that the prompt began
        self.prompt_texts = tuple(self.pieces.feed(token) for token in ids)
        self.clock: dict[str, float] = {}

    @torch.inference_mode()
    def prefill(self) -> float:
        """Read all prompt tokens but the last, which is the first anchor."""
        began = time.perf_counter()
        count = len(self.ids) - 1
        if count:
            device = self.target.device
            positions = torch.arange(count, device=device)
            self.target.forward(torch.tensor(self.ids[:-1], device=device), positions, self.cache, None, None)
            self.cache.commit(range(count))
            for session in self.sessions:
                session.extend(slice(0, count), positions)
        self._wait()
        return time.perf_counter() - began

    @torch.inference_mode()
    def step(self) -> StepDone:
        """One cycle."""
        began = time.perf_counter()
        self.clock = dict.fromkeys(("first_draft", "second_draft", "tree", "verify", "commit"), 0.0)
        anchor, start, texts = self.ids[-1], len(self.ids) - 1, self.engine.texts
        proposal = self.method.propose(
            Drafters(
                anchor,
                lambda prefixes: self._draft("first_draft", self.first, prefixes),
                lambda prefixes: self._draft("second_draft", self.second, prefixes),
                self.config.num_branches,
                random.Random(self.config.seed * 1_000_003 + start),
            )
        )
        self.clock["tree"] = time.perf_counter() - began - sum(self.clock.values())
        tree, device = proposal.tree, self.target.device
        mask = torch.from_numpy(tree.ancestor_mask()).to(device) if len(tree) > 1 else None
        positions = torch.tensor(tree.depths, device=device) + start
        hidden = self.target.forward(
            torch.tensor(tree.tokens, device=device), positions, self.cache, mask, self.backend
        )
        scores = self.sampler.scores(self.target.head(hidden).float())
        chosen_tensor = self.sampler.choose(scores, [start + d + 1 for d in tree.depths])
        seen = Inspection.read(scores, chosen_tensor, tree, self.config.inspect)
        limit = self.config.max_new_tokens - len(self.output)
        outcome = walk(tree, seen.chosen, self.target.end_ids, limit)
        verified = time.perf_counter()
        self.clock["verify"] = verified - began - sum(self.clock.values())
        tokens = [tree.tokens[n] for n in outcome.accepted]
        tokens += [] if outcome.bonus is None else [outcome.bonus]
        self.output += tokens
        self.ids += tokens
        self.steps += 1
        if outcome.ended:
            self.stop_reason = "end_token"
        elif len(self.output) == self.config.max_new_tokens:
            self.stop_reason = "max_new_tokens"
        else:
            self._commit([0, *outcome.accepted], start)
        self._wait()
        self.clock["commit"] = time.perf_counter() - verified
        first = proposal.first
        event = partial(
            StepDone,
            step=self.steps - 1,
            anchor=anchor,
            anchor_text=texts[anchor],
            anchor_position=start,
            first_draft=None if first is None else describe_draft("first", first, texts),
            boundary_posterior=proposal.posterior,
            full_acceptance=proposal.full_acceptance,
            selected_prefixes=proposal.selected,
            branches=tuple(describe_draft(self.second_name, b, texts) for b in proposal.branches),
            nodes=describe_nodes(proposal, self.second_name, seen, outcome, texts),
            choices=describe_choices(seen, outcome, texts),
            accepted=outcome.accepted,
            committed=self._describe_committed(proposal, outcome),
            actual_boundary=None if first is None else first_draft_boundary(tree, first.ids, seen.chosen, outcome),
            seconds=StageSeconds(**self.clock),
        )
        self.elapsed += time.perf_counter() - began
        return event(elapsed=self.elapsed)

    def _wait(self) -> None:
        """Let queued GPU work end, so that it is charged to the stage that caused it."""
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)

    def _commit(self, rows: list[int], start: int) -> None:
        """Keep the anchor and the accepted path in the target's cache and in every drafter's context."""
        self.cache.commit(rows)
        if self.sessions:
            index = torch.tensor(rows, device=self.target.device)
            positions = torch.arange(start, start + len(rows), device=self.target.device)
            for session in self.sessions:
                session.extend(index, positions)

    def _describe_committed(self, proposal: Proposal, outcome: Walk) -> tuple[Committed, ...]:
        out = []
        end = self.target.end_ids
        for node in outcome.accepted:
            token = proposal.tree.tokens[node]
            text = "" if token in end else self.pieces.feed(token)
            out.append(Committed(token, text, proposer(proposal.tree, node, self.second_name), node))
        if outcome.bonus is not None:
            text = "" if outcome.bonus in end else self.pieces.feed(outcome.bonus)
            out.append(Committed(outcome.bonus, text, "target", None))
        return tuple(out)

    def _draft(self, stage: str, session: DraftSession | None, prefixes: Sequence[Sequence[int]]) -> list[Block]:
        assert session is not None
        began = time.perf_counter()
        blocks = session.draft(self.ids[-1], prefixes, self.block_size)
        self.clock[stage] += time.perf_counter() - began
        return blocks
