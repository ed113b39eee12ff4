"""One generation: its state, the events of its steps, and the header of its trace."""

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
from d2sd.trace.events import Committed, Draw, Finished, PrefillDone, StageSeconds, StepDone, StopReason
from d2sd.trace.text import Detokenizer, TokenTexts
from d2sd.tree.tree import TokenTree
from d2sd.tree.walk import TreeWalk, first_draft_boundary, walk

PACKAGES = ("torch", "transformers")  # packages whose versions are recorded in a trace


class HostCycle:
    """The stages of a step, run from the host. ``DeviceCycle`` has the same methods.

    A step calls ``propose``, ``verify``, ``inspect``, ``commit`` (except for the last step of a text) and ``seconds``, in this order.
    """

    def __init__(self, config: DecodeConfig, drafters: CachedDrafters, verifier: Verifier, labels: TokenTexts):
        self.config, self.drafters, self.verifier, self.labels = config, drafters, verifier, labels
        self.target, self.sampler = verifier.target, Sampler.of(config)
        # host clock, even with a GPU: every stage ends with a copy from the device
        self.clock = StageClock(torch.device("cpu"))
        self._start = 0  # position of the anchor
        self._scored: tuple[torch.Tensor, torch.Tensor, Callable[[bool], torch.Tensor]] | None = None

    def propose(self, ids: Sequence[int]) -> Proposal:
        """Drafts after the committed ``ids``. Returns the tree to verify, with its drafts."""
        self._start = len(ids) - 1
        self.clock.start()
        return self.drafters.propose(ids, self.clock.mark)

    def verify(self, tree: TokenTree) -> Inspection:
        """Runs one pass of the target over the tree. Returns the target's choices at its nodes."""
        device = self.target.device
        scores = self.sampler.scores(self.verifier.logits(tree))
        noise = self.sampler.noise(self._start, 1 + max(tree.depths), scores.shape[-1], device)
        tokens, parents, depths = (
            torch.tensor(x, device=device) for x in (tree.tokens, (0, *tree.parents[1:]), tree.depths)
        )
        chosen = self.sampler.choose(scores, depths, noise)
        measured = partial(measure, scores, chosen, tokens, parents)
        self._scored = scores, noise, measured
        return Inspection.read(measured(False).tolist())

    def inspect(self, proposal: Proposal, seen: Inspection, path: TreeWalk) -> tuple[Inspection, tuple[Draw, ...]]:
        """Returns the target's choices and its random draws.

        seen: the choices. If the run is inspected, they are returned with probabilities.

        The draws are empty unless the run is inspected and samples.
        """
        self.clock.mark("verify")
        assert self._scored is not None, "verify first"
        (scores, noise, measured), self._scored, draws = self._scored, None, tuple[Draw, ...]()
        if self.config.inspect:
            seen = Inspection.read(measured(True).tolist())
            if len(noise):
                draws = describe_draws(scores, noise, proposal, seen, path, self.labels)
            self.clock.mark("")  # not part of any stage, since plain decoding is timed without inspection
        return seen, draws

    def commit(self, path: TreeWalk) -> None:
        """Keeps the keys and values of the anchor and the accepted path, in the caches of the target and the drafters."""
        rows, device = [0, *path.accepted], self.target.device
        self.verifier.cache.commit(rows)
        if self.drafters.block_drafters or self.drafters.eagle3:
            index = torch.tensor(rows, device=device)
            positions = torch.arange(self._start, self._start + len(rows), device=device)
            self.drafters.commit(partial(self.target.features, rows=index), positions)
        if device.type == "cuda":  # so that queued work is charged to the stage that caused it
            torch.cuda.synchronize(device)

    def seconds(self) -> StageSeconds:
        """Returns the seconds of each stage of this step."""
        self.clock.mark("commit")
        return StageSeconds(**self.clock.read())

    def ahead(self, ids: Sequence[int]) -> None:
        """Does nothing. Only ``DeviceCycle`` can begin a step before it is requested."""


