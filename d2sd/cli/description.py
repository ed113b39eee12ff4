"""Describes a recorded run and its steps on the terminal. Texts of models are escaped, so that they cannot control the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from d2sd.calibration.text import count
from d2sd.logs import UNKNOWN
from d2sd.trace.events import Node, StepDone
from d2sd.trace.metrics import verdict
from d2sd.trace.text import escaped, visible
from d2sd.trace.trace import Trace

MARKS = {"root": "◎", "accepted": "●", "rejected": "✗", "unreached": "○"}
BONUS = "◆"
LEGEND = f"◎ anchor   ● accepted   ✗ rejected   ○ not reached   {BONUS} the target's own token"
WIDTH = 110
# Descriptions of what a log may lack, by the name in ``Trace.missing``.
MISSING = {
    "prompt": "prompts",
    "tokens": "tokens",
    "rejected": "rejected drafted tokens",
    "target": "the target's own tokens",
    "confidence": "confidences",
    "times": "times of steps",
}
BAR = 16


def describe_run(trace: Trace) -> Iterator[str]:
    """Yields a few lines about the run, then a line for every step."""
    header, totals = trace.header, trace.totals
    models = ", ".join(escaped(f"{k} {v}") for k, v in header["models"].items() if v)[:WIDTH]
    yield f"{escaped(header['method'])}, {totals.steps} steps, {totals.tokens} tokens, mean acceptance length {totals.mean_acceptance_length:.2f}"
    if models:
        yield f"models   {models}"
    prompt = header["prompt"] or ("".join(trace.prefill.texts) if trace.prefill else "")
    yield f"prompt   {escaped(prompt[:WIDTH])}"
    if lacks := not_logged(trace.missing):
        yield lacks
    yield ""
    yield " step  tokens  nodes      ms  boundary     re-drafted from   text"
    for step in trace.steps:
        text = "".join(c.text for c in step.committed)
        seconds = step.seconds.total
        spent = f"{1e3 * seconds:.1f}" if seconds else "–"
        boundary = "–" if step.actual_boundary is None else f"{step.actual_boundary} {verdict(step) or ''}"
        predicted = " ".join(map(str, step.selected_prefixes)) or "–"
        yield (
            f"{step.step + 1:5d}  {len(step.committed):6d}  {len(step.nodes):5d}  {spent:>6}  "
            f"{boundary:<11}  {predicted[:16]:<16}  {escaped(text[:60])}"
        )


def describe_step(step: StepDone, steps: int) -> Iterator[str]:
    """Yields lines about a step: its committed tokens, confidences, predicted boundaries, re-drafts and tree.

    steps: number of steps of the run.
    """
    spent = f", {1e3 * seconds:.1f} ms" if (seconds := step.seconds.total) else ""
    yield f"step {step.step + 1} of {steps}: {len(step.committed)} tokens committed, {len(step.nodes)} nodes verified{spent}"
    yield "committed  " + "  ".join(f"{visible(c.text)} ({c.proposer})" for c in step.committed)
    yield ""
    yield from _confidences(step)
    for number, branch in enumerate(step.branches, 1):
        base = "the first draft" if branch.base == 0 else f"draft {branch.base}"
        tokens = " ".join(visible(t) for t in branch.texts)
        start = f"the first {count(branch.prefix, 'token')} of {base}" if branch.prefix else "the anchor"
        yield _cut(f"draft {number}: {branch.drafter} drafter, after {start}: {tokens}")
    yield ""
    yield from draw_tree(step)
    yield ""
    yield LEGEND


def not_logged(missing: Collection[str]) -> str:
    """Returns a line that lists what a log lacks; empty if it lacks nothing. missing: as in ``Trace.missing``."""
    if not any(what in missing for what in MISSING):
        return ""
    unknown = f"; {UNKNOWN} marks an unknown token" if {"tokens", "rejected", "target"} & set(missing) else ""
    return f"not in this log: {', '.join(words for what, words in MISSING.items() if what in missing)}{unknown}"


def _confidences(step: StepDone) -> Iterator[str]:
    """Yields a heading and a row for every position k of the first draft.

    The column r(k−1) is the predicted probability that the token at position k is the first rejected one.
    """
    draft = step.first_draft
    if draft is None:
        yield "nothing was drafted"
        return
    ranks = {prefix: rank for rank, prefix in enumerate(step.selected_prefixes, 1)}
    yield f"   k  {'first draft':<18} {'confidence c':<{BAR + 7}} r(k-1)  predicted"
    for k, text in enumerate(draft.texts, 1):
        c = draft.confidence[k - 1] if draft.confidence else None
        bar = "–" if c is None else f"{c:.3f} {'█' * round(c * BAR):<{BAR}}"
        r = f"{step.boundary_posterior[k - 1]:.4f}" if step.boundary_posterior else "–"
        rank = f"#{ranks[k - 1]}" if k - 1 in ranks else ""
        end = "  ← rejected here" if step.actual_boundary == k - 1 else ""
        yield f"{k:4d}  {visible(text, 16):<18} {bar:<{BAR + 7}} {r:>6}  {rank:<9}{end}".rstrip()
    if step.actual_boundary == len(draft.ids):
        yield "      the whole first draft was accepted"
    elif step.actual_boundary is None:
        yield "      the text ended within the first draft"


def draw_tree(step: StepDone) -> Iterator[str]:
    """Yields the lines of a step's tree, from the root down. A node's only child has the same indentation as the node.

    A chain of nodes that the target did not reach is drawn on one line.
    """
    nodes = _with_bonus(step)
    children, wanted = _children_of(nodes), {c.node: c for c in step.choices}
    # for each node to draw: the node, the beginning of its line, and the beginning of the lines of all its descendants
    waiting: list[tuple[Node, str, str]] = [(nodes[0], "", "")]
    while waiting:
        item, before, under = waiting.pop()
        if item.id == len(step.nodes):
            yield f"{before}{BONUS} {visible(item.text)}{_probability('  target', item.target_probability)}"
            continue
        chain = [item]
        while item.state == "unreached" and len(children[chain[-1].id]) == 1:
            chain += children[chain[-1].id]
        choice = wanted.get(item.parent)
        yield f"{before}{MARKS[item.state]} {_describe_nodes(chain, choice.text if choice else None)}"
        below = children[chain[-1].id]
        if len(below) == 1:
            waiting.append((below[0], under, under))
        elif below:
            stem = under[:WIDTH]  # limits the width of a tree that forks at every level
            waiting.append((below[-1], f"{stem}└─", f"{stem}  "))
            waiting += [(child, f"{stem}├─", f"{stem}│ ") for child in reversed(below[:-1])]


def _describe_nodes(chain: list[Node], wanted: str | None) -> str:
    """Returns the description of a node, or of a chain of nodes that the target did not reach.

    wanted: text of the token that the target chose after the parent of the node; None if it chose none.
    """
    node = chain[0]
    if len(chain) > 1:
        who = " and ".join(dict.fromkeys(n.proposer for n in chain))
        return f"{_cut(' '.join(visible(n.text) for n in chain))}  ({len(chain)} nodes, {who} drafter)"
    words = visible(node.text)
    if node.state == "root":
        return words
    words += f"  {node.proposer} drafter{_probability('', node.drafter_probability)}{_probability(', target', node.target_probability)}"
    if node.target_rank is not None and node.state != "unreached":
        words += f" (rank {node.target_rank + 1})"
    return words + (f"; the target wanted {visible(wanted)}" if node.state == "rejected" and wanted is not None else "")


def _probability(name: str, probability: float | None) -> str:
    return "" if probability is None else f"{name} {probability:.3f}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _with_bonus(step: StepDone) -> list[Node]:
    """Returns the nodes of a step's tree and, if the step committed a bonus token, a node for it at the end of the accepted path."""
    nodes, last = list(step.nodes), step.committed[-1]
    if last.node is None:
        parent = step.nodes[step.accepted[-1] if step.accepted else 0]
        choice = next((c for c in step.choices if c.node == parent.id), None)
        text, probability = (choice.text, choice.probability) if choice else (last.text, None)
        place = len(nodes), parent.id, parent.depth + 1
        nodes.append(Node(*place, last.token, text, (), "target", "accepted", None, probability, None))
    return nodes


def _children_of(nodes: Sequence[Node]) -> defaultdict[int, list[Node]]:
    """Returns the children of each node, by the node's id. An accepted child comes first, then one from the first draft, then others."""
    children: defaultdict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        children[node.parent].append(node)
    for below in children.values():
        below.sort(key=lambda n: (n.state != "accepted", 0 not in n.candidates, n.id))
    return children
