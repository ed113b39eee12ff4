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
from d2sd.decoding.drafters import CachedDrafters
from d2sd.decoding.inspection import (
    Inspection,
    StepResult,
    describe_choices,
    describe_draft,
    describe_draws,
    describe_levels,
    describe_nodes,
    describe_tops,
    measure,
)
from d2sd.decoding.verifier import Sampler, Verifier
from d2sd.methods import Proposal
from d2sd.nets.models import Models, not_finite
from d2sd.nets.passes import Passes, StageClock
from d2sd.trace.checks import SCHEMA
from d2sd.trace.events import Committed, Decision, Draw, PrefillDone, StageSeconds, StepDone, StopReason
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.tree.tree import TokenTree
from d2sd.tree.walk import TreeWalk, first_draft_boundary, walk

PACKAGES = ("torch", "transformers")  # packages whose versions are recorded in a trace


class Generation:
    """The state of one generation: committed token ids, caches, clock.

    labels: texts of single tokens.
    config, passes, experience: as for ``CachedDrafters``.
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
        self.drafters = CachedDrafters(models, config, passes, experience)
        self.verifier, self.sampler = Verifier(models.target, passes), Sampler.of(config)
        # host clock, even with a GPU: every stage ends with a copy from the device
        self.clock = StageClock(torch.device("cpu"))
        self.device_cycle: DeviceCycle | None = None
        if DeviceCycle.possible(config, self.drafters):
            self.device_cycle = DeviceCycle(config, self.drafters, self.verifier)
        self.pieces = Detokenizer(self.target.tokenizer)
        # shared by prompt and output: the output may complete a character that the prompt began
        texts = [self.pieces.feed(token) for token in ids]
        if ids[0] == self.target.tokenizer.bos_token_id:
            texts[0] = ""  # not part of the user's text
        self.prompt_texts = tuple(texts)

    @torch.inference_mode()
    def prefill(self) -> PrefillDone:
        """Read the prompt and commit the target's next token, the first anchor."""
        began = time.perf_counter()
        prompt, device = tuple(self.ids), self.target.device
        positions, logits = self.verifier.read(prompt)
        sampler = self.sampler
        scores = sampler.scores(logits)
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
            self.drafters.read_prompt(prompt, partial(self.target.features, rows=slice(0, len(prompt))), positions)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
        return PrefillDone(prompt, self.prompt_texts, seconds, committed=(self._own(token),))

    @torch.inference_mode()
    def step(self) -> Callable[[], StepDone]:
        """Run one step. Returns a function that builds its event; these functions must be called in the order of steps."""
        began = time.perf_counter()
        if self.device_cycle is not None:
            return self._finish(self.device_cycle.step(self.ids, self.room), began)

        drafters, plan, clock = self.drafters, self.drafters.plan, self.clock
        clock.start()
        method = drafters.begin(self.ids)  # plain decoding, if a cost-aware step is better off without a draft
        draft = method.draft(drafters)  # with a confidence at every position
        clock.mark("first_draft")
        # prefixes up to the likeliest rejection boundaries; if cost-aware, only prefixes that are worth a re-draft
        prefixes = plan.worthwhile(draft, method.select(drafters, draft))
        redrafts = method.redraft(drafters, draft, prefixes)  # one batch
        clock.mark("second_draft")
        tree = plan.prune(method.merge(drafters, draft, redrafts))
        clock.mark("tree")
        scores, noise, measured = self.verify(tree)  # one pass of the target
        seen = Inspection.read(measured(False).tolist())
        path = walk(tree, seen.chosen, self.end_ids, self.room)
        clock.mark("verify")
        proposal, draws = Proposal.of(tree, draft, prefixes, redrafts), tuple[Draw, ...]()
        if self.config.inspect:
            seen = Inspection.read(measured(True).tolist())
            if len(noise):
                draws = describe_draws(scores, noise, proposal, seen, path, self.labels)
            clock.mark("")  # not part of any stage, since plain decoding is timed without inspection
        if not (path.ended or path.cut):
            self.commit(path)
        clock.mark("commit")
        return self._finish(StepResult(proposal, seen, path, StageSeconds(**clock.read()), draws), began)

    @property
    def room(self) -> int:
        return self.config.max_new_tokens - len(self.output)

    def verify(self, tree: TokenTree) -> tuple[torch.Tensor, torch.Tensor, Callable[[bool], torch.Tensor]]:
        """Run one pass over the tree. Returns scores (N, V), noise (depths, V), and ``measure`` with all arguments set except
        ``inspect``."""
        device = self.target.device
        scores = self.sampler.scores(self.verifier.logits(tree))
        noise = self.sampler.noise(len(self.ids) - 1, 1 + max(tree.depths), scores.shape[-1], device)
        tokens, parents, depths = (
            torch.tensor(x, device=device) for x in (tree.tokens, (0, *tree.parents[1:]), tree.depths)
        )
        chosen = self.sampler.choose(scores, depths, noise)
        return scores, noise, partial(measure, scores, chosen, tokens, parents)

    def commit(self, path: TreeWalk) -> None:
        """Keep the keys and values of the anchor and the accepted path, in the caches of the target and the drafters."""
        rows, start, device = [0, *path.accepted], len(self.ids) - 1, self.target.device
        self.verifier.cache.commit(rows)
        if self.drafters.reads_features:
            index = torch.tensor(rows, device=device)
            positions = torch.arange(start, start + len(rows), device=device)
            self.drafters.commit(partial(self.target.features, rows=index), positions)
        if device.type == "cuda":  # so that queued work is charged to the stage that caused it
            torch.cuda.synchronize(device)

    def _finish(self, done: StepResult, began: float) -> Callable[[], StepDone]:
        """Append the committed tokens to the text. Returns the function that builds the event of the step."""
        proposal, outcome, start = done.proposal, done.walk, len(self.ids) - 1
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
        self.drafters.notice(proposal)
        first, plan = proposal.first, self.drafters.plan
        boundary = None if first is None else first_draft_boundary(proposal.tree, first.ids, done.seen.chosen, outcome)
        decision = plan.learn(proposal, outcome, boundary)
        if self.stop_reason is None and self.device_cycle:
            self.device_cycle.ahead(self.ids)
        # a GPU may have begun this step before the call
        whole = max(time.perf_counter() - began, done.seconds.total)
        self.elapsed += whole
        plan.timed(decision, len(proposal.tree), done.seconds, whole)
        return partial(self._describe, self.steps - 1, start, done, boundary, decision, self.elapsed)

    def _describe(
        self, step: int, start: int, done: StepResult, boundary: int | None, decision: Decision | None, elapsed: float
    ) -> StepDone:
        """Returns the event of a step. Called only if the event is used, because the labels of a whole tree take time."""
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
            draft_passes=self.drafters.draft_passes(proposal),
            levels=describe_levels(proposal, texts) if inspect else (),
            decision=decision,
            target_tops=describe_tops(proposal, seen, outcome, texts),
            elapsed=elapsed,
            trained=tuple(block.trained for block in proposal.blocks)
            if any(b.trained for b in proposal.blocks)
            else (),
            tempered=() if first is None else first.tempered,
            draws=done.draws,
        )

    def _describe_committed(self, proposal: Proposal, outcome: TreeWalk) -> tuple[Committed, ...]:
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
        """Returns the committed token, which the target chose and no draft contained."""
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
