// Animates a step: moves, fades and marks elements of the finished tree, strip and text, and adds temporary elements. stages.js
// computes the state of all these at a time.

import { BONUS } from "./step.js";
import { h, s } from "./dom.js";
import { timeAt } from "./player.js";
import { draftOf, rowOrder, stage } from "./stages.js";
import { PILL } from "./tree_shapes.js";
import { afterToken } from "./words.js";

// pixels between the rows of two drafts, and at the lower and upper edge of the view, where the first draft has its name
const ROW = { least: PILL + 2, most: PILL + 28, margin: PILL / 2 + 6, named: PILL / 2 + 20 };
const HIGH = 4000; // larger than any view
const DROP = PILL + 4; // pixels between a node and the target's wish above it

/** The nodes of draft `c`, deeper than `from`. */
const tokensOf = (step, c, from = 0) =>
  [...step.nodes.values(), ...step.left].filter((n) => n.depth > from && n.candidates.includes(c));
const prefixOf = (step, c) => (c ? step.branches[c - 1].prefix : 0);
const ownTokens = (step, c) => tokensOf(step, c, prefixOf(step, c));

/** The y of each draft's row, by number of the draft. The first draft is at 0, or higher up if the other rows need the space below. */
function rowsOf({ step, viewport: { k, y, size } }) {
  const order = rowOrder(step).filter((c) => ownTokens(step, c).length);
  const [top, bottom] = [ROW.named - y / k, (size.height - y) / k - ROW.margin];
  const fit = (bottom - top) / Math.max(1, order.length);
  const pitch = Math.min(fit, ROW.most, Math.max(ROW.least, bottom / Math.max(1, order.length)));
  const first = order.length ? Math.min(0, bottom - pitch * order.length) : 0;
  return new Map([[0, first], ...order.map((c, at) => [c, first + pitch * (at + 1)])]);
}

/** Sets a style property, only if its value changes. */
function put(element, name, value) {
  const shown = value === 1 && name !== "strokeDashoffset" ? "" : value;
  const written = typeof shown === "number" ? String(Math.round(shown * 1000) / 1000) : shown;
  if (element.style[name] !== written) element.style[name] = written;
}
const fade = (element, opacity) => element && put(element, "opacity", opacity);
const move = (element, x, y) =>
  put(element, "translate", Math.abs(x) + Math.abs(y) < 0.05 ? "" : `${x.toFixed(1)}px ${y.toFixed(1)}px`);
const unroll = (element, share) => put(element, "strokeDashoffset", 1 - share);

