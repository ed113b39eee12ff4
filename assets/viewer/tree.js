// Draws the draft tree of the shown step. x is the position in the block; lanes come from tree_layout.js, labels and the distances of
// lanes from tree_labels.js.

import { BONUS, nodeOf } from "./step.js";
import {
  Columns,
  WORDLESS,
  brokenTokens,
  chainsOf,
  columnsThatMatter,
  lanesOfMore,
  layoutTree,
  nextNode,
  nodesOf,
} from "./tree_layout.js";
import { BYTES, PADDING, PILL, columnNeeds, edgePath, fitLabel, measure, nodeShape } from "./tree_shapes.js";
import { AIR, BELOW, BROKE_HEIGHT, clearOf, labelsOf, laneRows } from "./tree_labels.js";
import { nodeCard } from "./details.js";
import { draftOf } from "./stages.js";
import { button, clamp, s, sum } from "./dom.js";
import { CAPTION, MARGIN, NODE_FONT } from "./viewport.js";

const DOT = 8; // pixels: size of a token in a column without room for its word
const STUB = 16; // pixels: length of the line at the cut of a branch
const PITCH = PILL + 8; // pixels between the rows of an opened branch
const LINGER = 200; // ms for which a branch stays open after the pointer has left

/** Three maps by node: its word, its font size, and the width of its shape. */
function nodeWords(step, columns, padding, family) {
  const [words, sizes, widths] = [new Map(), new Map(), new Map()];
  const put = (id, depth, value, bold, around) => {
    const column = columns.width(depth);
    const fitted = fitLabel(value, column - padding.gap - around, bold, family, columns.slim);
    const blank = columns.slim && (column < WORDLESS || fitted.width + around > column - 1);
    words.set(id, blank ? "" : fitted.words);
    sizes.set(id, fitted.size);
    const least = fitted.words === BYTES ? 22 : padding.least;
    widths.set(id, blank ? Math.min(DOT, column - 1) : Math.max(least, Math.ceil(fitted.width) + around));
  };
  for (const node of [...step.nodes.values(), ...step.left])
    put(node.id, node.depth, node.text, node.state === "accepted", padding.node);
  if (step.bonus) put(BONUS, step.bonus.depth, step.bonus.text, true, padding.target);
  return { words, sizes, widths };
}

const LEAD = { wide: 128, close: 120 }; // pixels: width of the first column, above the titles of the strip
export const NARROW = 640; // pixels: narrower views show all columns

const LARGE = 2; // scale while presenting

export class TreeView {
  uses = ["step", "fresh", "whole", "secret", "widened", "present", "zoom", "node", "held", "moving"];

  /** `page`: the element for the svg, and the buttons for its size; `viewport`: its zoom and pan. */
  constructor(page, state, tooltip, viewport) {
    Object.assign(this, {
      page,
      host: page.tree,
      state,
      tooltip,
      viewport,
      step: null,
      drawn: [],
      opened: new Map(),
      pointed: null,
    });
    Object.assign(this, { columns: new Columns(1, 0, false, []), words: new Map(), rows: null, layout: null });
    this.wholeSwitch = button(
      "Whole branches",
      {
        id: "whole",
        class: "small",
        title: "Draw branches that were not accepted in full (W)",
      },
      () => state.showWhole(!state.now.whole),
    );
    this.small = () => 0; // width of words in small type, once a step is drawn
    this.answered = () => false; // whether a click at a depth was an answer in the quiz
    this.world = s("g.world", {});
    this.svg = s("svg", { role: "img", ariaLabel: "Draft tree", width: "100%", height: "100%" }, this.world);
    this.host.append(this.svg);
    this.listen();
  }

