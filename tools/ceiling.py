"""Computes upper bounds of the speed of cost-aware steps from replays: ``python -m tools.ceiling``.

At every position of texts from plain decoding, drafts are made with every γ and number of re-drafts that a step may choose. This
gives the accepted tokens of every possible step. With the measured table of times, dynamic programming finds the quickest steps,
for two bounds:

* *sizes*: γ and the numbers of re-drafts and nodes are optimal. Prefixes and nodes are taken in the order of the drafters'
  probabilities, as in a step.
* *nodes*: as *sizes*, but the step also knows in advance which nodes of the tree will be accepted, and verifies only those. Only
  the drafters' tokens and times limit this bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from d2sd import DecodeConfig, Engine, load
from d2sd.bench.prompts import read_prompts
from d2sd.costs.machines import StageCosts
from d2sd.decoding.cost_aware import Controller, Experience
from d2sd.methods import METHODS, FirstDraft
from d2sd.replay.recorded import Replay
from d2sd.tree.walk import walk

# The number of re-drafts at a position, and the numbers of nodes that must be verified so that 1, 2, … tokens are accepted.
NeededNodes = tuple[int, list[int]]


class Forced(Controller):
    """A controller that always uses the block size ``size``, re-drafts from the ``count`` likeliest prefixes, and keeps all nodes."""

    min_log_probability = -7.0

    def __init__(self, size: int, count: int, config: DecodeConfig):
        super().__init__(config, [size])
        self.count = count

    def worthwhile(self, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[int]:
        return sorted(prefixes, key=draft.boundary.posterior.__getitem__, reverse=True)[: self.count]


@torch.inference_mode()
def needed_nodes(replay: Replay, config: DecodeConfig, controller: Forced) -> Iterator[NeededNodes]:
    """Drafts at every position of a text. Yields, for each position, the number of re-drafts and the numbers of nodes
    (``NeededNodes``).
    """
    engine, ids, begin = replay.engine, replay.ids, replay.begin
    drafters = engine.drafters(config, len(ids))
    drafters.controller = controller
    replay.commit(drafters, 0, begin)
    for anchor in range(begin, len(ids) - 1):
        tree = (proposal := drafters.propose(ids[: anchor + 1])).tree
        chosen = [ids[min(anchor + depth + 1, len(ids) - 1)] for depth in tree.depths]
        accepted = walk(tree, chosen, engine.models.target.end_ids, len(ids) - anchor - 1).accepted
        rank = {node: place for place, node in enumerate(tree.likeliest(tree.reach()), 1)}
        yield len(proposal.branches), list(accumulate((rank[node] for node in accepted), max))
        if anchor + 2 < len(ids):
            replay.commit(drafters, anchor, anchor + 1)


def quickest(ways: dict[int, list[list[NeededNodes]]], costs: StageCosts, exact: bool) -> float:
    """Returns the minimum seconds for a text.

    ways: for each γ, a list with one entry per number of re-drafts. An entry has the result of ``needed_nodes`` at every position.
    exact: whether only accepted nodes are verified.
    """
    count = len(next(iter(ways.values()))[0])
    left = [0.0] * (count + 1)
    for position in reversed(range(count)):
        left[position] = costs.plain() + left[position + 1]
        for size, settings in ways.items():
            for redrafts, needed in (positions[position] for positions in settings):
                draft = costs.first_draft.seconds(size) + costs.other
                draft += costs.second_draft.seconds(redrafts * size) if redrafts else 0.0
                for tokens, nodes in enumerate(needed, 1):
                    whole = draft + costs.verify.seconds(1 + (tokens if exact else nodes))
                    left[position] = min(left[position], whole + left[min(count, position + tokens + 1)])
    return left[0]


def main() -> None:
    """Prints the speeds of the controller and of both bounds, relative to plain decoding, for every method and domain."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", default="chat")
    parser.add_argument("--limit", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--methods", default="dflash,d2sd,d2sd_tree")
    arguments = parser.parse_args()
    engine: Engine = load(arguments.model)
    chat = bool(engine.models.target.tokenizer.chat_template)
    base = engine.resolve(DecodeConfig("autoregressive", arguments.tokens, chat=chat, inspect=False))
    prompts = read_prompts(arguments.prompts, arguments.limit)
    traces = [engine.generate(prompt.text, base) for prompt in prompts]
    texts = [(p.domain, Replay(engine, trace)) for p, trace in zip(prompts, traces, strict=True) if trace.steps]
    for method in arguments.methods.split(","):
        config = engine.resolve(replace(base, method=method, cost_aware=True))
        costs = engine.costs(config).of(method)
        experience = Experience(costs)
        redrafts = range(1 + config.num_branches) if METHODS[method].second_drafter != "none" else range(1)
        rows: dict[str, list[list[float]]] = {}
        for domain, replay in texts:
            outcome = replay.run(config, costs, experience)
            ways = {
                size: [list(needed_nodes(replay, config, Forced(size, n, config))) for n in redrafts if n < size]
                for size in METHODS[method].draft_lengths(config.block_size or 2)
            }
            plain = (len(replay.ids) - replay.begin - 1) * costs.plain()
            row = [
                plain,
                plain / sum(outcome.committed) * (costs.plain_steps(method, outcome.works) or 1.0),
                *(quickest(ways, costs, exact) for exact in (False, True)),
            ]
            for name in (domain, "all"):
                rows.setdefault(name, []).append(row)
        print(f"{method}: controller, sizes, nodes; {costs.to_dict()['milliseconds']}")
        for name, of_domain in rows.items():
            plain, *others = (sum(column) for column in zip(*of_domain, strict=True))
            print(f"  {name:12} " + "  ".join(f"{plain / seconds:.2f}" for seconds in others), flush=True)


if __name__ == "__main__":
    main()
