"""Metrics of steps and runs (acceptance, verdicts, work, speed, stage times), and how the settings of two sets of runs differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from d2sd.trace.events import PrefillDone, StageSeconds, StepDone
from d2sd.trace.text import escaped
from d2sd.tree.tree import chains

Verdict = Literal["repaired", "found", "missed", "all"]
Scalar = str | int | float | None
RANDOM = "random_prefix"  # the method that re-drafts from prefixes drawn at random
MAX_TEXT = 60
# symbols of settings in texts; the page's scripts use the same ones
SYMBOLS = {"num_branches": "K", "block_size": "γ", "second_block_size": "γ₂", "node_budget": "B", "temperature": "T"}
IGNORED = frozenset({"inspect", "max_new_tokens", "preset"})  # fields that say nothing about how steps work
PART_FIELDS = ("weights", "dtype", "rope", "taps", "block_size", "mask_token_id", "chat_template")


@dataclass(frozen=True, slots=True, repr=False)
class Totals:
    """Figures of one run. Only ``tokens`` includes the token that prefill commits.

    tokens: number of output tokens.
    steps: number of steps.
    mean_acceptance_length: α, tokens written per step, including the bonus token.
    nodes_per_step: verified tree nodes per step, including the anchor.
    boundary_hit_rate: share of steps whose true boundary was a selected prefix, among the steps with selected prefixes and a rejected
        first-draft token; None without such steps.
    repaired_rate: share of steps in which re-drafts added tokens at the true boundary, among the same steps.
    tokens_per_redraft: mean number of tokens that a re-draft adds; None without re-drafts.
    tokens_per_second: tokens committed by steps, per second.
    seconds: time of all steps.
    stage_seconds: total seconds by stage.
    """

    tokens: int
    steps: int
    mean_acceptance_length: float
    nodes_per_step: float
    boundary_hit_rate: float | None
    repaired_rate: float | None
    tokens_per_redraft: float | None
    tokens_per_second: float
    seconds: float
    stage_seconds: dict[str, float]

    def __repr__(self) -> str:
        figures = f"α {self.mean_acceptance_length:.2f}, {self.nodes_per_step:.1f} nodes a step, {self.tokens_per_second:.1f} tokens/s"
        return f"{self.tokens} tokens in {self.steps} steps: {figures}"


def totals(steps: Iterable[StepDone], prefill: PrefillDone | None = None) -> Totals:
    count, tokens, nodes, gained, redrafts, seconds = 0, 0, 0, 0, 0, 0.0
    verdicts: list[Verdict | None] = []
    stages = dict.fromkeys(StageSeconds.__struct_fields__, 0.0)
    for step in steps:
        count += 1
        tokens += len(step.committed)
        nodes += len(step.nodes)
        gained += tokens_gained(step)
        redrafts += len(step.branches)
        seconds = step.elapsed
        for name in stages:
            stages[name] += getattr(step.seconds, name)
        verdicts.append(verdict(step))
    repaired, found, missed = (verdicts.count(outcome) for outcome in ("repaired", "found", "missed"))
    rejected = repaired + found + missed
    return Totals(
        tokens=tokens + (len(prefill.committed) if prefill else 0),
        steps=count,
        mean_acceptance_length=tokens / max(1, count),
        nodes_per_step=nodes / max(1, count),
        boundary_hit_rate=1 - missed / rejected if rejected else None,
        repaired_rate=repaired / rejected if rejected else None,
        tokens_per_redraft=gained / redrafts if redrafts else None,
        tokens_per_second=tokens / seconds if seconds else 0.0,
        seconds=seconds,
        stage_seconds=stages,
    )


def acceptance_by_depth(steps: Iterable[StepDone]) -> list[tuple[int, int, float]]:
    """Returns, for every depth, (depth, number of steps that reached it, share of these steps that accepted a token at it).

    Depth 1 is the first token below the anchor. A step reaches depth d if the node accepted at depth d − 1 (for d = 1 the
    anchor) has children in the tree and the target chose a token after it.
    """
    reached: dict[int, list[bool]] = {}
    for step in steps:
        inner = {n.parent for n in step.nodes}
        for depth, choice in enumerate(step.choices, 1):
            if choice.node in inner:
                reached.setdefault(depth, []).append(len(step.accepted) >= depth)
    return [(depth, len(r), sum(r) / len(r)) for depth, r in sorted(reached.items())]


def tokens_gained(step: StepDone) -> int:
    """Returns the number of accepted tokens that are in a re-draft but not in the first draft."""
    drafts = [step.nodes[n].candidates for n in step.accepted]
    return sum(bool(candidates) and 0 not in candidates for candidates in drafts)


def verdict(step: StepDone) -> Verdict | None:
    """Returns the outcome of the first draft.

    * "repaired": the true boundary was a selected prefix, and re-drafts added tokens there;
    * "found": the true boundary was a selected prefix, but re-drafts added no tokens;
    * "missed": prefixes were selected, but the true boundary was not among them;
    * "all": the whole first draft was accepted, so there was no rejection to predict;
    * None: the true boundary is unknown, or a token was rejected but no prefixes were selected.
    """
    boundary = step.actual_boundary
    if boundary is None or step.first_draft is None:
        return None
    if boundary == len(step.first_draft.ids):
        return "all"
    if boundary in step.selected_prefixes:
        return "repaired" if tokens_gained(step) else "found"
    return "missed" if step.selected_prefixes else None


def row(step: StepDone, missing: Collection[str]) -> dict[str, Scalar]:
    """Returns a row of ``Trace.rows``. missing: as in ``Trace.missing``."""
    draft, timed = step.first_draft, "times" not in missing
    drafts = chains([draft, *step.branches]) if draft else []
    confidence = draft.confidence if draft else ()
    outcomes = (*step.boundary_posterior, step.full_acceptance) if step.boundary_posterior else ()
    stages = {
        f"seconds_{name}": getattr(step.seconds, name) if timed else None for name in StageSeconds.__struct_fields__
    }
    return {
        "step": step.step,
        "anchor_position": step.anchor_position,
        "committed": len(step.committed),
        "text": None if "tokens" in missing else "".join(c.text for c in step.committed),
        "drafted": len(draft.ids) if draft else 0,
        "redrafts": len(step.branches),
        "draft_nodes": len({chain[:n] for chain in drafts for n in range(len(chain) + 1)}) or 1,
        "nodes": len(step.nodes),
        "accepted": len(step.accepted),
        "predicted_boundary": outcomes.index(max(outcomes)) if outcomes else None,
        "actual_boundary": step.actual_boundary,
        "outcome": verdict(step),
        "confidence_first": confidence[0] if confidence else None,
        "confidence_mean": sum(confidence) / len(confidence) if confidence else None,
        "seconds": step.seconds.total if timed else None,
        **stages,
        "elapsed": step.elapsed if timed else None,
    }


def boundary_hit(step: StepDone) -> bool | None:
    """Returns whether the true boundary was a selected prefix; None if the step's ``verdict`` is None or "all"."""
    outcome = verdict(step)
    return None if outcome in (None, "all") else outcome != "missed"


