// The draft tree of the shown step. x is the position in the block; lanes come from tree_layout.js.

const LANE = 51; // room for a label above and one below every node
const COLUMN = [62, 108];

class TreeView {
  /** `host` carries the svg; `viewport` moves it. */
  constructor(host, selection, tooltip, viewport) {
    Object.assign(this, { host, selection, tooltip, viewport, step: null, column: COLUMN[0], hovered: null });
    this.world = s("g", { class: "world" });
    this.svg = s("svg", { role: "img", "aria-label": "Draft tree", width: "100%", height: "100%" }, this.world);
    host.append(this.svg);
    this.listen();
  }

  /** Draws a step; null clears. */
  show(step) {
    this.step = step;
    this.tooltip.hide();
    if (!step) {
      this.world.replaceChildren();
      return;
    }
    const { width } = this.viewport.size;
    if (!width) return;
    this.column = Math.min(COLUMN[1], Math.max(COLUMN[0], (width - MARGIN.left - MARGIN.right) / step.columns));
    this.layout = layoutTree(step);
    const family = getComputedStyle(this.host).fontFamily;
    this.font = (bold) => `${bold ? 600 : 400} ${NODE_FONT}px ${family}`;
    this.widths = new Map();
    const edges = s("g", { class: "edges" });
    const strong = s("g", { class: "edges strong" });
    const nodes = s("g", { class: "nodes" });
    const labels = s("g", { class: "labels" });
    for (const node of step.nodes.values()) nodes.append(this.drawNode(node));
    if (this.layout.lanes.has(BONUS)) nodes.append(this.drawBonus());
    for (const node of step.nodes.values()) {
      if (node.parent >= 0) (node.state === "accepted" ? strong : edges).append(this.drawEdge(node));
    }
    if (this.layout.lanes.has(BONUS)) strong.append(this.drawEdge({ id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth, proposer: "target" }));
    for (const chain of this.layout.chains) labels.append(...this.chainLabel(chain));
    this.world.replaceChildren(this.drawBoundary(), edges, strong, labels, nodes);
    this.viewport.set(this.extent());
    this.mark();
  }

  x(depth) {
    return depth * this.column;
  }

  y(id) {
    return (this.layout.lanes.get(id) || 0) * LANE;
  }

  extent() {
    const { low, high } = this.layout;
    const ids = [0, ...this.step.accepted, BONUS].filter((id) => this.layout.lanes.has(id));
    const ys = ids.map((id) => this.y(id));
    const deepest = this.step.bonus ? this.step.bonus.depth : Math.max(0, ...this.step.accepted.map((id) => this.step.nodes.get(id).depth));
    return {
      left: -this.column / 2,
      // A bonus token in the last column has its name to the right of it.
      right: this.x(this.step.columns - 1) + this.column / 2 + (this.step.bonus && deepest === this.step.columns - 1 ? 34 : 0),
      top: low * LANE - 27,
      bottom: high * LANE + 27,
      focus: { left: -this.column / 2, right: this.x(deepest + 0.6), top: Math.min(...ys) - 27, bottom: Math.max(...ys) + 27 },
      block: this.step.drafted || this.step.columns,
    };
  }

  drawNode(node) {
    const kind = node.state === "root" ? "anchor" : node.proposer;
    const { words, width } = fitLabel(node.text, this.column - 16, this.font(node.state === "accepted"));
    const w = Math.max(28, width + 11);
    this.widths.set(node.id, w);
    const group = s(
      "g",
      {
        class: `node ${kind} ${node.state}`,
        transform: `translate(${this.x(node.depth)},${this.y(node.id)})`,
        "data-node": node.id,
        "data-state": node.state,
        "data-depth": node.depth,
        "data-proposer": node.proposer,
      },
      nodeShape(kind, w),
      kind === "anchor" ? s("rect", { class: "inner", x: -w / 2 + 2.5, y: -PILL / 2 + 2.5, width: w - 5, height: PILL - 5, rx: 3 }) : null,
      s("text", { class: "label", y: 4 }, words),
    );
    if (node.state === "root") group.append(s("text", { class: "under", y: PILL / 2 + 11 }, "anchor"));
    if (node.state === "rejected") {
      group.append(crossBadge(w / 2 - 1, -PILL / 2 + 1));
      const wanted = this.step.choices.get(node.parent);
      if (wanted) group.append(s("text", { class: "ghost", x: -w / 2, y: PILL / 2 + 11 }, "target: ", s("tspan", {}, visible(wanted.text, 12))));
    }
    return group;
  }

  drawBonus() {
    const { bonus } = this.step;
    const { words, width } = fitLabel(bonus.text, this.column - 24, this.font(true));
    const w = Math.max(34, width + 20);
    this.widths.set(BONUS, w);
    return s(
      "g",
      {
        class: "node target bonus",
        transform: `translate(${this.x(bonus.depth)},${this.y(BONUS)})`,
        "data-node": "bonus",
        "data-state": "bonus",
        "data-depth": bonus.depth,
        "data-proposer": "target",
      },
      nodeShape("target", w),
      s("text", { class: "label", y: 4 }, words),
      s("text", { class: "beside", x: w / 2 + 4, y: 3.5 }, "bonus"),
    );
  }

