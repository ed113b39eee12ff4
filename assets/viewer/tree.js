// The draft tree of the shown step: what is written in its nodes and over its lanes, how far apart these stand, and the drawing. x is
// the position in the block; lanes come from tree_layout.js.

import {
  BONUS,
  Columns,
  WORDLESS,
  columnsThatMatter,
  layoutTree,
  nextNode,
  sharedWithRedraft,
  wantedTokens,
} from "./tree_layout.js";
import { draftsName, draftsThrough, isPlain } from "./explain.js";
import {
  PADDING,
  PILL,
  columnNeeds,
  crossBadge,
  edgePath,
  fitLabel,
  foldBadge,
  measure,
  nodeFont,
  nodeShape,
} from "./tree_shapes.js";
import { nodeCard } from "./details.js";
import { draftOf } from "./stages.js";
import { s } from "./dom.js";
import { CAPTION, MARGIN } from "./viewport.js";

const BOLD = 1.15; // how much wider bold words are
const DOT = 8; // pixels: a token in a column without room for its word
const AIR = 5; // pixels between a name and the line of the true boundary

/** The word in every node of a step, and the width of its shape, by node: two maps. */
function nodeWords(step, columns, family) {
  const [words, widths] = [new Map(), new Map()];
  const put = (id, depth, value, bold, least, padding) => {
    const column = columns.width(depth);
    const room = column - (columns.slim ? PADDING.slim : 5) - padding;
    const fitted = fitLabel(columns.slim ? value.replace(/^ (?=\S)/, "") : value, room, nodeFont(bold, family));
    const blank = columns.slim && (column < WORDLESS || fitted.width + padding > column - 1);
    words.set(id, blank ? "" : fitted.words);
    widths.set(id, blank ? DOT : Math.max(least, fitted.width + padding));
  };
  for (const node of step.nodes.values())
    put(node.id, node.depth, node.text, node.state === "accepted", columns.slim ? 18 : 28, PADDING.node);
  if (step.bonus) put(BONUS, step.bonus.depth, step.bonus.text, true, columns.slim ? 24 : 34, PADDING.target);
  return { words, widths };
}

/** Names a lane where it begins: the first draft, or the prefix that a re-draft started from, and what it brought. */
export function chainLabel({ step, columns, widths, small }, chain, lanes) {
  const trunk = chain.lane === 0 && chain.first.depth === 0;
  const main = trunk && Boolean(chain.nodes[1]) && chain.nodes[1].candidates.includes(0); // a node budget may have left the first draft out
  const at = trunk ? chain.nodes[1] : chain.first;
  if (!step.draft || !at || at.id === BONUS) return null;
  const accepted = chain.nodes.filter((n) => n.state === "accepted" && (!main || n.candidates.includes(0)));
  const drafts = main ? [] : draftsThrough(step, accepted.length ? accepted : [at]);
  if (!main && !drafts.length) return null;
  const slim = columns.slim; // a long name would lie across stems and the true boundary
  let name = main ? "first draft" : draftsName(drafts).replace(slim ? /^re-drafts? / : "", "");
  const [only] = drafts;
  const leaves = at.depth - 1;
  if (
    drafts.length === 1 &&
    only.base === 0 &&
    only.prefix < leaves &&
    step.nodes.get(at.parent).candidates.includes(0)
  )
    name += `, differs after ${leaves}`;
  const won = accepted.length;
  const brought = !won
    ? ""
    : main
      ? ` · ${won} ${step.sampled ? "drawn" : "right"}`
      : ` · ${slim ? "+" : "added "}${won}`;
  // across neither the line of the boundary, nor the stems that go up from this lane, nor its badges
  const stems = chain.subs
    .filter(({ first, lane }) => lanes.has(first.id) && lane < chain.lane)
    .map(({ first }) => first.depth - 0.5);
  const badges = chain.nodes
    .filter(({ state }) => state === "rejected")
    .map(({ id, depth }) => columns.x(depth) + widths.get(id) / 2 + 1);
  const lines = [
    ...[...(step.boundary === null ? [] : [step.boundary + 0.5]), ...stems].map((depth) => columns.x(depth)),
    ...badges,
  ];
  const placed = (words) => {
    const width = small(words) * (won ? BOLD : 1);
    const [start, end] = [columns.x(-0.5), columns.x(step.columns - 0.5) - width - 2]; // no further to the right than the block goes
    const from = Math.max(start, Math.min(end, columns.x(at.depth) - widths.get(at.id) / 2));
    return { words, x: clearOf(lines, from, width, [start, end], main), from };
  };
  let label = placed(name + brought);
  if (main && brought && label.x > columns.x(step.boundary ?? step.columns)) label = placed(name); // over tokens that were not right
  // before its lane it stands at the lane's height, where nothing else of that height is between
  const alone = [...step.nodes.values()].every(({ id, depth }) => lanes.get(id) !== chain.lane || depth >= at.depth);
  const beside = !main && alone && label.x + small(label.words) * (won ? BOLD : 1) < columns.x(leaves + 0.5);
  return { ...label, name, brought: label.words === name ? "" : brought, won, beside, kind: at.proposer };
}

