"""One cycle, draft → re-draft → verify → commit, with its tree built on the host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from d2sd.config import DecodeConfig
from d2sd.decoding.inspection import Inspection, measure
from d2sd.decoding.proposer import Proposer
from d2sd.decoding.verifier import Sampler, Verifier
from d2sd.methods import Proposal
from d2sd.trace.events import StageSeconds
from d2sd.tree.walk import Walk, walk


@dataclass(frozen=True, slots=True)
class CycleDone:
    """Result of a cycle: the tree, the target's choices at its nodes, the accepted path, and stage times."""

    proposal: Proposal
    seen: Inspection
    walk: Walk
    seconds: StageSeconds


class HostCycle:
    """Cycles of any method, with passes of any shape. Every draft and the verification end with a copy to the host."""

    def __init__(self, config: DecodeConfig, proposer: Proposer, verifier: Verifier):
        self.config, self.proposer, self.verifier = config, proposer, verifier
        self.target = verifier.target
        self.sampler, self.end_ids = Sampler.of(config), verifier.target.end_ids

    def run(self, ids: Sequence[int], room: int) -> CycleDone:
        """Run one cycle after the committed ``ids``, whose last one is the anchor.

        room: maximum number of tokens to commit.

        Afterwards the caches hold the committed tokens, unless the text ended.
        """
        start, device = len(ids) - 1, self.target.device
        proposal = self.proposer.propose(ids)
        drafted = time.perf_counter()
        tree = proposal.tree
        logits = self.verifier.logits(tree)
        scores = self.sampler.scores(logits)
        noise = self.sampler.noise(start, 1 + max(tree.depths), scores.shape[-1], device)
        tokens, parents, depths = (
            torch.tensor(x, device=device) for x in (tree.tokens, (0, *tree.parents[1:]), tree.depths)
        )
        chosen = self.sampler.choose(scores, depths, noise)
        seen = Inspection.read(measure(scores, chosen, tokens, parents, self.config.inspect).tolist())
        found = walk(tree, seen.chosen, self.end_ids, room)
        verified = time.perf_counter()
        if not (found.ended or found.cut):
            self._commit([0, *found.accepted], start)
            if device.type == "cuda":  # so that queued work is charged to the stage that caused it
                torch.cuda.synchronize(device)
        seconds = StageSeconds(
            **self.proposer.seconds, verify=verified - drafted, commit=time.perf_counter() - verified
        )
        return CycleDone(proposal, seen, found, seconds)

    def _commit(self, rows: list[int], start: int) -> None:
        self.verifier.cache.commit(rows)
        if self.proposer.reads_features:
            index = torch.tensor(rows, device=self.target.device)
            positions = torch.arange(start, start + len(rows), device=self.target.device)
            self.proposer.committed(partial(self.target.features, rows=index), positions)
