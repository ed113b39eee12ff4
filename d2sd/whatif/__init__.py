"""Computes what other settings would have committed, from a recorded greedy run, without decoding again.

At temperature 0 the text is the same for every method and setting. One target pass over the recorded text gives the
features that drafters read at every position. A setting is then replayed with the drafters alone, because the target's
choices along the accepted path are the recorded text itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch

from d2sd.config import DecodeConfig
from d2sd.costs.machines import Machine
from d2sd.decoding.cost_aware import Experience
from d2sd.decoding.proposer import Proposer
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.metrics import Work
from d2sd.trace.trace import Trace
from d2sd.tree.walk import first_draft_boundary, walk

# How far the recorded token may lie below the favourite before it is another model's, in logits: one pass over the whole text
# rounds otherwise than passes over steps did.
MARGIN = {"float32": 1e-3}
MARGIN_OF_16_BITS = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a setting over the recorded text: committed tokens and verified nodes of every step.

    works: the rows of every step's passes, from which ``d2sd.costs.machines`` calculates times.
    hits: whether the true boundary was a selected prefix, for the steps where that is known.
    seconds: calculated time of all steps on a stated machine; None without one.
    cut: whether the text ended in the last step before a token of the target's own.
    """

    config: DecodeConfig
    committed: tuple[int, ...]
    works: tuple[Work, ...]
    hits: tuple[bool, ...]
    seconds: float | None = None
    cut: bool = False

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second by the cost table."""
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
        """Returns the calculated speedup over plain decoding on a machine; None if its drafter's time is unknown."""
        steps = machine.plain_steps(self.config.method, self.works)
        return sum(self.committed) / steps if steps else None

    @property
    def nodes_per_step(self) -> float:
        """Verified tree nodes per step, anchor included."""
        return sum(self.nodes) / len(self.nodes)


def recorded_config(trace: Trace) -> DecodeConfig:
    """Returns the settings of a recorded trace; fields unknown to this version are dropped."""
    known = {f.name for f in fields(DecodeConfig)}
    try:
        return DecodeConfig(**{k: v for k, v in trace.header["config"].items() if k in known})
    except (TypeError, ValueError) as error:
        raise InputError(f"the trace's settings cannot be read: {error}") from None


def replayed(engine: Engine, trace: Trace, method: str | None = None) -> Outcome:
    """Returns the steps that the engine's drafters would take over a recorded text, with γ as trained.

    method: None for the recorded one, or one that these drafters can run.

    Raises ``InputError``, as ``Replay`` does.
    """
    wanted = method or _served(engine, str(trace.header["method"]))
    recorded = replace(recorded_config(trace), inspect=False, backend="auto")
    own = replace(recorded, method=wanted, block_size=None, second_block_size=None)
    return next(Replay(engine, trace).run([engine.resolve(own)]))


def _served(engine: Engine, recorded: str) -> str:
    if engine.models.first is None and engine.models.eagle3 is not None:
        return "eagle3"
    drafts = recorded in METHODS and METHODS[recorded].first_drafter
    return recorded if drafts else "dflash"


