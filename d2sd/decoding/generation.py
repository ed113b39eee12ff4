"""State of one generation: what was committed, and the events that tell of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import torch

from d2sd.config import DecodeConfig
from d2sd.decoding.cost import VerifyCost
from d2sd.decoding.device_cycle import DeviceCycle
from d2sd.decoding.finite import not_finite
from d2sd.decoding.host_cycle import Cycle, HostCycle
from d2sd.decoding.inspection import describe_choices, describe_draft, describe_nodes, describe_tops
from d2sd.decoding.proposer import Proposer
from d2sd.decoding.verifier import Verifier
from d2sd.methods import Proposal
from d2sd.models.models import Models
from d2sd.passes.passes import Passes
from d2sd.trace.events import Committed, StepDone, StopReason
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.tree.walk import Walk, first_draft_boundary


class Generation:
    """One prompt being continued: committed ids, caches, clock.

    labels: texts of single tokens; config, passes and cost: as for ``Proposer``.
    """

    def __init__(
        self,
        models: Models,
        labels: TokenTexts,
        ids: Sequence[int],
        config: DecodeConfig,
        passes: Passes,
        cost: VerifyCost | None = None,
    ):
        self.target, self.labels, self.config = models.target, labels, config
        self.ids, self.steps, self.elapsed = list(ids), 0, 0.0
        self.output: list[int] = []
        self.stop_reason: StopReason | None = None
        self.proposer = Proposer(models, config, passes, cost)
        self.verifier = Verifier(models.target, passes)
        self.host_cycle = HostCycle(config, self.proposer, self.verifier)
        self.device_cycle: DeviceCycle | None = None
        if DeviceCycle.possible(config, self.proposer):
            self.device_cycle = DeviceCycle(config, self.proposer, self.verifier)
        self.pieces = Detokenizer(self.target.tokenizer)
        # one detokenizer for both: the output may complete a character that the prompt began
        self.prompt_texts = tuple(self.pieces.feed(token) for token in ids)

    @torch.inference_mode()
    def prefill(self) -> float:
        """Read all prompt tokens but the last, which is the first anchor."""
        began = time.perf_counter()
        count = len(self.ids) - 1
        if count:
            positions = self.verifier.read(self.ids[:-1])
            self.proposer.extend(partial(self.target.features, rows=slice(0, count)), positions)
            self.proposer.read_prompt(self.ids[:-1])
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return time.perf_counter() - began

    @torch.inference_mode()
    def step(self) -> StepDone:
        """One cycle."""
        began = time.perf_counter()
        anchor, start, texts, inspect = self.ids[-1], len(self.ids) - 1, self.labels, self.config.inspect
        cycle: Cycle = self.device_cycle if self.device_cycle and start else self.host_cycle
        done = cycle.run(self.ids, self.config.max_new_tokens - len(self.output))
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
        elif self.device_cycle:
            self.device_cycle.ahead(self.ids)
        first = proposal.first
        event = partial(
            StepDone,
            step=self.steps - 1,
            anchor=anchor,
            anchor_text=texts[anchor],
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
            actual_boundary=None
            if first is None
            else first_draft_boundary(proposal.tree, first.ids, seen.chosen, outcome),
            seconds=done.seconds,
            target_tops=describe_tops(proposal, seen, outcome, texts),
        )
        # a GPU may have worked on this step before it was asked for
        self.elapsed += max(time.perf_counter() - began, done.seconds.total)
        return event(elapsed=self.elapsed)

    def _describe_committed(self, proposal: Proposal, outcome: Walk) -> tuple[Committed, ...]:
        out = []
        end, blocks = self.target.end_ids, proposal.blocks
        for node in outcome.accepted:
            token = proposal.tree.tokens[node]
            text = "" if token in end else self.pieces.feed(token)
            out.append(Committed(token, text, proposer=blocks[proposal.tree.blocks[node]].drafter, node=node))
        if outcome.bonus is not None:
            text = "" if outcome.bonus in end else self.pieces.feed(outcome.bonus)
            out.append(Committed(outcome.bonus, text, proposer="target", node=None))
        return tuple(out)
