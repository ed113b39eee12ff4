// Draws a step at a time of its coming about: moves, fades and marks the parts of the tree, the strip and the text, which are drawn as
// they stay, and adds what is there for a while only. What anything looks like is said in stages.js.

import { h, s } from "./dom.js";
import { END, draftOf, stage } from "./stages.js";
import { edgePath } from "./tree_shapes.js";

const ROW = { most: 38, margin: 20 }; // between the rows of two drafts, and at the edge of the view, in pixels
const HIGH = 4000; // reaches beyond every view

/** The tokens of draft `c` behind its prefix. */
const ownTokens = (step, c) =>
  [...step.nodes.values()].filter((n) => n.candidates.includes(c) && n.depth > (c ? step.branches[c - 1].prefix : 0));

/** Where the row of every draft lies, by its number: the first draft in the middle, each re-draft on the side of its lane or, where that is
 *  folded away, where there is more room, those that begin latest nearest. */
function rowsOf({ step, layout, viewport: { k, y, size } }) {
  const room = { "-1": y / k - ROW.margin, 1: (size.height - y) / k - ROW.margin };
  const sides = { "-1": [], 1: [] };
  const free = () => (room[1] / (sides[1].length + 1) < room[-1] / (sides[-1].length + 1) ? -1 : 1);
  const drafts = step.branches
    .map(({ prefix }, at) => ({ c: at + 1, prefix, own: ownTokens(step, at + 1) }))
    .filter(({ own }) => own.length);
  for (const draft of drafts) draft.lane = draft.own.map((n) => layout.lanes.get(n.id)).find(Boolean) ?? 0;
  for (const draft of drafts.sort((a, b) => Math.abs(b.lane) - Math.abs(a.lane)))
    sides[Math.sign(draft.lane) || free()].push(draft);
  const rows = new Map([[0, 0]]);
  for (const [side, there] of Object.entries(sides)) {
    const pitch = Math.min(ROW.most, Math.max(8, room[side]) / Math.max(1, there.length));
    there
      .sort((a, b) => b.prefix - a.prefix || Math.abs(a.lane) - Math.abs(b.lane))
      .forEach(({ c }, at) => rows.set(c, side * pitch * (at + 1)));
  }
  return rows;
}

/** Writes a style only where it changes. */
function put(element, name, value) {
  const written =
    value === 1 && name !== "strokeDashoffset"
      ? ""
      : typeof value === "number"
        ? String(Math.round(value * 1000) / 1000)
        : value;
  if (element.style[name] !== written) element.style[name] = written;
}
const fade = (element, opacity) => element && put(element, "opacity", opacity);
const move = (element, x, y) =>
  put(element, "translate", Math.abs(x) + Math.abs(y) < 0.05 ? "" : `${x.toFixed(1)}px ${y.toFixed(1)}px`);
const unroll = (element, share) => put(element, "strokeDashoffset", 1 - share);

export class Motion {
  constructor({ root, tree, strip, words }) {
    Object.assign(this, { root, tree, strip, words, acts: null, step: null });
  }

  /** Draws a step at time `t`, where tree and strip show it. */
  show(step, t) {
    if (this.tree.step !== step || this.strip.step !== step) return;
    if (!step || t >= END || !this.tree.layout || !this.tree.layout.lanes.size) return this.leave();
    if (
      this.acts &&
      (this.step !== step || this.drawn !== this.tree.world.firstChild || this.striped !== this.strip.svg.firstChild)
    )
      this.leave();
    if (!this.acts) this.enter(step);
    const now = stage(step, t);
    for (const act of this.acts) act(now);
  }

  enter(step) {
    const { tree, strip } = this;
    Object.assign(this, { step, acts: [], drawn: tree.world.firstChild, striped: strip.svg.firstChild });
    this.temporary = s("g", { class: "moving" });
    tree.world.insertBefore(this.temporary, tree.world.querySelector(".labels"));
    this.rows = rowsOf(tree);
    this.moveNodes(step);
    this.moveLines(step);
    if (step.branches.length) this.addRows(step);
    this.addLight();
    this.moveStrip(step);
    this.moveText(step);
    this.root.classList.add("moves");
  }

