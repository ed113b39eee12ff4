"""Computes how many tokens per step other settings would have committed in a recorded greedy run, without decoding again.

At temperature 0 the text is the same for every method and setting. One target pass over the recorded text gives the features
that drafters need. Each setting is then replayed with the drafters only: the recorded text contains the target's choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from d2sd.config import DecodeConfig
from d2sd.costs.machines import Machine
from d2sd.decoding.cost_aware import Experience
from d2sd.decoding.drafters import CachedDrafters
from d2sd.decoding.replay import Text, read_recorded, recorded_config, recorded_text
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.methods import METHODS, Drafters, FirstDraft
from d2sd.trace.metrics import Work
from d2sd.trace.trace import Trace
from d2sd.tree.boundary import open_prefixes
from d2sd.tree.walk import agreed, first_draft_boundary, walk


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Result of replaying a recorded text with one setting.

    committed: number of committed tokens by step.
    works: the numbers of rows in the passes of each step; ``d2sd.costs.machines`` calculates times from them.
    hits: for steps with re-drafts and a known rejection of the first draft, whether a re-draft started from the true boundary.
    seconds: calculated time of all steps on the given machine; None without a machine.
    cut: whether the recorded text ended before the bonus token of the last step.
    """

    config: DecodeConfig
    committed: tuple[int, ...]
    works: tuple[Work, ...]
    hits: tuple[bool, ...]
    seconds: float | None = None
    cut: bool = False

    @property
    def tokens_per_second(self) -> float | None:
        return sum(self.committed) / self.seconds if self.seconds else None

    @property
    def mean_acceptance_length(self) -> float:
        """α: committed tokens per step, bonus included."""
        return sum(self.committed) / len(self.committed)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Verified tree nodes of every step."""
        return tuple(work.nodes for work in self.works)

    def speedup(self, machine: Machine) -> float | None:
        """Returns the calculated speedup over plain decoding on a machine; None if the drafter's time is unknown."""
        steps = machine.plain_steps(self.config.method, self.works)
        return sum(self.committed) / steps if steps else None

    @property
    def nodes_per_step(self) -> float:
        """Verified tree nodes per step, anchor included."""
        return sum(self.nodes) / len(self.nodes)


def replayed(engine: Engine, trace: Trace, method: str | None = None) -> ReplayOutcome:
    """Returns the outcome of the engine's drafters over a recorded text, with their trained γ.

    method: id of a method. None: the recorded method if it uses a block drafter, otherwise ``dflash``; but ``eagle3`` if the
        engine has an EAGLE-3 drafter and no first block drafter.

    Raises ``InputError`` if the run cannot be replayed.
    """
    wanted = method or _replayable_method(engine, str(trace.header["method"]))
    recorded = replace(recorded_config(trace), inspect=False, backend="auto")
    own = replace(recorded, method=wanted, block_size=None, second_block_size=None)
    return next(Replay(engine, trace).run([engine.resolve(own)]))


def _replayable_method(engine: Engine, recorded: str) -> str:
    if engine.models.first is None and engine.models.eagle3 is not None:
        return "eagle3"
    drafts = recorded in METHODS and METHODS[recorded].first_drafter
    return recorded if drafts else "dflash"


