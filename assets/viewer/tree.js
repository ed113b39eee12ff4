// Draws the draft tree of the shown step. x is the position in the block; lanes come from tree_layout.js, labels and the distances of
// lanes from tree_labels.js.

import { BONUS, nodeOf, typedNodes } from "./step.js";
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
import { BYTES, PADDING, PILL, columnNeeds, edgePath, fitLabel, hatching, measure, nodeShape } from "./tree_shapes.js";
import { AIR, BELOW, BROKE_HEIGHT, clearOf, labelsOf, laneRows } from "./tree_labels.js";
import { nodeCard } from "./details.js";
import { draftOf } from "./stages.js";
import { button, clamp, s, sum } from "./dom.js";
import { CAPTION, MARGIN, NODE_FONT } from "./viewport.js";

const DOT = 8; // pixels: size of a token in a column without room for its word
const LEAST_CUT = 3; // characters of a cut word, with its dots; shorter ones say nothing
const STUB = 16; // pixels: length of the line at the cut of a branch
const PITCH = PILL + 8; // pixels between the rows of an opened branch
const LINGER = 200; // ms for which a branch stays open after the pointer has left

const yoursOf = ({ yours }) => (yours ? [...yours.nodes.values()] : []);

/** Three maps by node: its word, its font size, and the width of its shape. */
function nodeWords(step, columns, padding, family) {
  const [words, sizes, widths] = [new Map(), new Map(), new Map()];
  // `closer`: whether words may use the room around them: the columns are not made for them
  const put = (id, depth, value, bold, around, closer = false) => {
    const column = columns.width(depth);
    const spared = closer ? PADDING.tight.gap + PADDING.tight.node : padding.gap + around;
    const fitted = fitLabel(value, column - spared, bold, family, closer || columns.slim);
    const cut = fitted.words.endsWith("…") && !value.endsWith("…") && fitted.words.length <= LEAST_CUT;
    const blank = cut || column < WORDLESS || fitted.width + around > column - 1;
    words.set(id, blank ? "" : fitted.words);
    sizes.set(id, fitted.size);
    const least = fitted.words === BYTES ? 22 : padding.least;
    const width = Math.max(least, Math.ceil(fitted.width) + around);
    widths.set(id, blank ? Math.min(DOT, column - 1) : closer ? Math.min(width, column - PADDING.tight.gap) : width);
  };
  for (const node of [...step.nodes.values(), ...step.left, ...yoursOf(step)])
    put(node.id, node.depth, node.text, node.state === "accepted", padding.node, node.proposer === "yours");
  if (step.bonus) put(BONUS, step.bonus.depth, step.bonus.text, true, padding.target);
  return { words, sizes, widths };
}

const LEAD = { wide: 128, close: 124 }; // pixels: width of the first column, above the titles of the strip
export const NARROW = 640; // pixels: narrower views show all columns