/** Where words that begin at `x` begin so that they lie across none of the lines: as near as possible behind there, or before it if they are
 *  rather there (`ahead`) or there is no room behind; where they were if there is none at all between `start` and `end`. */
export function clearOf(lines, x, width, [start, end], ahead = false) {
  const clear = (at) => lines.every((line) => at >= line + AIR || at + width <= line - AIR);
  if (clear(x)) return x;
  const fit = lines
    .flatMap((line) => [line - AIR - width, line + AIR])
    .filter((at) => at >= start && at <= end && clear(at));
  const far = (at) => Math.abs(at - x) + (at < x === ahead ? 0 : 1e6);
  return fit.sort((a, b) => far(a) - far(b))[0] ?? x;
}

const GAP = 5; // between the pills of neighbouring lanes, at least
const LABEL = { above: [-29, -14], beside: [-10, 10], below: [13, 27] };

/**
 * The height of every lane, as close to each other as their nodes and labels allow, and what lies above and below the outermost ones.
 *
 * `items`: what stands in a lane: {lane, left, right, top, bottom}, top and bottom relative to the lane's middle.
 */
export function laneRows({ low, high }, items) {
  const byLane = new Map();
  for (const item of items) byLane.set(item.lane, [...(byLane.get(item.lane) || []), item]);
  const y = new Map([[low, 0]]);
  for (let lane = low + 1; lane <= high; lane += 1) {
    let gap = PILL + GAP;
    for (const above of byLane.get(lane - 1) || []) {
      for (const below of byLane.get(lane) || []) {
        if (above.left < below.right && below.left < above.right) gap = Math.max(gap, above.bottom - below.top + 2);
      }
    }
    y.set(lane, y.get(lane - 1) + gap);
  }
  const middle = y.get(0);
  for (const lane of y.keys()) y.set(lane, y.get(lane) - middle);
  const top = y.get(low) + Math.min(-PILL / 2, ...(byLane.get(low) || []).map((item) => item.top));
  const bottom = y.get(high) + Math.max(PILL / 2, ...(byLane.get(high) || []).map((item) => item.bottom));
  return { y, top, bottom };
}

export const NARROW = 640; // pixels: below, the tree opens fitted

export class TreeView {
  /** `host` carries the svg; `viewport` moves it; `folded(hidden)` is called with the number of nodes that a step has folded away. */
  constructor(host, selection, tooltip, viewport, folded) {
    Object.assign(this, {
      host,
      selection,
      tooltip,
      viewport,
      folded,
      step: null,
      columns: new Columns(1, 0, false, []),
      words: new Map(),
      unfolded: false,
      widened: false,
    });
    this.scaled = () => 1; // times the usual size
    this.answered = () => false; // whether a click at a depth answers a question
    this.world = s("g", { class: "world" });
    this.svg = s("svg", { role: "img", "aria-label": "Draft tree", width: "100%", height: "100%" }, this.world);
    host.append(this.svg);
    this.listen();
  }

  show({ step, fresh, node, summary }) {
    this.svg.setAttribute("aria-label", summary || "Draft tree");
    if (fresh) this.drawStep(step);
    else if (node !== this.marked) this.mark();
  }