def shortest_excluded_prefix(step: StepDone, method: str) -> int | None:
    """Returns the length of the shortest prefix that was excluded from selection, since it contains an end-of-text token.

    Such a prefix is recognised by a less likely prefix that was selected. Returns None if there is none, or if ``method`` draws
    prefixes at random.
    """
    r, selected = step.boundary_posterior, step.selected_prefixes
    least = min((r[i] for i in selected if i < len(r)), default=1.0)
    return next((i for i, p in enumerate(r) if p > least and i not in selected), None) if method != RANDOM else None


def instructiveness(step: StepDone) -> tuple[int, ...]:
    """Returns a sort key for how well a step illustrates re-drafting; larger keys are better.

    The key is empty unless re-drafts added tokens and the step ended with a bonus token. Steps that accepted tokens of the first
    draft, too, have larger keys. So have steps with more accepted tokens, up to the number that fits a small screen.
    """
    gained = tokens_gained(step)
    if verdict(step) != "repaired" or step.committed[-1].node is not None:
        return ()
    kept = step.actual_boundary or 0
    return (kept > 0, min(gained, 5) + min(kept, 3) - max(0, kept - 4), -abs(kept - 2))


class DraftCosts(NamedTuple):
    """Costs of steps that verify a single draft.

    machine: name of the machine.
    seconds: returns the seconds of a step, given the numbers of rows of the draft and of verified nodes, each including the anchor.
    """

    machine: str
    seconds: Callable[[int, int], float]


class Work(Struct, frozen=True, array_like=True, gc=False):
    """Numbers of rows in the passes of a step, which determine the step's cost on a machine.

    first: rows of the first draft, including the anchor; for EAGLE-3, the depth of its tree + 2; 0 if nothing was drafted.
    again: rows of each re-drafting pass: number of blocks × number of positions per block.
    nodes: rows of the target's pass: the verified tree nodes, including the anchor.
    """

    first: int
    again: tuple[int, ...]
    nodes: int

    @classmethod
    def of(cls, step: StepDone, header: Mapping[str, Any]) -> Work:
        """Returns the work of a recorded step. header: header of the step's trace, which has the block sizes."""
        config = header.get("config", {})
        size = 1 + len(step.first_draft.ids) if step.first_draft else 0
        if not size and header.get("method") == "eagle3" and len(step.nodes) > 1:
            size = _whole(config, "draft_depth") + 2
        # without selected prefixes, branches were sampled from the first draft's distributions, which takes no drafter pass
        drafted = step.branches if step.selected_prefixes else ()
        block = size + _whole(config, "second_block_size") - _whole(config, "block_size")
        third = sum(b.base > 0 for b in drafted)
        return cls(size, tuple(n * block for n in (len(drafted) - third, third) if n), len(step.nodes))


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0