  drawEdge(node) {
    const from = this.step.nodes.get(node.parent);
    const x1 = this.x(from.depth) + this.widths.get(from.id) / 2;
    const x2 = this.x(node.depth) - this.widths.get(node.id) / 2;
    return s("path", {
      class: `edge ${node.proposer}`,
      d: edgePath(x1, this.y(from.id), x2, this.y(node.id), this.x(node.depth - 0.5)),
    });
  }

  /** Names a lane where it begins: the first draft, or the prefix that a re-draft started from, and what it brought. */
  chainLabel(chain) {
    const main = chain.lane === 0 && chain.first.depth === 0;
    const at = main ? chain.nodes[1] : chain.first;
    if (!this.step.draft || !at || at.id === BONUS) return [];
    const drafts = at.candidates.filter((c) => c > 0 && this.step.branches[c - 1]).map((c) => this.step.branches[c - 1]);
    const prefixes = [...new Set(drafts.map(branchName))];
    if (!main && !prefixes.length) return [];
    const [head, ...rest] = prefixes;
    let words = main ? "first draft" : head + rest.slice(0, 2).map((name) => ", " + name.replace("re-draft from ", "")).join("") + (rest.length > 2 ? ", …" : "");
    const brought = chain.nodes.filter((n) => n.state === "accepted").length;
    if (brought) words += main ? ` · ${brought} right` : ` · added ${brought}`;
    const attributes = { class: `lane ${at.proposer}${brought ? " won" : ""}`, x: this.x(at.depth) - this.widths.get(at.id) / 2, y: chain.lane * LANE - PILL / 2 - 5 };
    return [s("text", attributes, words)];
  }

  /** The border behind the last first-draft token that the target accepted; the strip draws it on. */
  drawBoundary() {
    if (this.step.boundary === null || !this.step.draft) return s("g");
    const x = this.x(this.step.boundary + 0.5);
    return s("line", { class: "boundary", x1: x, x2: x, y1: -4000, y2: 4000 });
  }

  place() {
    const { k, x, y } = this.viewport;
    this.world.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)}) scale(${k.toFixed(4)})`);
  }

  /** Shows which node is selected. */
  mark() {
    for (const group of this.world.querySelectorAll("g.node")) {
      group.classList.toggle("selected", this.selection.node !== null && this.nodeOf(group) === this.selection.node);
    }
  }

  nodeOf(group) {
    return group.dataset.node === "bonus" ? BONUS : Number(group.dataset.node);
  }

  /** The next node in a direction: up and down across lanes, sideways along the path. */
  neighbour(node, direction) {
    const { step, layout } = this;
    if (!step || !step.nodes.size) return null;
    if (node === null || !layout.lanes.has(node)) return step.accepted.length ? step.accepted[step.accepted.length - 1] : step.nodes.keys().next().value;
    const all = [...step.nodes.values(), ...(layout.lanes.has(BONUS) ? [{ id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth }] : [])];
    const here = all.find((n) => n.id === node);
    if (direction === "left") return here.parent >= 0 ? here.parent : node;
    if (direction === "right") {
      const next = all.filter((n) => n.parent === node);
      const path = next.find((n) => n.id === BONUS || n.state === "accepted");
      return (path || next.find((n) => layout.lanes.get(n.id) === layout.lanes.get(node)) || next[0] || here).id;
    }
    const side = direction === "up" ? -1 : 1;
    const lane = layout.lanes.get(node);
    const away = (n) => (layout.lanes.get(n.id) - lane) * side * 1000 + Math.abs(n.depth - here.depth);
    const beyond = all.filter((n) => (layout.lanes.get(n.id) - lane) * side > 0);
    return beyond.length ? beyond.reduce((a, b) => (away(b) < away(a) ? b : a)).id : node;
  }

  reveal(node) {
    const found = node === BONUS ? this.step.bonus : this.step.nodes.get(node);
    if (found) this.viewport.reveal(this.x(found.depth), this.y(node));
  }

  listen() {
    const over = (event) => {
      const group = event.target.closest && event.target.closest("g.node");
      if (!group || !this.step || event.pointerType === "touch" || this.viewport.dragged) return this.tooltip.hide();
      return this.tooltip.show(nodeCard(this.step, this.nodeOf(group)), event.clientX, event.clientY);
    };
    this.svg.addEventListener("pointermove", over);
    this.svg.addEventListener("pointerleave", () => this.tooltip.hide());
    this.svg.addEventListener("click", (event) => {
      const group = event.target.closest("g.node");
      if (!group || !this.step || this.viewport.dragged) return;
      this.selection.pin(this.step.index, this.nodeOf(group));
    });
  }
}