export function motionView({ root, tree, strip, words }) {
  let step = null;
  let acts = null; // functions that move a part to its place at a time, null while nothing moves
  let drawn, rows, whole; // the drawing that moves; y of the rows of drafts; y of nodes while branches are whole, null if nothing is hidden
  let under, over, tokens, flyers; // temporary elements, and those of the step in the text

  /** Draws the step at its place, on top of the finished tree and strip. */
  function show({ step: shown, place }) {
    const moves = place !== null && tree.layout?.lanes.size > 0;
    const parts = [tree.world.firstChild, strip.svg.firstChild, tree.viewport.y]; // other ones after a new drawing or a pan
    if (acts && !(moves && parts.every((part, at) => part === drawn[at]))) leave();
    if (!moves) return;
    step = shown;
    if (!acts) enter();
    drawn = parts;
    const now = stage(step, timeAt(step, place));
    for (const act of acts) act(now);
  }

  function enter() {
    root.classList.add("moves");
    acts = [];
    [under, over] = [s("g.moving", {}), s("g.moving", {})];
    tree.world.insertBefore(under, tree.world.querySelector(".labels"));
    tree.world.append(over);
    rows = rowsOf(tree);
    whole = tree.wholePlaces();
    moveNodes();
    moveLines();
    addRows();
    addRest();
    addWishes();
    moveStrip();
    moveText();
  }

  /** Ends the animation: draws the finished step. */
  function leave() {
    for (const element of [...tree.world.querySelectorAll("*"), ...strip.svg.querySelectorAll("*")]) {
      element.removeAttribute("style");
      element.classList.remove("yet", "mask", "lit");
    }
    for (const token of tokens) token.classList.remove("coming");
    for (const made of [under, over, ...flyers]) made?.remove(); // flyers has gaps: tokens out of view have no flyer
    acts = null;
    root.classList.remove("moves");
  }

  const highest = (id) => whole?.get(id) ?? tree.y(id);

  /** The y of a node now: it moves from its draft's row to the tree with whole branches, then to its final y, `stays`. */
  function height(node, { apart, fold }, stays) {
    const row = rows.get(draftOf(node)) ?? 0;
    const high = whole?.get(node.id) ?? stays;
    return apart * row + (1 - apart) * ((1 - fold) * high + fold * stays);
  }

  function moveNodes() {
    for (const group of tree.world.querySelectorAll("g.node")) {
      const node = step.nodes.get(tree.idOf(group));
      const shape = group.querySelector(".shape");
      if (node) moveNode(group, node, tree.y(node.id));
      else
        acts.push(({ bonus }) => {
          fade(group, bonus);
          put(shape, "scale", 0.5 + 0.5 * bonus);
        });
    }
  }

  /** Animates a node to its final y, `stays`. A node that the final tree leaves out moves `into` another one. */
  function moveNode(group, node, stays, into = null) {
    const [shape, label] = [".shape", ".label"].map((part) => group.querySelector(part));
    const ghosts = group.querySelectorAll(".ghost");
    const [home, across] = [tree.y(node.id), into ? tree.x(into.depth) - tree.x(node.depth) : 0];
    // whether the node is visible until branches fold; other nodes hide when their row merges, and return at the fold if they stay
    const waits = node.at === undefined && (!whole || whole.has(node.id));
    acts.push((now) => {
      const { opacity, word, apart, light, known, shake } = now.node(node);
      const gone = into ? (waits ? now.fold : 1 - apart) : 0;
      const there = into ? 1 - Math.max(0, 4 * gone - 3) : waits ? 1 : Math.max(apart, now.fold);
      fade(group, opacity * there);
      move(group, shake + gone * across, height(node, { apart, fold: now.fold }, stays) - home);
      fade(label, word);
      put(shape, "scale", 1 + 0.1 * light);
      group.classList.toggle("mask", word < 0.4);
      group.classList.toggle("yet", !known);
      group.classList.toggle("lit", light > 0.3 && !known);
      for (const ghost of ghosts) fade(ghost, known);
    });
  }

  function moveLines() {
    for (const edge of tree.world.querySelectorAll(".edges .edge")) {
      const node = step.nodes.get(Number(edge.dataset.of));
      acts.push((now) => {
        const { opacity, known } = node ? now.edge(node) : { opacity: now.bonus, known: 1 };
        fade(edge, whole && node ? now.fold : opacity);
        edge.classList.toggle("yet", known < 0.5);
      });
    }
    for (const line of tree.world.querySelectorAll(".boundary")) acts.push(({ truth }) => fade(line, truth));
    for (const rest of tree.world.querySelectorAll(".more"))
      acts.push((now) => fade(rest, whole ? now.fold : now.late));
    for (const name of tree.world.querySelectorAll(".lane")) {
      const at = step.nodes.get(Number(name.dataset.at));
      const first = name.dataset.draft === "0";
      const high = highest(at.id);
      const above = ([id, y]) => y < high && high - y < PILL + 20 && Math.abs(step.nodes.get(id).depth - at.depth) < 2;
      const hidden = [...(whole ?? [])].some(above); // no space for the name while branches are whole
      acts.push((now) => {
        const apart = first ? now.apart : 0;
        fade(name, now.lane(first) * (hidden ? Math.max(apart, now.fold) : 1));
        move(name, 0, height(at, { apart, fold: now.fold }, tree.y(at.id)) - tree.y(at.id));
        name.classList.toggle("yet", !now.brought);
      });
    }
  }

  function copy(node, c, kind) {
    const made = tree.nodeGroup({
      ...node,
      kind,
      proposer: kind,
      state: node.state === "accepted" ? "unreached" : node.state,
      draft: c,
    });
    made.removeAttribute("data-node"); // the node itself has its own group
    made.classList.remove("broken");
    made.classList.add("yet");
    under.append(made);
    return made;
  }

  /** Adds a row for each draft, until drafts merge: a line, the prefix, and copies of tokens that another draft wrote too. */
  function addRows() {
    for (const [c, y] of rows) {
      const [prefix, own] = [prefixOf(step, c), ownTokens(step, c)];
      if (!own.length) continue;
      const { drafter } = c ? step.branches[c - 1] : step.draft;
      const end = Math.max(...own.map((n) => n.depth));
      const rail = s("path.edge.rail", { pathLength: 1, d: `M${tree.x(c ? prefix + 0.5 : 0)} ${y}H${tree.x(end)}` });
      if (step.branches.length) under.prepend(rail);
      acts.push((now) => {
        const { grown, opacity } = now.rail(c);
        unroll(rail, grown);
        fade(rail, opacity);
      });
      if (!c) continue;
      const name = rowName(c, y);
      acts.push((now) => fade(name, now.rail(c).grown * now.rail(c).opacity));
      const flag = step.selected.indexOf(prefix);
      if (flag >= 0 && !step.random) {
        const at = tree.x(prefix + 0.5);
        const cast = s("line.cast", { x1: at, x2: at, y1: rows.get(0), y2: HIGH });
        under.append(cast);
        acts.push((now) => fade(cast, 0.7 * now.flag(flag).cast));
      }
      for (const node of tokensOf(step, c).filter((n) => n.depth <= prefix || draftOf(n) !== c)) {
        const kept = node.depth <= prefix;
        const made = copy(node, c, kept ? node.proposer : drafter);
        const [label, high, home] = [made.querySelector(".label"), highest(node.at ?? node.id), tree.y(node.id)];
        acts.push((now) => {
          const { opacity, word, apart } = now.copy(c, node.depth);
          fade(made, kept ? now.kept(c) : opacity);
          move(made, 0, apart * y + (1 - apart) * high - home);
          if (kept) return;
          fade(label, word);
          made.classList.toggle("mask", word < 0.4);
        });
      }
    }
  }

  /** Adds the label of a row: after which token its draft starts. Returns null if there is no space. */
  function rowName(c, y) {
    const { prefix, resampled } = step.branches[c - 1];
    const words = afterToken(prefix, true);
    if (resampled || tree.small(words) > tree.x(0.5) - tree.x(-0.5)) return null;
    const name = s("text.row", { x: tree.x(0.5) - 6, y: y + 4.5 }, words);
    under.append(name);
    return name;
  }

  /** Adds nodes that the final tree leaves out, drafted tokens that were not verified, and the edges of whole branches. */
  function addRest() {
    for (const node of step.nodes.values()) {
      if (tree.has(node.id)) continue;
      let into = node;
      while (!tree.has(into.id)) into = step.nodes.get(into.parent);
      moveNode(copy(node, draftOf(node), node.proposer), node, tree.y(into.id), into);
    }
    for (const node of step.left)
      moveNode(copy(node, draftOf(node), node.proposer), node, highest(node.at), step.nodes.get(node.at));
    if (!whole) return;
    const [edges, strong] = ["edges", "edges strong"].map((name) => s("g", { class: name }));
    under.prepend(edges, strong);
    for (const node of step.nodes.values()) {
      if (node.parent < 0 || !whole.has(node.id)) continue;
      const edge = tree.drawEdge(node, (id) => whole.get(id));
      (node.state === "accepted" ? strong : edges).append(edge);
      acts.push((now) => {
        const { opacity, known } = now.edge(node);
        fade(edge, opacity * (1 - now.fold));
        edge.classList.toggle("yet", known < 0.5);
      });
    }
  }

  /** Adds the token that the target wants at each place of the accepted path. It moves down to the drafted token at this place. */
  function addWishes() {
    const path = step.accepted.map((id) => step.nodes.get(id));
    const wrong = [...tree.broken.keys()].find((id) => step.nodes.get(id).parent === step.bonus?.parent);
    const wishes = [...path, ...(step.bonus ? [step.bonus] : [])];
    // the pass that writes each token; the longest form that fits everywhere
    const fits = (name) => wishes.every(({ depth }, at) => tree.small(name(at)) < tree.columns.width(depth) - 2);
    const said = [(at) => `pass ${at + 1}`, (at) => String(at + 1), () => ""].find(fits);
    for (const [at, { id, depth }] of wishes.entries()) {
      const wish = tree.nodeGroup({ id, depth, proposer: "target", kind: "target", state: "wish", draft: null });
      wish.removeAttribute("data-node");
      over.append(wish);
      const pass = s("text.under.pass", { y: PILL / 2 + 15 }, said(at));
      wish.append(pass);
      const row = rows.get(0) - tree.y(id);
      const high = highest(id === BONUS ? (wrong ?? step.bonus.parent) : id) - tree.y(id);
      const least = PILL / 2 + 2 - tree.viewport.y / tree.viewport.k - tree.y(id); // keeps the wish in view
      acts.push((now) => {
        const { opacity, down } = now.wants(at);
        fade(wish, opacity);
        fade(pass, now.alone);
        move(wish, 0, now.alone ? row : Math.max(least, high - DROP * (1 - down)));
      });
    }
  }

  function moveStrip() {
    const all = (name, act) =>
      strip.svg.querySelectorAll(name).forEach((element, at) => acts.push((now) => act(element, now, at)));
    all(".column", (column, now) => {
      const { grown, known } = now.bar(Number(column.dataset.depth));
      for (const part of column.children) {
        if (part.matches(".bar")) put(part, "scale", grown === 1 ? "" : `1 ${grown.toFixed(3)}`);
        else fade(part, grown);
      }
      column.classList.toggle("yet", !known);
    });
    all(".posterior .closed", (closed, now) => fade(closed, now.posterior));
    all(".flag", (flag, now) => {
      const { dropped } = now.flag(Number(flag.dataset.nth));
      fade(flag, dropped);
      move(flag, 0, -18 * (1 - dropped));
      flag.classList.toggle("yet", !now.truth);
    });
    all(".truth", (truth, now) => fade(truth, now.truth));
    if (step.levels.length)
      all(".levels :is(circle, text)", (part, now) =>
        fade(part, now.node({ candidates: [], depth: Number(part.dataset.depth), id: null, parent: 0 }).opacity),
      );
  }

  /** Moves the tokens of the step into the text. */
  function moveText() {
    const { index, committed } = step;
    tokens = words.tokens[index] || [];
    flyers = [];
    let [ways, measured] = [[], null];
    tokens.forEach((token, i) => {
      acts.push((now) => {
        const there = now.landed(i);
        const flies = there > 0 && there < 1;
        if (flies && measured !== now) [ways, measured] = [measure(), now]; // once a frame
        const way = flies && ways[i];
        token.classList.toggle("coming", !!(flies ? way : there < 1));
        if (!way) return fade(flyers[i], 0);
        const [from, to] = way;
        if (!flyers[i])
          root.append(
            (flyers[i] = h(
              "span",
              { class: `tok shown flyer ${committed[i].proposer}`, ariaHidden: true },
              committed[i].text,
            )),
          );
        fade(flyers[i], 0.99);
        return move(flyers[i], from.x + there * (to.x - from.x), from.y + there * (to.y - from.y));
      });
    });
  }

  /** The start and end position of each flying token; null if one of them is out of view. */
  function measure() {
    const [frame, box, view] = [root, words.host, tree.host].map((element) => element.getBoundingClientRect());
    return tokens.map((token, i) => {
      const node = tree.world.querySelector(`[data-node="${step.committed[i].node ?? "bonus"}"]`);
      const [from, to] = [node, token].map((element) => element && element.getBoundingClientRect());
      if (
        !from ||
        !to.width ||
        to.top < box.top ||
        to.bottom > box.bottom ||
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

  return { uses: [...tree.uses, ...words.uses, "place"], show }; // after every new drawing of these
}