class Replay:
    """A recorded run, prepared for replays. Raises ``InputError`` if it cannot be replayed.

    most: maximum number of output tokens to replay; None for all.
    """

    def __init__(self, engine: Engine, trace: Trace, most: int | None = None):
        if recorded_config(trace).temperature != 0:
            raise InputError("what-if needs a run at temperature 0: only then is the text the same for every setting")
        if lacks := {"prompt", "tokens", "target"}.intersection(trace.missing):
            raise InputError(
                f"this log does not hold all tokens ({', '.join(sorted(lacks))}), so nothing can be drafted again"
            )
        if trace.prefill is None or len(trace.token_ids) < 2:
            raise InputError("the trace holds no text to draft; record a run of at least two tokens")
        self.engine, self.prompt = engine, list(trace.prefill.prompt_token_ids)
        self.output = trace.token_ids[:most]
        models = engine.models
        drafters = [d for d in (models.first, models.second, models.eagle3) if d is not None]
        with engine.lock:
            self._read([d.target_layer_ids for d in drafters])

    @torch.inference_mode()
    def _read(self, layers: list[list[int]]) -> None:
        """Runs one teacher-forced pass over the whole text, for the features of these layers."""
        target, ids = self.engine.models.target, [*self.prompt, *self.output]
        size = target.config.vocab_size
        if max(ids) >= size or len(ids) > target.max_positions:
            raise InputError(
                f"this trace is not of the model {self.engine.models.name}: its tokens or its length do not fit"
            )
        rows = torch.tensor(ids[:-1], device=target.device)
        positions = torch.arange(len(rows), device=target.device)
        hidden = target.forward(rows, positions, target.new_cache(len(rows)), None, None)
        self.features = {tuple(taps): target.features(taps, slice(None)) for taps in layers}
        scores = target.logits(hidden[len(self.prompt) - 1 :])
        own = scores.gather(1, torch.tensor(self.output, device=target.device)[:, None])[:, 0]
        best = scores.max(-1).values
        gap = best - own
        margin = MARGIN.get(target.numbers, MARGIN_OF_16_BITS)
        if float(gap.max()) > margin:
            at = int(gap.gt(margin).int().argmax())
            raise InputError(
                f"this trace was not written greedily by the model {self.engine.models.name}: token {at + 1} of its output "
                "is not the one that it would choose; give the model with --model or --target"
            )

    def run(
        self, configs: Sequence[DecodeConfig], costs: Machine | None = None, experience: Experience | None = None
    ) -> Iterator[Outcome]:
        """Yields the outcome of every setting; configs: resolved settings (``Engine.resolve``).

        costs: stage costs for calculated times and for the decisions of cost-aware settings; without it, these are measured on
            this machine.
        experience: statistics that cost-aware settings use and update; without it each setting starts with none.
        """
        for config in configs:
            yield self._replay(config, costs, experience)

    def _extend(self, proposer: Proposer, begin: int, end: int) -> None:
        positions = torch.arange(begin, end, device=self.engine.models.target.device)
        with self.engine.lock:
            proposer.committed(lambda layers: self.features[tuple(layers)][:, begin:end], positions)

    @torch.inference_mode()
    def _replay(self, config: DecodeConfig, costs: Machine | None, experience: Experience | None) -> Outcome:
        ids = [*self.prompt, *self.output]
        if config.decides and experience is None:
            experience = Experience(costs.of(config.method) if costs else self.engine.costs(config))
        proposer = self.engine.proposer(config, len(ids), experience)
        known = len(self.prompt)  # tokens before the anchor; prefill gave the first one of the output
        self._extend(proposer, 0, known)
        with self.engine.lock:
            proposer.read_prompt(ids[:known])
        committed, works, hits, cut = list[int](), list[Work](), list[bool](), False
        while known + 1 < len(ids):
            with self.engine.lock:
                proposal = proposer.propose(ids[: known + 1])
            tree = proposal.tree
            # off the accepted path nothing is read, so every node may be given the choice on it
            chosen = [ids[min(known + d + 1, len(ids) - 1)] for d in tree.depths]
            limit = len(ids) - known - 1
            outcome = walk(tree, chosen, self.engine.models.target.end_ids, limit)
            count = len(outcome.accepted) + (outcome.bonus is not None)
            committed.append(count)
            cut = outcome.bonus is None
            works.append(proposer.work(proposal))
            boundary = None
            if proposal.first is not None:
                boundary = first_draft_boundary(tree, proposal.first.ids, chosen, outcome)
                if proposal.selected and boundary is not None and boundary < len(proposal.first.ids):
                    hits.append(boundary in proposal.selected)
            proposer.learn(proposal, outcome, boundary)
            if known + count + 1 < len(ids):
                self._extend(proposer, known, known + count)
            known += count
        machine = costs.of(config.method) if costs else None
        seconds = sum(machine.seconds(config.method, work) or 0.0 for work in works) if machine else None
        return Outcome(config, tuple(committed), tuple(works), tuple(hits), seconds, cut)
