"""Describes a step and its tree: lines for a terminal, HTML for a notebook. Texts of models are escaped for both."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from d2sd.trace.events import Committed, Node, StepDone, html_of
from d2sd.trace.metrics import tokens_gained, verdict
from d2sd.trace.text import clip, encodable, printable, visible

MARKS = {"root": "◎", "accepted": "●", "rejected": "✗", "unreached": "○"}
BONUS = "◆"
LEGEND = f"◎ anchor   ● accepted   ✗ rejected   ○ not reached   {BONUS} the target's own token"
WIDTH = 110
BAR = 16


def describe_step(step: StepDone, steps: int) -> Iterator[str]:
    """Yields lines about a step: its committed tokens, confidences, predicted boundaries, re-drafts and tree.

    steps: number of steps of the run.
    """
    yield f"step {step.step + 1} of {steps}: {work(step)}"
    yield "written  " + "  ".join(f"{visible(c.text)} ({c.proposer})" for c in step.committed)
    yield ""
    yield from _confidences(step)
    for number, branch in enumerate(step.branches, 1):
        base = "the first draft" if branch.base == 0 else f"draft {branch.base}"
        tokens = " ".join(visible(t) for t in branch.texts)
        start = (
            f"the first {branch.prefix} token{'s'[: branch.prefix > 1]} of {base}" if branch.prefix else "the anchor"
        )
        yield clip(f"draft {number}: {branch.drafter} drafter, after {start}: {tokens}", WIDTH)
    yield ""
    yield from (stem + words for stem, words, _ in draw_tree(step))
    yield ""
    yield LEGEND


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


def draw_tree(step: StepDone) -> Iterator[tuple[str, str, Node]]:
    """Yields the lines of a step's tree, from the root down: indentation with branch marks, words, and the node that they describe.

    A node's only child has the same indentation as the node.
    A chain of nodes that the target did not reach is drawn on one line.
    """
    nodes = _with_bonus(step)
    children, wanted = _children_of(nodes), {c.node: c for c in step.choices}
    # for each node to draw: the node, the beginning of its line, and the beginning of the lines of all its descendants
    waiting: list[tuple[Node, str, str]] = [(nodes[0], "", "")]
    while waiting:
        item, before, under = waiting.pop()
        if item.id == len(step.nodes):
            yield before, f"{BONUS} {visible(item.text)}{_probability('  target', item.target_probability)}", item
            continue
        chain = [item]
        while item.state == "unreached" and len(children[chain[-1].id]) == 1:
            chain += children[chain[-1].id]
        choice = wanted.get(item.parent)
        yield before, f"{MARKS[item.state]} {_describe_nodes(chain, choice.text if choice else None)}", item
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
        return f"{clip(' '.join(visible(n.text) for n in chain), WIDTH)}  ({len(chain)} nodes, {who} drafter)"
    words = visible(node.text)
    if node.state == "root":
        return words
    words += f"  {node.proposer} drafter{_probability('', node.drafter_probability)}{_probability(', target', node.target_probability)}"
    if node.target_rank is not None and node.state != "unreached":
        words += f" (rank {node.target_rank + 1})"
    return words + (f"; the target chose {visible(wanted)}" if node.state == "rejected" and wanted is not None else "")


def _probability(name: str, probability: float | None) -> str:
    return "" if probability is None else f"{name} {probability:.3f}"


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


# HTML for notebooks. Text has the notebook's colour; background and underline say who proposed it. Both are legible in light and dark
# themes. They are attributes, since some notebooks remove style sheets.

MAX_HTML = 20_000  # bytes
MAX_PROMPT = 1000  # characters
MAX_SPAN = 100  # bytes of the tags of a span
LOOKS = {
    "first": "background:#2f69b338;border-bottom:2px solid #4a86d0",
    "second": "background:#b0620538;border-bottom:2px dashed #c27a1c",
    "target": "background:#0c7a6338;border-bottom:2px dotted #1f9c80",
}
LEGEND_HTML = " ".join(
    f'<span style="{look}">{name}</span>'
    for look, name in zip(LOOKS.values(), ("first drafter", "second drafter", "target"), strict=True)
)
FAINT = "opacity:.7"


def text_html(prompt: str, committed: Sequence[Committed], summary: str) -> str:
    """Returns a generated text as HTML, coloured by who proposed each token. Of a long text, only the end is shown.

    prompt: the prompt, shown before the text.
    summary: a line below the text.
    """
    room, proposer, shown = MAX_HTML - 8 * MAX_PROMPT, "", list[Committed]()
    for token in reversed(committed):
        room -= len(html.escape(token.text).encode("utf-8", "replace")) + MAX_SPAN * (token.proposer != proposer)
        if room < 0:
            break
        proposer = token.proposer
        shown.insert(0, token)
    before = "…" if len(shown) < len(committed) else f"{'…' * (len(prompt) > MAX_PROMPT)}{prompt[-MAX_PROMPT:]}"
    spans = [
        _span(LOOKS[proposer], "".join(token.text for token in tokens))
        for proposer, tokens in groupby(shown, lambda token: token.proposer)
    ]
    return (
        '<div style="max-width:960px;font:14px/1.7 system-ui,sans-serif">'
        f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{_span(FAINT, before)}{"".join(spans)}</div>'
        f'<div style="margin-top:.5em">{LEGEND_HTML} {_span(FAINT, summary)}</div></div>'
    )


def _span(look: str, text: str) -> str:
    return f'<span style="{look}">{html.escape(encodable(printable(text)))}</span>'


@html_of.register
def _(step: StepDone) -> str:
    lines, room = [_span(FAINT, LEGEND)], MAX_HTML - 2000
    for stem, words, node in draw_tree(step):
        look = LOOKS[node.proposer] if node.state == "accepted" else FAINT if node.state == "unreached" else ""
        lines.append(html.escape(stem) + _span(look, words))
        room -= len(lines[-1].encode())
        if room < 0:
            lines[-1] = "…"
            break
    tree = "\n".join(lines)
    return (
        f'<div style="font:14px/1.7 system-ui,sans-serif">{html.escape(sentence(step))} {LEGEND_HTML}'
        f'<pre style="line-height:1.6;white-space:pre;overflow-x:auto">{tree}</pre></div>'
    )


def sentence(step: StepDone) -> str:
    """Returns a sentence about what a step did, and what became of its first draft."""
    did = f"Step {step.step + 1}: {work(step)}."
    draft, boundary = step.first_draft, step.actual_boundary
    if draft is None:
        return f"{did} No block was drafted."
    if boundary is None:
        return f"{did} The text ended within the first draft."
    accepted = f"{did} The target accepted {boundary} of the {len(draft.ids)} tokens of the first draft"
    gained = tokens_gained(step)
    ends = {
        "repaired": f", and {gained} of a re-draft from there",
        "found": ", and none of the re-draft from there",
        "missed": "; no re-draft began there",
    }
    return f"{accepted}{ends.get(verdict(step) or '', '')}."


def work(step: StepDone) -> str:
    """Returns the committed tokens, verified nodes and, if known, time of a step as text."""
    spent = f" in {1e3 * seconds:.1f} ms" if (seconds := step.seconds.total) else ""
    tokens = len(step.committed)
    return f"{tokens} token{'s' * (tokens != 1)} written, {len(step.nodes)} nodes verified{spent}"