class Replay:
    """A recorded run, prepared for replays. Raises ``InputError`` if it cannot be replayed.

    most: maximum number of output tokens to replay; None for all.
    """

    def __init__(self, engine: Engine, trace: Trace, most: int | None = None):
        target, models = engine.models.target, engine.models
        text = recorded_text(trace, target)
        text = Text(text.ids if most is None else text.ids[: text.start + most], text.start)
        drafters = [d for d in (models.first, models.second, models.eagle3) if d is not None]
        with engine.lock:
            text, others = read_recorded(target, text, {n for d in drafters for n in d.target_layer_ids})
        if others:
            raise InputError(
                f"this trace was not written greedily by the model {models.name}: token {others[0] + 1} of its output is not the "
                "model's greedy choice; load the model that wrote it (command line: --model or --target)"
            )
        self.engine, self.prompt, self.output = engine, list(text.ids[: text.start]), list(text.ids[text.start :])
        self.features = {tuple(d.target_layer_ids): text.features_of(d.target_layer_ids) for d in drafters}

    def run(
        self, configs: Sequence[DecodeConfig], costs: Machine | None = None, experience: Experience | None = None
    ) -> Iterator[ReplayOutcome]:
        """Yields the outcome of every setting; configs: resolved settings (``Engine.resolve``).

        costs: stage costs, for calculated times and for the decisions of cost-aware settings. None: no times are calculated, and
            decisions use costs measured on this machine.
        experience: statistics that cost-aware settings use and update; None: each setting starts without statistics.
        """
        for config in configs:
            yield self._replay(config, costs, experience)

    def at_boundary(self, config: DecodeConfig) -> ReplayOutcome:
        """Returns the outcome if the method re-drafted once in each step, from the true rejection boundary of the first draft."""
        return self._replay(config, None, None, known_boundary=True)

    def commit(self, drafters: CachedDrafters, begin: int, end: int) -> None:
        """Let the drafters read the recorded tokens from ``begin`` up to ``end``; a ``begin`` of 0 means the prompt."""
        read = drafters.commit if begin else partial(drafters.read_prompt, [*self.prompt, *self.output][:end])
        positions = torch.arange(begin, end, device=self.engine.models.target.device)
        with self.engine.lock:
            read(lambda layers: self.features[tuple(layers)][:, begin:end], positions)

    @torch.inference_mode()
    def _replay(
        self, config: DecodeConfig, costs: Machine | None, experience: Experience | None, known_boundary: bool = False
    ) -> ReplayOutcome:
        ids = [*self.prompt, *self.output]
        if config.decides and experience is None:
            experience = Experience(costs.of(config.method) if costs else self.engine.costs(config))
        drafters = self.engine.drafters(config, len(ids), experience)
        if known_boundary:

            def from_boundary(drafters: Drafters, draft: FirstDraft) -> Sequence[int]:
                assert draft.block is not None
                drafted = draft.block.ids
                right = agreed(drafted, ids[known + 1 :])
                return [right] if right < min(len(drafted), open_prefixes(drafted, drafters.end_ids)) else []

            drafters.method = replace(drafters.method, select=from_boundary)
        known = len(self.prompt)  # number of tokens before the anchor; the first anchor is the token from prefill
        self.commit(drafters, 0, known)
        committed, works, hits, cut = list[int](), list[Work](), list[bool](), False
        while known + 1 < len(ids):
            with self.engine.lock:
                proposal = drafters.propose(ids[: known + 1])
            tree = proposal.tree
            # only choices on the accepted path matter, so a node of any depth gets the recorded token at the next position
            chosen = [ids[min(known + d + 1, len(ids) - 1)] for d in tree.depths]
            limit = len(ids) - known - 1
            outcome = walk(tree, chosen, self.engine.models.target.end_ids, limit)
            count = len(outcome.accepted) + (outcome.bonus is not None)
            committed.append(count)
            cut = outcome.bonus is None
            works.append(drafters.work(proposal))
            boundary = None
            if proposal.first is not None:
                boundary = first_draft_boundary(tree, proposal.first.ids, chosen, outcome)
                if proposal.selected and boundary is not None and boundary < len(proposal.first.ids):
                    hits.append(boundary in proposal.selected)
            drafters.plan.learn(proposal, outcome, boundary)
            if known + count + 1 < len(ids):
                self.commit(drafters, known, known + count)
            known += count
        machine = costs.of(config.method) if costs else None
        seconds = sum(machine.seconds(config.method, work) or 0.0 for work in works) if machine else None
        return ReplayOutcome(config, tuple(committed), tuple(works), tuple(hits), seconds, cut)