  drawStep(step) {
    this.step = step;
    this.tooltip.hide();
    const { width, height } = this.viewport.size;
    if (!step) this.world.replaceChildren();
    if (!step || !width) return;
    const larger = this.scaled();
    this.viewport.larger = larger;
    const across = (width - MARGIN.left - MARGIN.right) / larger;
    const family = getComputedStyle(this.host).fontFamily;
    this.columns = new Columns(
      step.columns,
      across,
      width < NARROW && !this.widened,
      columnsThatMatter(step, this.selection),
      columnNeeds(step, family, this.selection.shownNode),
    );
    this.small = (words) => measure(words, `400 ${CAPTION}px ${family}`);
    Object.assign(this, nodeWords(step, this.columns, family));
    this.ghosts = wantedTokens(step);
    const room = (height - MARGIN.top - MARGIN.bottom) / larger;
    this.layout = layoutTree(
      step,
      this.selection.shownNode,
      this.unfolded ? null : (layout) => this.rowsOf(layout).bottom - this.rowsOf(layout).top <= room,
    );
    this.rows = this.rowsOf(this.layout);
    this.draw();
    this.viewport.set(this.extent());
    this.mark();
    this.folded(this.layout.hidden);
  }

  draw() {
    const { step, layout } = this;
    const [edges, strong] = ["edges", "edges strong"].map((name) => s("g", { class: name }));
    const [nodes, labels] = ["nodes", "labels"].map((name) => s("g", { class: name }));
    const shown = [...step.nodes.values()].filter((node) => layout.lanes.has(node.id));
    for (const node of shown) nodes.append(this.drawNode(node));
    for (const node of shown)
      if (node.parent >= 0) (node.state === "accepted" ? strong : edges).append(this.drawEdge(node));
    if (layout.lanes.has(BONUS)) {
      nodes.append(this.drawBonus());
      strong.append(
        this.drawEdge({ id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth, proposer: "target" }),
      );
    }
    for (const chain of layout.chains) labels.append(...this.drawChainLabel(chain));
    this.world.replaceChildren(this.drawBoundary(), edges, strong, labels, nodes);
  }

  /** Whether a node is drawn without its word. */
  get wordless() {
    return [...(this.layout?.lanes.keys() ?? [])].some((id) => this.words.get(id) === "");
  }

  get cut() {
    return this.step !== null && this.step.accepted.some((id) => /^$|…$/.test(this.words.get(id)));
  }

  /** Where the words under a node begin: at its left, or beside the number of nodes that are folded away, but not behind the
   *  block. */
  ghostX(id, layout = this.layout) {
    const w = this.widths.get(id);
    const last = this.x(this.step.columns - 0.5) - this.x(this.step.nodes.get(id).depth) - this.ghostWidth(id);
    return Math.min(layout.folded.has(id) ? w / 2 + 18 : -w / 2, last);
  }

  ghostWidth(id) {
    return this.small(`${this.ghostWord}${this.ghosts.get(id)}`) + 4;
  }

  rowsOf(layout) {
    if (layout.rows) return layout.rows;
    const items = [];
    const { step } = this;
    const put = (lane, left, width, [top, bottom]) => items.push({ lane, left, right: left + width, top, bottom });
    for (const [id, lane] of layout.lanes) {
      const node = id === BONUS ? step.bonus : step.nodes.get(id);
      const [x, w] = [this.x(node.depth), this.widths.get(id)];
      put(lane, x - w / 2, w, [-PILL / 2, PILL / 2]);
      if (id === BONUS) put(lane, x - 20, 40, LABEL.below);
      if (node.state === "rejected") put(lane, x + w / 2 - 6, 14, [-21, 0]);
      if (layout.folded.has(id)) put(lane, x + w / 2 - 16, 32, node.depth ? [0, PILL / 2 + 16] : [-PILL / 2 - 16, 0]);
      if (node.state === "root") put(lane, x - 22, 44, LABEL.below);
      if (this.ghosts.has(id)) put(lane, x + this.ghostX(id, layout), this.ghostWidth(id), LABEL.below);
    }
    for (const chain of layout.chains) {
      const label = chainLabel(this, chain, layout.lanes);
      if (label)
        put(
          chain.lane,
          label.x,
          this.small(label.words) * (label.won ? BOLD : 1),
          label.beside ? LABEL.beside : LABEL.above,
        );
    }
    layout.rows = laneRows(layout, items);
    layout.rows.right = Math.max(...items.map((item) => item.right));
    return layout.rows;
  }

