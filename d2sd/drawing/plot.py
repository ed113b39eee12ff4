"""One step as a plotly figure, for notebooks: the token tree, and under it confidences and boundaries.

An optional module: nothing here imports it, and it alone imports plotly.
"""

from __future__ import annotations

import html
from collections import defaultdict

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from d2sd.trace.events import Node, ProposedBy, StepDone
from d2sd.trace.layout import tree_lanes, with_bonus
from d2sd.trace.metrics import verdict
from d2sd.trace.text import visible

PROPOSERS: dict[ProposedBy, tuple[str, str, str]] = {
    "first": ("first drafter", "#2f69b3", "square"),
    "second": ("second drafter", "#b06205", "circle"),
    "target": ("target", "#0c7a63", "hexagon2"),
}
EDGE, PAPER, INK, REJECTED, TRUTH = "#b9c2cf", "#ffffff", "#1b2430", "#9a4a55", "#0c7a63"
ROW_PIXELS = 34


def plot_step(step: StepDone) -> go.Figure:
    """The tree of a step over its confidence strip, on one x axis: the position below the anchor.

    Shape and colour tell who proposed a token. Accepted ones are filled, rejected ones crossed, unreached ones hollow.
    r(i) stands between positions i and i + 1.
    """
    nodes = with_bonus(step)
    lanes = tree_lanes(nodes)
    tree = 60 + ROW_PIXELS * (1 + max(lanes))
    strip = 190
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.03,
        row_heights=[tree / (tree + strip), strip / (tree + strip)],
    )
    _draw_tree(figure, nodes, lanes, _wanted(step))
    _draw_strip(figure, step)
    figure.update_xaxes(dtick=1, showgrid=False, zeroline=False)
    figure.update_xaxes(title_text="position below the anchor", row=2, col=1)
    figure.update_yaxes(visible=False, range=[max(lanes) + 0.7, -0.7], row=1, col=1)
    figure.update_yaxes(title_text="probability", range=[0, 1.08], row=2, col=1)
    return figure.update_layout(
        title=f"Step {step.step + 1}: {len(step.committed)} tokens committed, {len(step.nodes)} nodes verified",
        template="plotly_white",
        height=min(tree + strip + 150, 2000),
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        margin={"t": 50, "r": 20, "b": 110},
        bargap=0.45,
    )


def _wanted(step: StepDone) -> dict[int, str]:
    """What the target chose at the visited nodes."""
    return {c.node: _label(c.text) for c in step.choices}


def _draw_tree(figure: go.Figure, nodes: list[Node], lanes: list[int], wanted: dict[int, str]) -> None:
    for accepted in (False, True):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for node in nodes[1:]:
            if (node.state == "accepted") == accepted:
                here, turn = lanes[node.id], node.depth - 0.5
                xs += [node.depth - 1, turn, turn, node.depth, None]
                ys += [lanes[node.parent], lanes[node.parent], here, here, None]
        line = {"color": TRUTH if accepted else EDGE, "width": 4 if accepted else 1.5}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False, row=1, col=1)
    groups: defaultdict[tuple[ProposedBy, str], list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.proposer, node.state].append(node)
    for (proposer, state), group in sorted(groups.items()):
        name, colour, shape = PROPOSERS[proposer] if state != "root" else ("anchor", INK, "hexagon2")
        if proposer == "target" and state == "accepted":
            name = "bonus token, from the target"
        filled = state in ("accepted", "root")
        figure.add_scatter(
            x=[n.depth for n in group],
            y=[lanes[n.id] for n in group],
            mode="markers+text",
            text=[_label(n.text, 10) for n in group],
            textposition="top center",
            textfont={"size": 11, "color": REJECTED if state == "rejected" else colour if filled else "#566274"},
            hovertext=[_hover(n, wanted) for n in group],
            hoverinfo="text",
            name=name if proposer == "target" else f"{name}, {state}",
            marker={
                "symbol": f"{shape}-x" if state == "rejected" and shape != "hexagon2" else shape,
                "size": 13,
                "color": colour if filled else PAPER,
                "line": {"width": 2, "color": REJECTED if state == "rejected" else colour},
                "opacity": 0.55 if state == "unreached" else 1,
            },
            row=1,
            col=1,
        )


def _draw_strip(figure: go.Figure, step: StepDone) -> None:
    draft, posterior, boundary = step.first_draft, step.boundary_posterior, step.actual_boundary
    if draft is not None and draft.confidence:
        figure.add_bar(
            x=list(range(1, len(draft.ids) + 1)),
            y=list(draft.confidence),
            name="confidence c",
            marker={"color": PROPOSERS["first"][1], "opacity": 0.45},
            hovertext=[
                f"c({k}) = {c:.4f} {_label(t)}"
                for k, (c, t) in enumerate(zip(draft.confidence, draft.texts, strict=True), 1)
            ],
            hoverinfo="text",
            row=2,
            col=1,
        )
    if posterior:
        figure.add_scatter(
            x=[i + 0.5 for i in range(len(posterior))],
            y=list(posterior),
            mode="lines+markers",
            name="boundary posterior r(i)",
            line={"color": INK, "width": 1.5},
            marker={"size": 5},
            hovertext=[f"r({i}) = {r:.4f}" for i, r in enumerate(posterior)],
            hoverinfo="text",
            row=2,
            col=1,
        )
    selected = [(rank, i) for rank, i in enumerate(step.selected_prefixes, 1) if i < len(posterior)]
    if selected:
        figure.add_scatter(
            x=[i + 0.5 for _, i in selected],
            y=[posterior[i] for _, i in selected],
            mode="markers+text",
            text=[f"{rank}" for rank, _ in selected],
            textposition="top right",
            name="selected prefixes, by rank",
            marker={"symbol": "triangle-down", "size": 11, "color": PROPOSERS["second"][1]},
            hovertext=[f"prefix {i}: number {rank} of those re-drafted from" for rank, i in selected],
            hoverinfo="text",
            row=2,
            col=1,
        )
    if boundary is not None:
        outcome = {
            "repaired": ": repaired",
            "found": ": re-drafted from, nothing gained",
            "missed": ": not re-drafted from",
            "all": ": all accepted",
            None: "",
        }[verdict(step)]
        figure.add_scatter(
            x=[boundary + 0.5] * 2,
            y=[0, 1.08],
            mode="lines",
            name=f"true boundary {boundary}{outcome}",
            line={"color": TRUTH, "width": 2, "dash": "dash"},
            hoverinfo="name",
            row=2,
            col=1,
        )


def _hover(node: Node, wanted: dict[int, str]) -> str:
    lines = [
        f"<b>{_label(node.text)}</b> token {node.token}, position {node.depth}",
        f"{PROPOSERS[node.proposer][0]}, {node.state}",
    ]
    if node.drafter_probability is not None:
        lines.append(f"drafter's probability {node.drafter_probability:.4f}")
    if node.target_probability is not None:
        rank = "" if node.target_rank is None else f", rank {node.target_rank + 1}"
        lines.append(f"target's probability {node.target_probability:.4f}{rank}")
    if node.state == "rejected" and node.parent in wanted:
        lines.append(f"the target wanted {wanted[node.parent]}")
    return "<br>".join(lines)


def _label(text: str, most: int = 24) -> str:
    """A token for plotly, which reads some HTML in its texts, and TeX between dollar signs."""
    return html.escape(visible(text, most), quote=False).replace("$", "&#36;")