  /** Draws the step as it stays. */
  leave() {
    if (!this.acts) return;
    const { tree, strip } = this;
    for (const element of [...tree.world.querySelectorAll("*"), ...strip.svg.querySelectorAll("*")]) {
      element.removeAttribute("style");
      element.classList.remove("yet", "mask");
    }
    for (const tokens of this.words.tokens) for (const token of tokens) token.classList.remove("ahead", "coming");
    this.flyers.forEach((flyer) => flyer.remove()); // some may have no way
    this.temporary.remove();
    this.acts = null;
    this.root.classList.remove("moves");
  }

  moveNodes(step) {
    const { tree, acts, rows } = this;
    for (const group of tree.world.querySelectorAll("g.node")) {
      const [shape, label, ghost] = [".shape", ".label", ".ghost"].map((part) => group.querySelector(part));
      const node = step.nodes.get(tree.nodeOf(group));
      if (!node) {
        acts.push(({ bonus }) => {
          fade(group, bonus);
          put(shape, "scale", 0.5 + 0.5 * bonus);
        });
        continue;
      }
      const away = (rows.get(draftOf(node)) ?? tree.y(node.id)) - tree.y(node.id);
      acts.push((now) => {
        const { opacity, word, apart, light, known, shake } = now.node(node);
        fade(group, opacity);
        move(group, shake, apart * away);
        fade(label, word);
        put(shape, "scale", 1 + 0.14 * light);
        group.classList.toggle("mask", word < 0.4);
        group.classList.toggle("yet", !known);
        group.classList.toggle("lit", light > 0.3);
        fade(ghost, known);
      });
    }
  }

  moveLines(step) {
    const { tree, acts } = this;
    for (const edge of tree.world.querySelectorAll(".edge")) {
      const node = step.nodes.get(Number(edge.dataset.of));
      acts.push((now) => {
        const { opacity, known } = node ? now.edge(node) : { opacity: now.bonus, known: 1 };
        fade(edge, opacity);
        edge.classList.toggle("yet", known < 0.5);
      });
    }
    for (const line of tree.world.querySelectorAll(".boundary")) acts.push(({ truth }) => fade(line, truth));
    for (const words of tree.world.querySelectorAll(".more")) acts.push(({ late }) => fade(words, late));
    for (const name of tree.world.querySelectorAll(".lane")) {
      acts.push((now) => {
        fade(name, now.lane(name.dataset.draft === "0"));
        name.classList.toggle("yet", !now.brought);
      });
    }
  }

  /** One row a draft until equal beginnings slide into one another: its line, its name, and the tokens that another one wrote too or that are
   *  folded away. */
  addRows(step) {
    const { tree, rows, acts, temporary } = this;
    const { lanes } = tree.layout;
    const place = (depth) => tree.x(depth);
    const copies = s("g", {});
    for (const [c, y] of rows) {
      const own = ownTokens(step, c);
      if (!own.length) continue;
      const { prefix = 0, base = 0, drafter } = c ? step.branches[c - 1] : {};
      const end = Math.max(...own.map((n) => n.depth));
      const rail = s("path", {
        class: "edge rail",
        pathLength: 1,
        d: edgePath(place(prefix), rows.get(base) ?? 0, place(end), y, place(prefix + 0.5)),
      });
      temporary.append(rail);
      acts.push((now) => {
        const { grown, opacity } = now.rail(c);
        unroll(rail, grown);
        fade(rail, opacity);
      });
      if (!c) continue;
      const name = s(
        "text",
        { class: "lane from", x: place(prefix + 0.5) - 5, y: y + 4 },
        prefix ? `from ${prefix}` : `draft ${c + 1}`,
      );
      const flag = step.selected.indexOf(prefix);
      const cast =
        flag < 0 || step.random
          ? null
          : s("line", { class: "cast", x1: place(prefix + 0.5), x2: place(prefix + 0.5), y1: 0, y2: HIGH });
      temporary.append(name, cast || "");
      acts.push((now) => {
        fade(name, now.row(c));
        if (cast) fade(cast, 0.7 * now.flag(flag).cast);
      });
      for (const node of own.filter((n) => draftOf(n) !== c || !lanes.has(n.id))) {
        let into = node; // what is folded away slides into the node that stands for it
        while (!lanes.has(into.id)) into = step.nodes.get(into.parent);
        const copy = tree.nodeGroup({ ...node, kind: drafter, proposer: drafter, state: "unreached", draft: c });
        copies.append(copy);
        copy.classList.add("yet");
        const label = copy.querySelector(".label");
        acts.push((now) => {
          const { opacity, word, apart } = now.copy(c, node.depth);
          fade(copy, opacity);
          move(copy, 0, apart * y + (1 - apart) * tree.y(into.id) - tree.y(node.id));
          fade(label, word);
          copy.classList.toggle("mask", word < 0.4);
        });
      }
    }
    temporary.append(copies);
  }