  x(depth) {
    return this.columns.x(depth);
  }

  y(id) {
    return this.rows.y.get(this.layout.lanes.get(id)) || 0;
  }

  extent() {
    const ids = [0, ...this.step.accepted, BONUS].filter((id) => this.layout.lanes.has(id));
    const ys = ids.map((id) => this.y(id));
    const deepest = this.step.bonus
      ? this.step.bonus.depth
      : Math.max(0, ...this.step.accepted.map((id) => this.step.nodes.get(id).depth));
    const left = this.x(-0.5);
    return {
      left,
      right: Math.max(this.x(this.step.columns - 0.5), this.rows.right + 4),
      top: this.rows.top,
      bottom: this.rows.bottom,
      focus: {
        left,
        right: this.x(deepest + 0.5) + 8,
        turn: this.x((this.step.boundary ?? deepest) + 0.5),
        top: Math.min(...ys) - 27,
        bottom: Math.max(...ys) + 27,
      },
      block: this.step.drafted || this.step.columns,
    };
  }

  drawNode(node) {
    const kind = node.state === "root" ? "anchor" : node.proposer;
    const w = this.widths.get(node.id);
    const group = this.nodeGroup(
      { ...node, kind, draft: draftOf(node) },
      kind === "anchor"
        ? s("rect", { class: "inner", x: -w / 2 + 2.5, y: -PILL / 2 + 2.5, width: w - 5, height: PILL - 5, rx: 3 })
        : null,
    );
    if (sharedWithRedraft(this.step, node))
      group.append(s("line", { class: "twin", x1: -w / 2, x2: w / 2, y1: PILL / 2 + 2.5, y2: PILL / 2 + 2.5 }));
    if (node.state === "root") group.append(s("text", { class: "under", y: PILL / 2 + 12 }, "anchor"));
    if (node.state === "rejected") group.append(crossBadge(w / 2 + 1, -PILL / 2 - 2));
    if (this.ghosts.has(node.id))
      group.append(
        s(
          "text",
          { class: "ghost", x: this.ghostX(node.id), y: PILL / 2 + 12 },
          this.ghostWord,
          s("tspan", {}, this.ghosts.get(node.id)),
        ),
      );
    const hidden = this.layout.folded.get(node.id);
    if (hidden) group.append(foldBadge(w / 2, (node.depth ? 1 : -1) * (PILL / 2 + 8), hidden));
    return group;
  }

  drawBonus() {
    const { depth, parent } = this.step.bonus;
    const under = s("text", { class: "under", y: PILL / 2 + 12 }, isPlain(this.step) ? "target" : "bonus");
    return this.nodeGroup(
      {
        id: BONUS,
        depth,
        proposer: "target",
        kind: "target",
        state: "bonus",
        draft: draftOf(this.step.nodes.get(parent)),
      },
      under,
    );
  }

  /** A node's shape and word, at its place; `parts`: what else it has. */
  nodeGroup({ id, depth, proposer, kind, state, draft }, ...parts) {
    return s(
      "g",
      {
        class: `node ${kind} ${state}`,
        transform: `translate(${this.x(depth)},${this.y(id)})`,
        "data-node": id === BONUS ? "bonus" : id,
        "data-state": state,
        "data-depth": depth,
        "data-proposer": proposer,
        "data-draft": draft,
      },
      nodeShape(kind, this.widths.get(id), this.words.get(id) ? PILL : DOT),
      s("text", { class: "label", y: 5 }, this.words.get(id)),
      ...parts,
    );
  }

  drawEdge(node) {
    const from = this.step.nodes.get(node.parent);
    const x1 = this.x(from.depth) + this.widths.get(from.id) / 2;
    const x2 = this.x(node.depth) - this.widths.get(node.id) / 2;
    return s("path", {
      class: `edge ${node.proposer}`,
      "data-draft": draftOf(node.id === BONUS ? from : node),
      "data-of": node.id,
      "data-depth": node.depth,
      d: edgePath(x1, this.y(from.id), x2, this.y(node.id), this.x(node.depth - 0.5)),
    });
  }