  /** `secret`: whether the outcome of the step is hidden; then no branch is cut. `moving`: whether the animation opens the branches. */
  show({ step, fresh, whole, secret, widened, present, zoom, node, held, moving, summary }) {
    this.svg.ariaLabel = summary || "Draft tree";
    this.wholeSwitch.ariaPressed = whole;
    Object.assign(this, { secret, node, held, moving, narrow: this.viewport.size.width < NARROW && !widened });
    const drawn = [step, fresh, whole || secret, widened, present, this.narrow ? node : null];
    const same = drawn.every((value, at) => value === this.drawn[at]);
    if (!same) this.drawStep(step, { cut: !whole && !secret, larger: present ? LARGE : 1 });
    if (!step || !this.viewport.size.width) return;
    if (!same || zoom !== this.zoom) this.viewport.place(this.extent(), zoom, widened);
    Object.assign(this, { drawn, zoom });
    const { fit, widen } = this.page;
    fit.hidden = zoom?.block !== this.viewport.content.block;
    widen.hidden = !this.columns.slim && !widened;
    widen.textContent = widened ? "Narrow" : "Widen";
    widen.title = widened ? "Show the whole block" : "Make every token readable; swipe to move";
    this.place();
    this.mark();
  }

  drawStep(step, { cut, larger }) {
    Object.assign(this, { step, layout: null });
    this.tooltip.hide();
    const { width, height } = this.viewport.size;
    if (!step) this.world.replaceChildren();
    if (!step || !width) return;
    this.larger = larger;
    const across = (width - MARGIN.left - MARGIN.right) / larger;
    this.family ??= getComputedStyle(this.host).fontFamily; // once, because reading it forces a layout
    const { family } = this;
    const { narrow } = this;
    const main = chainsOf(step, cut);
    const drawn = new Set(nodesOf(main).map(({ id }) => id));
    let chosen = null; // a token that must be readable
    const needsWith = (padding, size, also) =>
      columnNeeds(step, { size, family }, padding, ({ id }) => also || drawn.has(id) || id === chosen);
    const all = needsWith(PADDING.wide, NODE_FONT, true);
    const wide = sum([...Array(step.columns).keys()].map(all)) + LEAD.wide - all(0) <= across;
    const padding = narrow ? PADDING.tight : wide ? PADDING.wide : PADDING.close;
    const needs = (size, also) => needsWith(padding, size, also);
    const layOut = () => {
      this.columns = new Columns(
        step.columns,
        across,
        narrow,
        columnsThatMatter(step, chosen),
        needs(narrow ? CAPTION : NODE_FONT, false),
        needs(NODE_FONT, !narrow),
        wide ? LEAD.wide : LEAD.close,
      );
      Object.assign(this, nodeWords(step, this.columns, padding, family));
    };
    layOut();
    if (narrow && step.nodes.has(this.node) && !this.words.get(this.node)) {
      chosen = this.node;
      layOut();
    }
    Object.assign(this, { across, stub: narrow ? 6 : STUB });
    this.small = (words, bold = false) => Math.ceil(measure(words, `${bold ? 700 : 400} ${CAPTION}px ${family}`)) + 1;
    Object.assign(this, { broken: brokenTokens(step), placed: new Map(), opened: new Map(), pointed: null });
    this.room = (height - MARGIN.top - MARGIN.bottom) / larger;
    this.broke =
      !step.draft || step.boundary === null || step.boundary >= step.drafted ? [] : [this.x(step.boundary + 0.5)];
    this.layout = layoutTree(
      main,
      (layout) => this.rowsOf(layout).bottom - this.rowsOf(layout).top <= this.room,
      (more) => this.columns.depth(this.moreX(more.at) + this.small(this.moreWords(more)) + AIR) - 0.5,
    );
    this.branches = new Map(); // by node that was not accepted: the node where its branch is cut
    for (const { at, chain } of this.layout.more.values())
      for (const { id } of nodesOf(chain)) if (step.nodes.get(id).state !== "accepted" && id) this.branches.set(id, at);
    this.rows = this.rowsOf(this.layout, this.room);
    this.draw();
  }