class StepOutcome(Struct, frozen=True, tag_field="event", tag="Outcome"):
    """Results that are computed from a step for the page. They are not part of a trace, so that a file cannot contradict its steps.

    verdict, gained, closed, work: results of ``verdict``, ``tokens_gained``, ``shortest_excluded_prefix`` and ``Work.of``.
    """

    verdict: Verdict | None
    gained: int
    closed: int | None
    work: Work

    @classmethod
    def of(cls, step: StepDone, header: Mapping[str, Any]) -> StepOutcome:
        closed = shortest_excluded_prefix(step, str(header.get("method")))
        return cls(verdict(step), tokens_gained(step), closed, Work.of(step, header))


# How the settings and models of two sets of recorded runs differ, according to their headers.


def what_differs(
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    unused: Callable[[str], Collection[str]] = lambda _: (),
    named: Callable[[str], str] = str,
) -> str:
    """Returns a sentence that names the models, methods and settings in which the headers of A and B differ.

    unused: function from the id of a method to the settings that do not affect the method; these settings are left out.
    named: function from the id of a method to its name.
    """
    left_out = IGNORED.union(*(unused(str(header.get("method"))) for header in (*a, *b)))
    differences = [*_models(a, b), *_settings(a, b, left_out, named)]
    if not differences:
        return "No recorded model, method or setting differs."
    return f"What differs: {', '.join(differences)}."


def weights_of(headers: Sequence[Mapping[str, Any]], part: str) -> str:
    """Returns the fingerprint of a part's weights; empty if a header lacks it or the headers have different ones.

    part: ``"target"``, ``"first_drafter"`` or ``"second_drafter"``.
    """
    weights = {str(header.get("parts", {}).get(part, {}).get("weights") or "") for header in headers}
    return weights.pop() if len(weights) == 1 else ""


def _models(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names_a, names_b = (recorded_values(side, "models") for side in (a, b))
    parts_a, parts_b = _parts(a), _parts(b)
    for part in sorted({*names_a, *names_b} - IGNORED):
        words, name_a, name_b = part.replace("_", " "), names_a.get(part, "none"), names_b.get(part, "none")
        part_a, part_b = parts_a.get(part, {}), parts_b.get(part, {})
        fields = [f for f in PART_FIELDS if part_a.get(f) != part_b.get(f)]
        unknown = not part_a or not part_b
        if name_a != name_b and (unknown or "weights" in fields):
            yield f"{words} ({name_a} → {name_b})"
        elif unknown:
            continue
        elif "weights" in fields:
            yield f"{words} (different weights)"
        elif fields:
            yield f"{words} (same weights, different {', '.join(f.replace('_', ' ') for f in fields)})"


def _settings(
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    left_out: Collection[str],
    named: Callable[[str], str],
) -> Iterator[str]:
    settings_a, settings_b = (recorded_values(side, "config") for side in (a, b))
    for name in sorted({*settings_a, *settings_b}.difference(left_out), key=lambda n: (n != "method", n)):
        value_a, value_b = settings_a.get(name, "not recorded"), settings_b.get(name, "not recorded")
        if value_a != value_b:
            if name == "method":
                value_a, value_b = named(value_a), named(value_b)
            yield f"{SYMBOLS.get(name, name.replace('_', ' '))} ({value_a} → {value_b})"


def recorded_values(headers: Sequence[Mapping[str, Any]], field: str) -> dict[str, str]:
    """Returns the values by name in a field of all headers, such as "config". Different values of a name are joined with "or"."""
    values: dict[str, dict[str, None]] = {}  # by name; the keys of the inner dictionary are an ordered set
    for header in headers:
        for name, value in header.get(field, {}).items():
            if value is not None:
                values.setdefault(str(name), {})[escaped(str(value)[:MAX_TEXT])] = None
    return {name: " or ".join(of_name) for name, of_name in values.items()}


def _parts(headers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the descriptions of the parts that are equal in all headers, by part."""
    first, *others = [header.get("parts", {}) for header in headers] or [{}]
    return {part: about for part, about in first.items() if all(other.get(part) == about for other in others)}