  drawChainLabel(chain) {
    const label = chainLabel(this, chain, this.layout.lanes);
    if (!label) return [];
    const y = this.rows.y.get(chain.lane) + (label.beside ? 4 : -PILL / 2 - 5);
    const named = chain.lane === 0 && chain.first.depth === 0 ? (chain.nodes[1] ?? chain.first) : chain.first;
    return [
      s(
        "text",
        { class: `lane ${label.kind}${label.won ? " won" : ""}`, "data-draft": draftOf(named), x: label.x, y },
        label.name,
        label.brought ? s("tspan", { class: "brought" }, label.brought) : "",
      ),
    ];
  }

  /** The border after the last first-draft token that the target accepted; the strip draws it on. */
  drawBoundary() {
    if (this.step.boundary === null || !this.step.draft) return s("g");
    const x = this.x(this.step.boundary + 0.5);
    return s("line", { class: "boundary", x1: x, x2: x, y1: -4000, y2: 4000 });
  }

  /** Every column in view, or every token readable and the tree to be moved; once the step is drawn again. */
  widen(all) {
    this.widened = this.viewport.start = all;
    this.viewport.touched = false;
  }

  get ghostWord() {
    return this.step.sampled ? "drawn: " : "target: ";
  }

  place() {
    const { k, x, y } = this.viewport;
    this.world.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)}) scale(${k.toFixed(4)})`);
  }

  /** Shows everything, or folds again what does not fit. */
  unfold(all) {
    this.unfolded = all;
    this.viewport.touched = false;
    this.drawStep(this.step);
  }

  /** Shows which node is selected; one that is folded away is brought out. */
  mark() {
    if (!this.viewport.size.width || !this.layout) return; // out of sight, where nothing is laid out
    const { shownNode: node, shown } = this.selection;
    this.marked = node;
    const known = this.step && this.step.index === shown && this.step.nodes.has(node);
    if (known && !this.layout.lanes.has(node)) return this.drawStep(this.step);
    // a token in a slim column is made readable
    if (known && !this.words.get(node) && !this.marking) {
      this.marking = true;
      this.drawStep(this.step);
      this.marking = false;
      return;
    }
    for (const group of this.world.querySelectorAll("g.node")) {
      const chosen = node !== null && this.nodeOf(group) === node;
      group.classList.toggle("selected", chosen);
      const ring = group.querySelector(".ring");
      if (ring && !chosen) ring.remove();
      if (chosen && !ring)
        group.prepend(
          s("rect", {
            class: "ring",
            x: -this.widths.get(node) / 2 - 4,
            y: -PILL / 2 - 4,
            width: this.widths.get(node) + 8,
            height: PILL + 8,
            rx: 8,
          }),
        );
    }
  }

  nodeOf(group) {
    return group.dataset.node === "bonus" ? BONUS : Number(group.dataset.node);
  }

  neighbour(node, direction) {
    return this.layout ? nextNode(this.step, this.layout, node, direction) : null;
  }

  reveal(node) {
    const found = node === BONUS ? this.step.bonus : this.step.nodes.get(node);
    if (found && this.layout?.lanes.has(node)) this.viewport.reveal(this.x(found.depth), this.y(node));
  }

  listen() {
    const over = (event) => {
      const group = event.target.closest && event.target.closest("g.node");
      if (!group || !this.step || event.pointerType === "touch" || this.viewport.dragged) return this.tooltip.hide();
      if (this.host.closest("[data-quiz='asking']") || this.nodeOf(group) === this.selection.node)
        return this.tooltip.hide(); // the details say it
      return this.tooltip.show(nodeCard(this.step, this.nodeOf(group)), event.clientX, event.clientY);
    };
    this.svg.addEventListener("pointermove", over);
    this.svg.addEventListener("pointerleave", () => this.tooltip.hide());
    this.svg.addEventListener("click", (event) => {
      const group = event.target.closest("g.node");
      if (!group || !this.step || this.viewport.dragged) return;
      const { depth } = group.dataset;
      if (this.answered(Number(depth))) return;
      if (event.target.closest("g.fold")) return this.unfold(true);
      this.selection.pin(this.step.index, this.nodeOf(group));
      // fingers do not hover, and the details are far away
      if (event.pointerType === "touch")
        this.tooltip.show(nodeCard(this.step, this.nodeOf(group)), event.clientX, event.clientY);
    });
  }
}