class Generation:
    """The state of one generation: committed token ids, caches, clock.

    labels: texts of single tokens.
    ids: token ids of the prompt.
    config, passes, experience: as for ``CachedDrafters``.
    """

    def __init__(
        self,
        models: Models,
        labels: TokenTexts,
        ids: Sequence[int],
        config: DecodeConfig,
        passes: Passes,
        experience: Experience | None,
    ):
        self.target, self.labels, self.config = models.target, labels, config
        self.ids, self.steps, self.elapsed = list(ids), 0, 0.0
        self.output: list[int] = []
        self.stop_reason: StopReason | None = None
        self.drafters = CachedDrafters(models, config, passes, experience)
        self.verifier = Verifier(models.target, passes)
        self.cycle: HostCycle | DeviceCycle
        if DeviceCycle.possible(config, self.drafters):
            self.cycle = DeviceCycle(config, self.drafters, self.verifier)
        else:
            self.cycle = HostCycle(config, self.drafters, self.verifier, labels)
        self.pieces = Detokenizer(self.target.tokenizer)
        # shared by prompt and output: the output may complete a character that the prompt began
        texts = [self.pieces.feed(token) for token in ids]
        if ids[0] == self.target.tokenizer.bos_token_id:
            texts[0] = ""  # not part of the user's text
        self.prompt_texts = tuple(texts)

    @torch.inference_mode()
    def prefill(self) -> PrefillDone:
        """Reads the prompt, and commits the target's next token, which is the first anchor. Returns the event."""
        began = time.perf_counter()
        prompt, device, sampler = tuple(self.ids), self.target.device, Sampler.of(self.config)
        positions, logits = self.verifier.read(prompt)
        scores = sampler.scores(logits)
        noise = sampler.noise(len(prompt) - 1, 1, scores.shape[-1], device)
        token = int(sampler.choose(scores, torch.zeros(1, dtype=torch.int64, device=device), noise))
        if not bool(scores[0, token].isfinite()):
            raise not_finite(f"the target {self.target.name}")
        self._append([token], token in self.drafters.end_ids, self.config.max_new_tokens == 1)
        if self.stop_reason is None:
            self.drafters.read_prompt(prompt, partial(self.target.features, rows=slice(0, len(prompt))), positions)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.prefill_seconds = time.perf_counter() - began
        return PrefillDone(prompt, self.prompt_texts, self.prefill_seconds, committed=(self._chosen_by_target(token),))

    @torch.inference_mode()
    def step(self) -> Callable[[], StepDone]:
        """Runs one step. Returns a function that builds the event of the step. These functions must be called in the order of the
        steps.
        """
        began, start, cycle = time.perf_counter(), len(self.ids) - 1, self.cycle
        proposal = cycle.propose(self.ids)  # draft, select prefixes, re-draft, merge, prune
        tree, first, controller = proposal.tree, proposal.first, self.drafters.controller
        seen = cycle.verify(tree)  # one pass of the target
        path = walk(tree, seen.chosen, self.drafters.end_ids, self.config.max_new_tokens - len(self.output))
        seen, draws = cycle.inspect(proposal, seen, path)
        if not (path.ended or path.cut):
            cycle.commit(path)
        seconds = cycle.seconds()
        if path.bonus == -1:
            raise not_finite(f"the target {self.target.name}")
        bonus = [] if path.bonus is None else [path.bonus]
        self._append([*(tree.tokens[node] for node in path.accepted), *bonus], path.ended, path.cut)
        boundary = None if first is None else first_draft_boundary(tree, first.ids, seen.chosen, path)
        decision = controller.learn(proposal, path, boundary)
        if self.stop_reason is None:
            cycle.ahead(self.ids)
        # a GPU may have begun this step before the call
        whole = max(time.perf_counter() - began, seconds.total)
        controller.timed(decision, len(tree), seconds, whole)
        self.drafters.warn_once(proposal)
        self.steps, self.elapsed = self.steps + 1, self.elapsed + whole
        return partial(
            self._describe,
            proposal,
            seen,
            path,
            step=self.steps - 1,
            anchor_position=start,
            actual_boundary=boundary,
            seconds=seconds,
            decision=decision,
            elapsed=self.elapsed,
            draws=draws,
        )

    def _append(self, tokens: Sequence[int], ended: bool, cut: bool) -> None:
        """Appends committed tokens to the text.

        ended: whether the last token is an end token.
        cut: whether the token limit was reached.
        """
        self.output += tokens
        self.ids += tokens
        if ended:
            self.stop_reason = "end_token"
        elif cut:
            self.stop_reason = "max_new_tokens"

    def finished(self) -> Finished:
        """Returns the event at the end of the run."""
        assert self.stop_reason is not None
        text = self.target.tokenizer.decode(self.output, skip_special_tokens=True)
        return Finished(self.stop_reason, text, tuple(self.output), self.steps, self.elapsed, self.prefill_seconds)

    def _describe(self, proposal: Proposal, seen: Inspection, outcome: TreeWalk, **fields: Any) -> StepDone:
        """Returns the event of a step. Called only if the event is used, because the labels of a whole tree take time.

        fields: the fields of the event that need no labels.
        """
        first, texts, inspect = proposal.first, self.labels, self.config.inspect
        tokens, drafter_of = proposal.tree.tokens, proposal.drafter_of
        committed = [Committed(tokens[n], self._text(tokens[n]), drafter_of(n), n) for n in outcome.accepted]
        if outcome.bonus is not None:
            committed.append(self._chosen_by_target(outcome.bonus))
        return StepDone(
            **fields,
            anchor=tokens[0],
            anchor_text=texts[tokens[0]],
            first_draft=None if first is None else describe_draft(first, texts, inspect),
            boundary_posterior=proposal.boundary.posterior,
            full_acceptance=proposal.boundary.full_acceptance,
            selected_prefixes=proposal.selected,
            branches=tuple(describe_draft(b, texts, inspect) for b in proposal.branches),
            nodes=describe_nodes(proposal, seen, outcome, texts),
            choices=describe_choices(seen, outcome, texts),
            accepted=outcome.accepted,
            committed=tuple(committed),
            draft_passes=self.drafters.draft_passes(proposal),
            levels=describe_levels(proposal, texts) if inspect else (),
            target_tops=describe_tops(proposal, seen, outcome, texts),
            trained=tuple(block.trained for block in proposal.blocks)
            if any(b.trained for b in proposal.blocks)
            else (),
            tempered=() if first is None else first.tempered,
        )

    def _chosen_by_target(self, token: int) -> Committed:
        return Committed(token, self._text(token), proposer="target", node=None)

    def _text(self, token: int) -> str:
        """Returns the text that a committed token adds to the output. Must be called once for every committed token, in order."""
        return "" if token in self.drafters.end_ids else self.pieces.feed(token)


def make_header(
    models: Models, parts: dict[str, dict[str, Any]], config: DecodeConfig, prompt: str | None
) -> dict[str, Any]:
    """Returns the header of a trace, with a new ``run`` identifier: method, settings, models, versions and hardware.

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
