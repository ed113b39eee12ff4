"""One generation: its state, the events that report it, and the first line of its trace."""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import torch

from d2sd.config import DecodeConfig
from d2sd.decoding.cost_aware import Experience
from d2sd.decoding.device_cycle import DeviceCycle
from d2sd.decoding.host_cycle import CycleDone, HostCycle
from d2sd.decoding.inspection import describe_choices, describe_draft, describe_levels, describe_nodes, describe_tops
from d2sd.decoding.proposer import Proposer
from d2sd.decoding.verifier import Verifier
from d2sd.methods import Proposal
from d2sd.nets.models import Models, not_finite
from d2sd.nets.passes import Passes
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import Committed, Decision, PrefillDone, StepDone, StopReason
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.tree.walk import Walk, first_draft_boundary

PACKAGES = ("torch", "transformers")  # whose versions a trace states


class Generation:
    """One prompt being continued: committed ids, caches, clock.

    labels: texts of single tokens; config, passes and experience: as for ``Proposer``.
    """

    def __init__(
        self,
        models: Models,
        labels: TokenTexts,
        ids: Sequence[int],
        config: DecodeConfig,
        passes: Passes,
        experience: Experience | None = None,
    ):
        self.target, self.labels, self.config = models.target, labels, config
        self.end_ids = models.target.end_ids
        self.ids, self.steps, self.elapsed = list(ids), 0, 0.0
        self.output: list[int] = []
        self.stop_reason: StopReason | None = None
        self.proposer = Proposer(models, config, passes, experience)
        self.verifier = Verifier(models.target, passes)
        self.host_cycle = HostCycle(config, self.proposer, self.verifier)
        self.device_cycle: DeviceCycle | None = None
        if DeviceCycle.possible(config, self.proposer):
            self.device_cycle = DeviceCycle(config, self.proposer, self.verifier)
        self.pieces = Detokenizer(self.target.tokenizer)
        # one detokenizer for both: the output may complete a character that the prompt began
        texts = [self.pieces.feed(token) for token in ids]
        if ids[0] == self.target.tokenizer.bos_token_id:
            texts[0] = ""  # nobody typed it
        self.prompt_texts = tuple(texts)

    @torch.inference_mode()
    def prefill(self) -> PrefillDone:
        """Read the prompt and commit the target's next token, the first anchor."""
        began = time.perf_counter()
        prompt, device = tuple(self.ids), self.target.device
        positions, logits = self.verifier.read(prompt)
        scores, sampler = self.host_cycle.sampler.scores(logits), self.host_cycle.sampler
        noise = sampler.noise(len(prompt) - 1, 1, scores.shape[-1], device)
        token = int(sampler.choose(scores, torch.zeros(1, dtype=torch.int64, device=device), noise))
        if not bool(scores[0, token].isfinite()):
            raise not_finite(f"the target {self.target.name}")
        self.output.append(token)
        self.ids.append(token)
        if token in self.end_ids:
            self.stop_reason = "end_token"
        elif self.config.max_new_tokens == 1:
            self.stop_reason = "max_new_tokens"
        else:
            self.proposer.extend(partial(self.target.features, rows=slice(0, len(prompt))), positions)
            self.proposer.read_prompt(prompt)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
        return PrefillDone(prompt, self.prompt_texts, seconds, committed=(self._own(token),))

    @torch.inference_mode()
    def step(self) -> Callable[[], StepDone]:
        """Run one cycle. Returns a function that builds its event; these functions must be called in the order of steps."""
        began = time.perf_counter()
        start = len(self.ids) - 1
        done = (self.device_cycle or self.host_cycle).run(self.ids, self.config.max_new_tokens - len(self.output))
        proposal, seen, outcome = done.proposal, done.seen, done.walk
        if outcome.bonus == -1:
            raise not_finite(f"the target {self.target.name}")
        tokens = [proposal.tree.tokens[n] for n in outcome.accepted]
        tokens += [] if outcome.bonus is None else [outcome.bonus]
        self.output += tokens
        self.ids += tokens
        self.steps += 1
        if outcome.ended:
            self.stop_reason = "end_token"
        elif outcome.cut:
            self.stop_reason = "max_new_tokens"
        self.proposer.notice(proposal)
        first = proposal.first
        boundary = None if first is None else first_draft_boundary(proposal.tree, first.ids, seen.chosen, outcome)
        decision = self.proposer.learn(proposal, outcome, boundary)
        if self.stop_reason is None and self.device_cycle:
            self.device_cycle.ahead(self.ids)
        # a GPU may have begun this step before it was called
        whole = max(time.perf_counter() - began, done.seconds.total)
        self.elapsed += whole
        if decision is not None and (controller := self.proposer.controller) is not None:
            controller.timed(decision, len(proposal.tree), done.seconds, whole)
        return partial(self._describe, self.steps - 1, start, done, boundary, decision, self.elapsed)

    def _describe(
        self, step: int, start: int, done: CycleDone, boundary: int | None, decision: Decision | None, elapsed: float
    ) -> StepDone:
        """Returns a step as an event. Labels are made for its whole tree, unless the event is not read."""
        proposal, seen, outcome = done.proposal, done.seen, done.walk
        first, texts, inspect = proposal.first, self.labels, self.config.inspect
        return StepDone(
            step=step,
            anchor=proposal.tree.tokens[0],
            anchor_text=texts[proposal.tree.tokens[0]],
            anchor_position=start,
            first_draft=None if first is None else describe_draft(first, texts, inspect),
            boundary_posterior=proposal.boundary.posterior,
            full_acceptance=proposal.boundary.full_acceptance,
            selected_prefixes=proposal.selected,
            branches=tuple(describe_draft(b, texts, inspect) for b in proposal.branches),
            nodes=describe_nodes(proposal, seen, outcome, texts),
            choices=describe_choices(seen, outcome, texts),
            accepted=outcome.accepted,
            committed=self._describe_committed(proposal, outcome),
            actual_boundary=boundary,
            seconds=done.seconds,
            draft_passes=self.proposer.draft_passes(proposal),
            levels=describe_levels(proposal, texts) if inspect else (),
            decision=decision,
            target_tops=describe_tops(proposal, seen, outcome, texts),
            elapsed=elapsed,
            trained=tuple(block.trained for block in proposal.blocks)
            if any(b.trained for b in proposal.blocks)
            else (),
            tempered=() if first is None else first.tempered,
        )

    def _describe_committed(self, proposal: Proposal, outcome: Walk) -> tuple[Committed, ...]:
        out = []
        end = self.end_ids
        for node in outcome.accepted:
            token = proposal.tree.tokens[node]
            text = "" if token in end else self.pieces.feed(token)
            out.append(Committed(token, text, proposer=proposal.drafter_of(node), node=node))
        if outcome.bonus is not None:
            out.append(self._own(outcome.bonus))
        return tuple(out)

    def _own(self, token: int) -> Committed:
        """Returns a token that the target chose and no draft contained."""
        return Committed(token, "" if token in self.end_ids else self.pieces.feed(token), proposer="target", node=None)


def make_header(
    models: Models, parts: dict[str, dict[str, Any]], config: DecodeConfig, prompt: str | None
) -> dict[str, Any]:
    """Returns the first line of a trace, with a new ``run`` identifier: method, settings, models, versions and hardware.

    parts: descriptions of the models from ``d2sd.folders.weights.parts``.
    """
    target = models.target
    return {
        "event": "Header",
        "schema": SCHEMA,
        "run": uuid.uuid4().hex,
        "method": config.method,
        "config": asdict(config),
        "models": models.names(),
        "parts": parts,
        "versions": _versions(),
        "hardware": {
            "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "dtype": target.numbers,
        },
        "prompt": prompt,
    }


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}