/** Draws the tree of the shown step. `page`: the element for the svg, and the buttons for its size; `viewport`: its zoom and pan. */
export function treeView(page, state, tooltip, viewport) {
  const host = page.tree;
  let scene = {}; // as drawn
  let drawn = []; // what the drawn tree depends on
  let zoom = null;
  let step = null;
  let layout = null; // null until the step is drawn
  let [columns, rows] = [new Columns(1, 0, false, []), null]; // rows: y of the lanes, and the labels
  let words, sizes, widths; // by node
  let larger = 1; // scale
  let narrow, family, across, room; // pixels: width and height for the tree
  let broken, broke; // the important rejected tokens; x of the line where the first draft broke, in a list
  let branches; // by node that was not accepted: the node where its branch is cut
  let [opened, placed] = [new Map(), new Map()]; // opened branches; y of their nodes
  let pointed = null; // the branch under the pointer
  let leaving = 0; // timer that opens or closes it
  const title = "Draw branches that were not accepted in full (W)";
  const wholeSwitch = button("Whole branches", { id: "whole", class: "small", title }, () =>
    state.showWhole(!state.now.whole),
  );
  const world = s("g.world", {});
  const svg = s("svg", { role: "img", ariaLabel: "Draft tree", width: "100%", height: "100%" }, world);
  host.append(svg);
  const xOf = (depth) => columns.x(depth);
  const yOf = (id) => placed.get(id) ?? rows.y.get(layout.lanes.get(id)) ?? 0;
  const has = (id) => layout.lanes.has(id) || placed.has(id);
  /** Width of words in small type; 0 before a step is drawn. */
  const small = (text, bold = false) =>
    family ? Math.ceil(measure(text, `${bold ? 700 : 400} ${CAPTION}px ${family}`)) + 1 : 0;

  /** `secret`: whether the outcome of the step is hidden; then no branch is cut. `moving`: whether the animation opens the branches. */
  function show(now) {
    const { fresh, whole, secret, widened, present, node, yours, summary } = (scene = now);
    svg.ariaLabel = summary || "Draft tree";
    wholeSwitch.ariaPressed = whole;
    narrow = viewport.size.width < NARROW && !widened;
    const needed = [now.step, yours, fresh, whole || secret, widened, present, narrow ? node : null];
    const same = needed.every((value, at) => value === drawn[at]);
    if (!same) {
      step = yours ? { ...now.step, yours: { ...yours, nodes: typedNodes(yours) } } : now.step;
      drawStep(!whole && !secret);
    }
    if (!step || !viewport.size.width) return;
    if (!same || now.zoom !== zoom) viewport.place(extent(), now.zoom, widened);
    [drawn, zoom] = [needed, now.zoom];
    const { fit, widen } = page;
    fit.hidden = zoom?.block !== viewport.content.block;
    widen.hidden = !columns.slim && !widened;
    widen.textContent = widened ? "Narrow" : "Widen";
    widen.title = widened ? "Show the whole block" : "Make every token readable; swipe to move";
    place();
    mark();
  }

  function drawStep(cut) {
    layout = null;
    tooltip.hide();
    const { width, height } = viewport.size;
    if (!step) world.replaceChildren();
    if (!step || !width) return;
    ({ larger } = scene);
    across = (width - MARGIN.left - MARGIN.right) / larger;
    room = (height - MARGIN.top - MARGIN.bottom) / larger;
    family ??= getComputedStyle(host).fontFamily; // once, because reading it forces a layout
    const main = chainsOf(step, cut);
    // a presented step is played, so the branches that end up cut must be readable too
    const shown = new Set(scene.present && !narrow ? step.nodes.keys() : nodesOf(main).map(({ id }) => id));
    let chosen = null; // a token that must be readable
    const needs = (padding, size, also) =>
      columnNeeds(step, { size, family }, padding, ({ id }) => also || shown.has(id) || id === chosen);
    const all = needs(PADDING.wide, NODE_FONT, true);
    const wide = sum([...Array(step.columns).keys()].map(all)) + LEAD.wide - all(0) <= across;
    const padding = narrow ? PADDING.tight : wide ? PADDING.wide : PADDING.close;
    const layOut = () => {
      columns = new Columns(
        step.columns,
        across,
        narrow || scene.present,
        columnsThatMatter(step, chosen),
        needs(padding, narrow ? CAPTION : NODE_FONT, false),
        needs(padding, NODE_FONT, !narrow),
        wide ? LEAD.wide : LEAD.close,
      );
      ({ words, sizes, widths } = nodeWords(step, columns, padding, family));
    };
    layOut();
    if (narrow && step.nodes.has(scene.node) && !words.get(scene.node)) {
      chosen = scene.node;
      layOut();
    }
    [broken, placed, opened, pointed] = [brokenTokens(step), new Map(), new Map(), null];
    broke = !step.draft || step.boundary === null || step.boundary >= step.drafted ? [] : [xOf(step.boundary + 0.5)];
    layout = layoutTree(
      main,
      (some) => rowsOf(some).bottom - rowsOf(some).top <= room,
      (more) => columns.depth(moreX(more.at) + small(moreWords(more)) + AIR) - 0.5,
      yoursOf(step),
    );
    branches = new Map();
    for (const { at, chain } of layout.more.values())
      for (const { id } of nodesOf(chain)) if (step.nodes.get(id).state !== "accepted" && id) branches.set(id, at);
    rows = rowsOf(layout, room);
    draw();
  }

  /** y of every node except the bonus token, with as many whole branches as fit into view; null if nothing is hidden. */
  function wholePlaces() {
    if (!layout.more.size) return null;
    const [name, { k, y: at, size }] = [BELOW[1] - BELOW[0], viewport];
    const pitch = ({ low, high }) => (room - name) / (high - low + 1);
    const main = chainsOf({ ...step, bonus: null }, false);
    const whole = layoutTree(main, (all) => pitch(all) >= PILL + 3);
    const row = Math.min(PITCH + 8, pitch(whole));
    const least = (MARGIN.top - at) / k + PILL / 2 + name - row * whole.low;
    const most = (size.height - MARGIN.bottom - at) / k - PILL / 2 - row * whole.high;
    const first = clamp(0, least, most);
    return new Map([...whole.lanes].map(([id, lane]) => [id, first + row * lane]));
  }

  function draw() {
    const [edges, strong] = ["edges", "edges strong"].map((name) => s("g", { class: name }));
    const [nodes, labels] = ["nodes", "labels"].map((name) => s("g", { class: name }));
    const shown = [...yoursOf(step), ...step.nodes.values()].filter((node) => layout.lanes.has(node.id));
    for (const node of shown) nodes.append(drawNode(node));
    for (const node of shown) if (node.depth) (node.state === "accepted" ? strong : edges).append(drawEdge(node));
    if (layout.lanes.has(BONUS)) {
      const draft = draftOf(step.nodes.get(step.bonus.parent));
      nodes.append(nodeGroup({ ...step.bonus, kind: "target", draft }));
      strong.append(drawEdge(step.bonus));
    }
    const groups = new Map([...nodes.children].map((group) => [idOf(group), group]));
    for (const { of, ...label } of rows.labels)
      if (of === undefined) labels.append(drawLabel(label));
      else groups.get(of).append(drawLabel({ ...label, x: label.x - xOf(nodeOf(step, of).depth), y: 0 }));
    world.replaceChildren(drawBoundary(), edges, strong, labels, nodes);
  }

  function drawLabel({
    lane,
    x,
    y = lane === null ? rows.top : rows.y.get(lane),
    down,
    kind,
    first,
    at,
    stub,
    chip,
    ...label
  }) {
    const named = first && { "data-draft": draftOf(first), "data-at": first.id };
    const text = s("text", { class: kind, x, y: y + down, ...named }, ...label.words);
    if (chip) {
      const box = { x: x + label.width - small(chip), y: y + down - 14, width: small(chip), height: 18, rx: 3 };
      return s("g.ghost", {}, s("rect", box), text);
    }
    if (!stub) return text;
    const area = s("rect", { x: x - stubWidth(), y: y + down - 20, width: label.width + stubWidth(), height: 30 });
    return s("g.more", { "data-branch": at }, s("path.edge", { d: stub(y) }), area, text);
  }

  const stubWidth = () => (narrow ? 6 : STUB);

  /** x of the words “+ n more” after the last node of a cut branch. */
  function moreX(at) {
    const right = xOf(step.nodes.get(at).depth) + widths.get(at) / 2;
    const x = right + stubWidth() + AIR;
    return clearOf(broke, x, 80, [right, Infinity]) ?? x;
  }

  function moreWords({ at, count, branches: several }) {
    const said = [`+ ${count} more`, `+${count}`];
    if (several > 1) said.unshift(`+ ${count} more in ${several} branches`);
    const free = xOf(columns.widths.length - 0.5) - moreX(at);
    return said.find((text) => small(text) < free) ?? said.at(-1);
  }

  /** y of the lanes, the labels, and the extent of all this. */
  function rowsOf(some, height = 0) {
    if (some.rows && !height) return some.rows;
    const { items, labels } = labelsOf({ step, columns, widths, small, broke, across, moreX, moreWords, broken }, some);
    const head = BROKE_HEIGHT * broke.length;
    const lanes = laneRows(some, items, height - head);
    const right = Math.max(...items.map((item) => item.right));
    some.rows = { ...lanes, top: lanes.top - head, right, labels };
    return some.rows;
  }

  function extent() {
    const ids = [0, ...yoursOf(step).map(({ id }) => id), ...step.accepted, BONUS].filter((id) => layout.lanes.has(id));
    const ys = ids.map(yOf);
    const deepest = step.bonus ? step.bonus.depth : Math.max(0, ...step.accepted.map((id) => step.nodes.get(id).depth));
    const left = xOf(-0.5);
    return {
      left,
      right: Math.max(xOf(step.columns - 0.5), rows.right + 4),
      top: rows.top,
      bottom: rows.bottom,
      focus: {
        left,
        right: xOf(deepest + 0.5) + 8,
        turn: xOf((step.boundary ?? deepest) + 0.5),
        top: Math.min(...ys) - 27,
        bottom: Math.max(...ys) + 27,
      },
      block: step.drafted || step.columns,
      larger,
    };
  }

  function drawNode(node) {
    const kind = node.state === "root" ? "anchor" : node.proposer;
    const w = widths.get(node.id);
    return nodeGroup(
      { ...node, kind, draft: draftOf(node) },
      kind === "anchor"
        ? s("rect.inner", { x: -w / 2 + 2.5, y: -PILL / 2 + 2.5, width: w - 5, height: PILL - 5, rx: 4 })
        : null,
    );
  }

  /** A node's shape and word at its place, with further `parts`. */
  function nodeGroup({ id, depth, proposer, kind, state: fate, draft }, ...parts) {
    const text = words.get(id);
    return s(
      "g",
      {
        class: `node ${kind} ${fate}${broken.has(id) ? " broken" : ""}${text === BYTES ? " bytes" : ""}`,
        transform: `translate(${xOf(depth)},${yOf(id)})`,
        "data-node": id,
        "data-state": fate,
        "data-depth": depth,
        "data-proposer": proposer,
        "data-draft": draft,
        "data-branch": branches.get(id),
      },
      nodeShape(kind, widths.get(id), text ? PILL : DOT),
      kind === "yours" && hatching(widths.get(id), text ? PILL : DOT),
      s("text", { class: `label${sizes.get(id) === CAPTION ? " low" : ""}`, y: 5.5 }, text),
      ...parts,
    );
  }

  /** The line to a node from its parent; `y(id)`: y of a node. */
  function drawEdge(node, y = yOf) {
    const { id, parent, depth, proposer } = node;
    const from = nodeOf(step, parent);
    const x1 = xOf(from.depth) + widths.get(parent) / 2;
    const x2 = xOf(depth) - widths.get(id) / 2;
    return s("path", {
      class: `edge ${proposer}`,
      "data-draft": draftOf(id === BONUS ? from : node),
      "data-of": id,
      "data-branch": branches.get(id),
      "data-depth": depth,
      d: edgePath(x1, y(parent), x2, y(id), xOf(depth - 0.5)),
    });
  }

  /** The line after the last token of the first draft that the target accepted; the strip continues this line. */
  function drawBoundary() {
    const [x] = broke;
    if (x === undefined) return s("g");
    return s("line.boundary", { x1: x, x2: x, y1: rows.top + BROKE_HEIGHT - 1, y2: 4000 });
  }

  function place() {
    const { k, x, y } = viewport;
    world.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)}) scale(${k.toFixed(4)})`);
  }

  /** Opens the branches that are hovered, tapped or hold the selected node, and closes all others. */
  function showOpen() {
    const asked = scene.moving ? [] : [branches.get(scene.node), scene.held, pointed];
    const wanted = [...new Set(asked)].filter((at) => layout.more.has(at));
    if (String(wanted) !== String([...opened.keys()])) {
      for (const group of opened.values()) group.remove();
      for (const places of [opened, placed]) places.clear();
      wanted.forEach(drawOpen);
    }
    world.classList.toggle("opened", opened.size > 0);
    for (const part of world.querySelectorAll("[data-branch]"))
      part.classList.toggle("open", opened.has(Number(part.dataset.branch)));
  }

  /** Draws a whole branch over everything else, so that nothing moves. It grows away from the first draft if there is room. */
  function drawOpen(at) {
    const lanes = lanesOfMore(layout.more.get(at));
    const base = yOf(at);
    const high = PITCH * Math.max(...lanes.values());
    const { k, y } = viewport.fitted; // so that the side does not depend on zoom and pan
    const free = { 1: viewport.size.height - y - base * k, "-1": y + base * k };
    const away = layout.lanes.get(at) < 0 ? -1 : 1;
    const side = free[away] < high * k + PILL && free[-away] > free[away] ? -away : away;
    const hidden = [...lanes.keys()].filter((id) => !layout.lanes.has(id)).map((id) => step.nodes.get(id));
    const under = side > 0 && [...lanes.keys()].some((id) => broken.get(id)) ? BELOW[1] - BELOW[0] : 0; // room for “instead …”
    const spans = new Map(); // by y: the first and the last depth
    for (const { id, depth } of hidden) {
      const lane = lanes.get(id);
      placed.set(id, base + (lane ? side * PITCH * lane + under : 0));
      const [from, to] = spans.get(yOf(id)) ?? [depth, depth];
      spans.set(yOf(id), [Math.min(from, depth), Math.max(to, depth)]);
    }
    const ground = [...spans].map(([middle, [from, to]]) => {
      const x = xOf(from - 0.5);
      return s("rect.ground", { x, y: middle - PITCH / 2, width: xOf(to + 0.5) - x, height: PITCH });
    });
    const [edges, nodes] = [hidden.map((node) => drawEdge(node)), hidden.map((node) => drawNode(node))];
    const group = s("g.whole", { "data-branch": at }, ...ground, ...edges, ...nodes);
    opened.set(at, group);
    world.append(group);
  }

  /** Marks the selected node and opens its branch. */
  function mark() {
    const { node } = scene;
    if (!step || !layout) return;
    showOpen();
    for (const group of world.querySelectorAll("g.node")) {
      const chosen = node !== null && idOf(group) === node;
      group.classList.toggle("selected", chosen);
      const ring = group.querySelector(".ring");
      if (ring && !chosen) ring.remove();
      const w = widths.get(node);
      if (chosen && !ring)
        group.prepend(s("rect.ring", { x: -w / 2 - 4, y: -PILL / 2 - 4, width: w + 8, height: PILL + 8, rx: 10 }));
    }
  }

  function idOf(group) {
    const { node } = group.dataset;
    return step.nodes.has(Number(node)) ? Number(node) : node;
  }

  function neighbour(node, direction) {
    if (!layout) return null;
    const lanes = new Map(layout.lanes);
    for (const at of opened.keys())
      for (const [id, lane] of lanesOfMore(layout.more.get(at)))
        if (placed.has(id)) lanes.set(id, lanes.get(at) + (Math.sign(placed.get(id) - yOf(at)) * lane) / 99);
    return nextNode(step, lanes, node, direction);
  }

  function reveal(node) {
    const target = nodeOf(step, node);
    if (target && layout && has(node) && !scene.present) viewport.reveal(xOf(target.depth), yOf(node));
  }

  function point(at) {
    clearTimeout(leaving);
    if (at !== pointed) leaving = setTimeout(() => ((pointed = at), mark()), at === null ? LINGER : 0);
  }

  svg.addEventListener("pointermove", (event) => {
    const group = event.target.closest?.("g.node");
    if (event.pointerType === "touch" || viewport.dragged || !step) return tooltip.hide();
    const at = event.target.closest("[data-branch]")?.dataset.branch;
    point(at === undefined ? null : Number(at));
    if (!group || scene.secret || idOf(group) === scene.node) return tooltip.hide(); // the details show the selected node
    return tooltip.show(nodeCard(step, idOf(group)), event);
  });
  svg.addEventListener("pointerleave", () => (point(null), tooltip.hide()));
  svg.addEventListener("click", (event) => {
    if (!step || viewport.dragged) return;
    const group = event.target.closest("g.node");
    if (!group) {
      const at = Number(event.target.closest("g.more")?.dataset.branch ?? NaN);
      return state.set({ held: at === scene.held || Number.isNaN(at) ? null : at });
    }
    if (tree.answered(Number(group.dataset.depth))) return;
    const id = idOf(group);
    tooltip.hide(); // the details show the selected node
    state.pin(step.index, step.yours?.nodes.has(id) ? null : id);
  });

  const tree = {
    uses: ["step", "yours", "fresh", "whole", "secret", "widened", "present", "zoom", "node", "held", "moving"],
    show,
    host,
    viewport,
    world,
    wholeSwitch,
    x: xOf,
    y: yOf,
    has,
    small,
    extent,
    place,
    wholePlaces,
    drawEdge,
    nodeGroup,
    idOf,
    neighbour,
    reveal,
    answered: () => false, // whether a click at a depth was an answer in the quiz
    get step() {
      return step;
    },
    get layout() {
      return layout;
    },
    get columns() {
      return columns;
    },
    get broken() {
      return broken;
    },
    get larger() {
      return larger;
    },
  };
  return tree;
}