  /** The target's one pass: light that runs over all branches at once. */
  addLight() {
    const { tree, acts, temporary } = this;
    const beam = s(
      "g",
      { class: "beam" },
      ...[120, 70, 26].map((width) => s("rect", { x: -width / 2, y: -HIGH, width, height: 2 * HIGH })),
    );
    temporary.prepend(beam);
    acts.push(({ sweep }) => {
      fade(beam, sweep === null ? 0 : 1);
      if (sweep !== null) move(beam, tree.x(sweep), 0);
    });
  }

  moveStrip(step) {
    const { acts, strip } = this;
    const all = (name, act) =>
      strip.svg.querySelectorAll(name).forEach((element, at) => acts.push((now) => act(element, now, at)));
    all(".column", (column, now) => {
      const { grown, opacity, known } = now.bar(Number(column.dataset.depth));
      fade(column, opacity);
      for (const part of column.children) {
        if (part.matches(".bar")) put(part, "scale", grown === 1 ? "" : `1 ${grown.toFixed(3)}`);
        else fade(part, part.matches(".cross") ? known : grown);
      }
      column.classList.toggle("yet", !known);
    });
    const places = step.posterior.length;
    all(".posterior :is(.line, .closed)", (line, now) =>
      line.matches(".line") ? unroll(line, now.posterior) : fade(line, now.posterior),
    );
    all(".posterior :is(.stick, .dot, .end)", (part, now) =>
      fade(part, Math.min(1, Math.max(0, now.posterior * (places + 1.5) - Number(part.dataset.at)))),
    );
    all(".titles .end", (values, now) => fade(values, now.posterior));
    all(".flag", (flag, now) => {
      const { dropped } = now.flag(Number(flag.dataset.nth));
      fade(flag, dropped);
      move(flag, 0, -18 * (1 - dropped));
      flag.classList.toggle("yet", !now.truth);
    });
    all(".truth", (truth, now) => fade(truth, now.truth));
    const levels = step.levels.length;
    if (levels)
      all(".levels :is(circle, text)", (part, now) =>
        fade(part, now.node({ candidates: [], depth: Number(part.dataset.depth), id: null, parent: 0 }).opacity),
      );
  }

  /** The tokens of the step fly into the text; what comes behind them is faint. */
  moveText({ index, committed }) {
    const { words, root, acts } = this;
    const tokens = words.tokens[index] || [];
    this.flyers = [];
    words.tokens.slice(index + 1).forEach((later) => later.forEach((token) => token.classList.add("ahead")));
    let ways = null;
    tokens.forEach((token, i) => {
      token.classList.add("coming");
      acts.push(({ landed }) => {
        const there = landed(i);
        token.classList.toggle("coming", there < 1);
        if (there <= 0 || there >= 1) return fade(this.flyers[i] || null, 0);
        ways ??= this.measure(committed, tokens);
        if (!ways[i]) return token.classList.remove("coming");
        const [from, to] = ways[i];
        if (!this.flyers[i])
          root.append(
            (this.flyers[i] = h(
              "span",
              { class: `tok shown flyer ${committed[i].proposer}`, "aria-hidden": "true" },
              committed[i].text,
            )),
          );
        fade(this.flyers[i], 0.99);
        return move(this.flyers[i], from.x + there * (to.x - from.x), from.y + there * (to.y - from.y));
      });
    });
  }

  /** From where to where every token of the text flies, null where one of the places is out of sight. */
  measure(committed, tokens) {
    const [frame, box, view] = [this.root, this.words.host, this.tree.host].map((element) =>
      element.getBoundingClientRect(),
    );
    return tokens.map((token, i) => {
      const node = this.tree.world.querySelector(`[data-node="${committed[i].node ?? "bonus"}"]`);
      const [from, to] = [node, token].map((element) => element && element.getBoundingClientRect());
      if (
        !from ||
        !to.width ||
        to.top < box.top ||
        to.bottom > Math.min(box.bottom, innerHeight) ||
        from.left < view.left ||
        from.right > view.right
      )
        return null;
      return [
        { x: from.left + from.width / 2 - to.width / 2 - frame.left, y: from.top + 4 - frame.top },
        { x: to.left - frame.left, y: to.top - frame.top },
      ];
    });
  }
}