  /** y of every node except the bonus token, with as many whole branches as fit into view; null if nothing is hidden. */
  wholePlaces() {
    if (!this.layout.more.size) return null;
    const [name, { k, y: at, size }] = [BELOW[1] - BELOW[0], this.viewport];
    const pitch = ({ low, high }) => (this.room - name) / (high - low + 1);
    const main = chainsOf({ ...this.step, bonus: null }, false);
    const layout = layoutTree(main, (all) => pitch(all) >= PILL + 3);
    const row = Math.min(PITCH + 8, pitch(layout));
    const least = (MARGIN.top - at) / k + PILL / 2 + name - row * layout.low;
    const most = (size.height - MARGIN.bottom - at) / k - PILL / 2 - row * layout.high;
    const first = clamp(0, least, most);
    return new Map([...layout.lanes].map(([id, lane]) => [id, first + row * lane]));
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
      const { parent, depth } = step.bonus;
      const draft = draftOf(step.nodes.get(parent));
      nodes.append(this.nodeGroup({ id: BONUS, depth, proposer: "target", kind: "target", state: "bonus", draft }));
      strong.append(this.drawEdge({ id: BONUS, parent, depth, proposer: "target" }));
    }
    const groups = new Map([...nodes.children].map((group) => [this.nodeOf(group), group]));
    for (const { of, ...label } of this.rows.labels)
      if (of === undefined) labels.append(this.drawLabel(label));
      else
        groups
          .get(of)
          .append(this.drawLabel({ ...label, x: label.x - this.x((step.nodes.get(of) ?? step.bonus).depth), y: 0 }));
    this.world.replaceChildren(this.drawBoundary(), edges, strong, labels, nodes);
  }

  drawLabel({
    lane,
    x,
    y = lane === null ? this.rows.top : this.rows.y.get(lane),
    down,
    kind,
    words,
    width,
    first,
    at,
    stub,
  }) {
    const named = first && { "data-draft": draftOf(first), "data-at": first.id };
    const text = s("text", { class: kind, x, y: y + down, ...named }, ...words);
    if (!stub) return text;
    const area = s("rect", { x: x - this.stub, y: y + down - 20, width: width + this.stub, height: 30 });
    return s("g.more", { "data-branch": at }, s("path.edge", { d: stub(y) }), area, text);
  }

  /** x of the words “+ n more” after the last node of a cut branch. */
  moreX(at) {
    const right = this.x(this.step.nodes.get(at).depth) + this.widths.get(at) / 2;
    return clearOf(this.broke, right + this.stub + AIR, 80, [right, Infinity]) ?? right + this.stub + AIR;
  }

  moreWords({ at, count, branches }) {
    const said = [`+ ${count} more`, `+${count}`];
    if (branches > 1) said.unshift(`+ ${count} more in ${branches} branches`);
    const room = this.x(this.columns.widths.length - 0.5) - this.moreX(at);
    return said.find((words) => this.small(words) < room) ?? said.at(-1);
  }

  /** y of the lanes, the labels, and the extent of all this. */
  rowsOf(layout, room = 0) {
    if (layout.rows && !room) return layout.rows;
    const { items, labels } = labelsOf(this, layout);
    const head = BROKE_HEIGHT * this.broke.length;
    const rows = laneRows(layout, items, room - head);
    const right = Math.max(...items.map((item) => item.right));
    layout.rows = { ...rows, top: rows.top - head, right, labels };
    return layout.rows;
  }

  x(depth) {
    return this.columns.x(depth);
  }

  y(id) {
    return this.placed.get(id) ?? this.rows.y.get(this.layout.lanes.get(id)) ?? 0;
  }

  has(id) {
    return this.layout.lanes.has(id) || this.placed.has(id);
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
      larger: this.larger,
    };
  }

  drawNode(node) {
    const kind = node.state === "root" ? "anchor" : node.proposer;
    const w = this.widths.get(node.id);
    return this.nodeGroup(
      { ...node, kind, draft: draftOf(node) },
      kind === "anchor"
        ? s("rect.inner", { x: -w / 2 + 2.5, y: -PILL / 2 + 2.5, width: w - 5, height: PILL - 5, rx: 4 })
        : null,
    );
  }

  /** A node's shape and word at its place, with further `parts`. */
  nodeGroup({ id, depth, proposer, kind, state, draft }, ...parts) {
    const words = this.words.get(id);
    return s(
      "g",
      {
        class: `node ${kind} ${state}${this.broken.has(id) ? " broken" : ""}${words === BYTES ? " bytes" : ""}`,
        transform: `translate(${this.x(depth)},${this.y(id)})`,
        "data-node": id,
        "data-state": state,
        "data-depth": depth,
        "data-proposer": proposer,
        "data-draft": draft,
        "data-branch": this.branches.get(id),
      },
      nodeShape(kind, this.widths.get(id), words ? PILL : DOT),
      s("text", { class: `label${this.sizes.get(id) === CAPTION ? " low" : ""}`, y: 5.5 }, words),
      ...parts,
    );
  }

  /** The line to a node from its parent; `y(id)`: y of a node. */
  drawEdge(node, y = (id) => this.y(id)) {
    const from = this.step.nodes.get(node.parent);
    const x1 = this.x(from.depth) + this.widths.get(from.id) / 2;
    const x2 = this.x(node.depth) - this.widths.get(node.id) / 2;
    return s("path", {
      class: `edge ${node.proposer}`,
      "data-draft": draftOf(node.id === BONUS ? from : node),
      "data-of": node.id,
      "data-branch": this.branches.get(node.id),
      "data-depth": node.depth,
      d: edgePath(x1, y(from.id), x2, y(node.id), this.x(node.depth - 0.5)),
    });
  }

  /** The line after the last token of the first draft that the target accepted; the strip continues this line. */
  drawBoundary() {
    const [x] = this.broke;
    if (x === undefined) return s("g");
    return s("line.boundary", { x1: x, x2: x, y1: this.rows.top + BROKE_HEIGHT - 1, y2: 4000 });
  }

  place() {
    const { k, x, y } = this.viewport;
    this.world.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)}) scale(${k.toFixed(4)})`);
  }

  /** Opens the branches that are hovered, tapped or hold the selected node, and closes all others. */
  showOpen() {
    const asked = this.moving ? [] : [this.branches.get(this.node), this.held, this.pointed];
    const wanted = [...new Set(asked)].filter((at) => this.layout.more.has(at));
    if (String(wanted) !== String([...this.opened.keys()])) {
      for (const group of this.opened.values()) group.remove();
      for (const drawn of [this.opened, this.placed]) drawn.clear();
      wanted.forEach((at) => this.drawOpen(at));
    }
    this.world.classList.toggle("opened", this.opened.size > 0);
    for (const part of this.world.querySelectorAll("[data-branch]"))
      part.classList.toggle("open", this.opened.has(Number(part.dataset.branch)));
  }

  /** Draws a whole branch over everything else, so that nothing moves. It grows away from the first draft if there is room. */
  drawOpen(at) {
    const { step, layout, viewport } = this;
    const lanes = lanesOfMore(layout.more.get(at));
    const base = this.y(at);
    const high = PITCH * Math.max(...lanes.values());
    const { k, y } = viewport.fitted; // so that the side does not depend on zoom and pan
    const room = { 1: viewport.size.height - y - base * k, "-1": y + base * k };
    const away = layout.lanes.get(at) < 0 ? -1 : 1;
    const side = room[away] < high * k + PILL && room[-away] > room[away] ? -away : away;
    const hidden = [...lanes.keys()].filter((id) => !layout.lanes.has(id)).map((id) => step.nodes.get(id));
    const under = side > 0 && [...lanes.keys()].some((id) => this.broken.get(id)) ? BELOW[1] - BELOW[0] : 0; // room for “wanted …”
    for (const { id } of hidden) this.placed.set(id, base + (lanes.get(id) ? side * PITCH * lanes.get(id) + under : 0));
    const rows = new Map();
    for (const { id, depth } of hidden) {
      const [from, to] = rows.get(this.y(id)) ?? [depth, depth];
      rows.set(this.y(id), [Math.min(from, depth), Math.max(to, depth)]);
    }
    const ground = [...rows].map(([y, [from, to]]) =>
      s("rect.ground", {
        x: this.x(from - 0.5),
        y: y - PITCH / 2,
        width: this.x(to + 0.5) - this.x(from - 0.5),
        height: PITCH,
      }),
    );
    const group = s(
      "g.whole",
      { "data-branch": at },
      ...ground,
      ...hidden.map((node) => this.drawEdge(node)),
      ...hidden.map((node) => this.drawNode(node)),
    );
    this.opened.set(at, group);
    this.world.append(group);
  }

  /** Marks the selected node and opens its branch. */
  mark() {
    const { node } = this;
    if (!this.step || !this.layout) return;
    this.showOpen();
    for (const group of this.world.querySelectorAll("g.node")) {
      const chosen = node !== null && this.nodeOf(group) === node;
      group.classList.toggle("selected", chosen);
      const ring = group.querySelector(".ring");
      if (ring && !chosen) ring.remove();
      if (chosen && !ring)
        group.prepend(
          s("rect.ring", {
            x: -this.widths.get(node) / 2 - 4,
            y: -PILL / 2 - 4,
            width: this.widths.get(node) + 8,
            height: PILL + 8,
            rx: 10,
          }),
        );
    }
  }

  nodeOf(group) {
    const { node } = group.dataset;
    return node === BONUS ? node : Number(node);
  }

  neighbour(node, direction) {
    if (!this.layout) return null;
    const lanes = new Map(this.layout.lanes);
    for (const at of this.opened.keys())
      for (const [id, lane] of lanesOfMore(this.layout.more.get(at)))
        if (this.placed.has(id))
          lanes.set(id, lanes.get(at) + (Math.sign(this.placed.get(id) - this.y(at)) * lane) / 99);
    return nextNode(this.step, lanes, node, direction);
  }

  reveal(node) {
    const target = nodeOf(this.step, node);
    if (target && this.layout && this.has(node)) this.viewport.reveal(this.x(target.depth), this.y(node));
  }

  listen() {
    const point = (at) => {
      clearTimeout(this.leaving);
      if (at !== this.pointed)
        this.leaving = setTimeout(() => ((this.pointed = at), this.mark()), at === null ? LINGER : 0);
    };
    const over = (event) => {
      const group = event.target.closest?.("g.node");
      if (event.pointerType === "touch" || this.viewport.dragged || !this.step) return this.tooltip.hide();
      const at = event.target.closest("[data-branch]")?.dataset.branch;
      point(at === undefined ? null : Number(at));
      if (!group || this.secret || this.nodeOf(group) === this.node) return this.tooltip.hide(); // the details show the selected node
      return this.tooltip.show(nodeCard(this.step, this.nodeOf(group)), event);
    };
    this.svg.addEventListener("pointermove", over);
    this.svg.addEventListener("pointerleave", () => (point(null), this.tooltip.hide()));
    this.svg.addEventListener("click", (event) => {
      if (!this.step || this.viewport.dragged) return;
      const group = event.target.closest("g.node");
      if (!group) {
        const at = Number(event.target.closest("g.more")?.dataset.branch ?? NaN);
        return this.state.set({ held: at === this.held || Number.isNaN(at) ? null : at });
      }
      if (this.answered(Number(group.dataset.depth))) return;
      this.state.pin(this.step.index, this.nodeOf(group));
      // touch has no hover, and the details are far away
      if (event.pointerType === "touch") this.tooltip.show(nodeCard(this.step, this.nodeOf(group)), event);
    });
  }
}
