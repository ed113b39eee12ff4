"""State of one generation and its cycle: draft → re-draft → verify → commit."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from d2sd.attention import BACKENDS
from d2sd.config import DecodeConfig
from d2sd.cost import affordable
from d2sd.draft_model import DraftModelSession
from d2sd.drafting import Block, DrafterName, DraftSession
from d2sd.events import Committed, StageSeconds, StepDone, StopReason
from d2sd.inspection import TOP, Inspection, describe_choices, describe_draft, describe_nodes
from d2sd.methods import METHODS, Drafters, Method, Proposal
from d2sd.sampling import Sampler
from d2sd.text import Detokenizer
from d2sd.tree import TokenTree
from d2sd.verify import Walk, first_draft_boundary, walk

if TYPE_CHECKING:
    from d2sd.decode import Engine


class Generation:
    """One prompt being continued: committed ids, caches, clock."""

    def __init__(self, engine: Engine, ids: list[int], config: DecodeConfig):
        self.engine, self.target, self.config = engine, engine.target, config
        self.method: Method = METHODS[config.method]
        self.ids, self.steps, self.elapsed = list(ids), 0, 0.0
        self.output: list[int] = []
        self.stop_reason: StopReason | None = None
        self.block_size = config.block_size or 1
        self.second_block_size = config.second_block_size or self.block_size
        room = len(ids) + config.max_new_tokens
        self.backend = BACKENDS[config.backend]
        self.cost = engine.verify_cost(config.backend) if config.cost_aware else None
        self.cache = self.target.new_cache(room + 1 + self._most_nodes())
        models = {"none": None, "vp": engine.second, "first": engine.first}
        first = engine.first if self.method.first_drafter else None
        second = models[self.method.second_drafter]
        names: dict[int, DrafterName] = {id(second): "second", id(first): "first"}
        sessions = {
            id(m): DraftSession(names[id(m)], m, self.target, room, self.backend)
            for m in (first, second)
            if m is not None
        }
        self.sessions = list(sessions.values())
        self.first = sessions.get(id(first))
        self.second = sessions.get(id(second))
        self.model: DraftModelSession | None = None
        if self.method.draft_model and engine.draft_model is not None:
            self.model = DraftModelSession(engine.draft_model, room + self.block_size, self.backend)
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
            if self.model:
                self.model.read(self.ids[:-1])
        self._wait()
        return time.perf_counter() - began

    @torch.inference_mode()
    def step(self) -> StepDone:
        """One cycle."""
        began = time.perf_counter()
        self.clock = dict.fromkeys(("first_draft", "second_draft", "tree", "verify", "commit"), 0.0)
        anchor, start, texts, inspect = self.ids[-1], len(self.ids) - 1, self.engine.texts, self.config.inspect
        proposal = self.method.propose(
            Drafters(
                anchor,
                partial(self._draft, "first_draft", self.first, self.block_size),
                partial(self._draft, "second_draft", self.second, self.second_block_size),
                self._sample,
                self._chain,
                self.config.num_branches,
                self.second_block_size - self.block_size,
                self.config.node_budget or 0,
                random.Random(self._seed),
            )
        )
        proposal = replace(proposal, tree=self._afford(proposal.tree))
        self.clock["tree"] = time.perf_counter() - began - sum(self.clock.values())
        tree, device = proposal.tree, self.target.device
        mask = torch.from_numpy(tree.ancestor_mask()).to(device) if len(tree) > 1 else None
        positions = torch.tensor(tree.depths, device=device) + start
        hidden = self.target.forward(
            torch.tensor(tree.tokens, device=device), positions, self.cache, mask, self.backend
        )
        scores = self.sampler.scores(self.target.head(hidden).float())
        chosen_tensor = self.sampler.choose(scores, [start + d + 1 for d in tree.depths])
        seen = Inspection.read(scores, chosen_tensor, tree, inspect)
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
            first_draft=None if first is None else describe_draft(first, texts, inspect),
            boundary_posterior=proposal.posterior,
            full_acceptance=proposal.full_acceptance,
            selected_prefixes=proposal.selected,
            branches=tuple(describe_draft(b, texts, inspect) for b in proposal.branches),
            nodes=describe_nodes(proposal, seen, outcome, texts),
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
        end, blocks = self.target.end_ids, proposal.blocks
        for node in outcome.accepted:
            token = proposal.tree.tokens[node]
            text = "" if token in end else self.pieces.feed(token)
            out.append(Committed(token, text, blocks[proposal.tree.blocks[node]].drafter, node))
        if outcome.bonus is not None:
            text = "" if outcome.bonus in end else self.pieces.feed(outcome.bonus)
            out.append(Committed(outcome.bonus, text, "target", None))
        return tuple(out)

    def _afford(self, tree: TokenTree) -> TokenTree:
        """What of a tree is verified, by the node budget and by what nodes cost."""
        count = self.config.node_budget or len(tree)
        if self.cost is not None:
            reach = sorted(tree.reach()[1:], reverse=True)
            count = min(count, affordable(reach, self.cost, sum(self.clock.values())))
        return tree.keep(count)

    @property
    def _seed(self) -> int:
        """For random choices of this step: the run's seed and the text position."""
        return (self.config.seed * 1_000_003 + len(self.ids) - 1) % 2**63

    def _most_nodes(self) -> int:
        """Most tree nodes below the anchor that this method can make."""
        if self.method.needs_budget:
            return self.config.node_budget or 0
        return (1 + 2 * (self.config.num_branches + 1)) * max(self.block_size, self.second_block_size)

    def _draft(
        self, stage: str, session: DraftSession | None, block_size: int, prefixes: Sequence[Sequence[int]], top: int = 1
    ) -> list[Block]:
        assert session is not None
        began = time.perf_counter()
        blocks = session.draft(self.ids[-1], prefixes, block_size, max(top, TOP) if self.config.inspect else top)
        self.clock[stage] += time.perf_counter() - began
        return blocks

    def _sample(self, count: int) -> list[Block]:
        assert self.first is not None
        return self.first.sample(count, self._seed)

    def _chain(self) -> Block:
        assert self.model is not None
        began = time.perf_counter()
        block = self.model.draft(self.ids, self.block_size - 1)
        self.clock["first_draft"] += time.perf_counter() - began
        return block
