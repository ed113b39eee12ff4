// The shapes of the tree. Who proposed a token is told by shape as well as colour:
// first drafter = box, second drafter = capsule, target = hexagon.

import { SETTINGS } from "./constants.js";
import { h, list, s, text } from "./dom.js";
import { NODE_FONT } from "./viewport.js";
import { methodName, visible } from "./words.js";

export const PILL = 24;

export const measure = (() => {
  let context = null; // no document is needed to import this
  const widths = new Map();
  return (words, font) => {
    const key = font + words;
    if (!widths.has(key)) {
      if (widths.size > 20000) widths.clear();
      context ??= document.createElement("canvas").getContext("2d");
      context.font = font;
      widths.set(key, context.measureText(words).width);
    }
    return widths.get(key);
  };
})();

export const nodeFont = (bold, family) => `${bold ? 600 : 400} ${NODE_FONT}px ${family}`;

/** What is left beside the words of a node, within it and between columns. */
export const PADDING = { node: 11, target: 20, slim: 6 };

/** How wide a column has to be for the word that the path has there, for what the first draft wrote, and for a selected node. */
export function columnNeeds(step, family, selected) {
  const needs = new Map();
  const put = (depth, words, bold, padding) => needs.set(depth, Math.max(needs.get(depth) || 0, fitLabel(words, Infinity, nodeFont(bold, family)).width + padding + PADDING.slim));
  for (const node of step.nodes.values()) if (node.state === "accepted" || node.candidates.includes(0) || node.parent < 0 || node.id === selected) put(node.depth, node.text, node.state === "accepted", PADDING.node);
  if (step.bonus) put(step.bonus.depth, step.bonus.text, true, PADDING.target);
  return (depth) => Math.ceil(needs.get(depth) || 0);
}

/** The longest beginning of a token that fits, and its width. */
export function fitLabel(value, room, font) {
  let words = visible(value, 16);
  let width = measure(words, font);
  for (let most = 15; width > room && most > 2; most -= 1) {
    words = visible(value, most);
    width = measure(words, font);
  }
  return { words, width };
}

export function nodeShape(kind, width) {
  const [w, r] = [width / 2, PILL / 2];
  if (kind === "target") {
    const cut = Math.min(8, w / 2);
    const points = [[-w, 0], [-w + cut, -r], [w - cut, -r], [w, 0], [w - cut, r], [-w + cut, r]];
    return s("polygon", { class: "shape", points: points.map((p) => p.join(",")).join(" ") });
  }
  return s("rect", { class: "shape", x: -w, y: -r, width, height: PILL, rx: Math.min(w, kind === "second" ? r : 5) });
}

/** An edge: straight within a lane, otherwise a rounded elbow whose stem stands on the border between two positions. */
export function edgePath(x1, y1, x2, y2, border) {
  if (y1 === y2) return `M${x1} ${y1}H${x2}`;
  const turn = Math.min(7, Math.abs(y2 - y1) / 2, Math.max(1, border - x1), Math.max(1, x2 - border));
  const down = y2 > y1 ? turn : -turn;
  return (
    `M${x1} ${y1}H${border - turn}Q${border} ${y1} ${border} ${y1 + down}` +
    `V${y2 - down}Q${border} ${y2} ${border + turn} ${y2}H${x2}`
  );
}

/** How many nodes below this one are folded away. */
export function foldBadge(x, y, count) {
  const words = "+" + count;
  const width = 8 + 7.5 * words.length;
  return s("g", { class: "fold", transform: `translate(${x},${y})` }, s("rect", { x: -width / 2, y: -7.5, width, height: 15, rx: 7.5 }), s("text", { y: 4 }, words));
}

/** The ✕ on the corner of a rejected node. */
export function crossBadge(x, y) {
  return s("g", { class: "badge", transform: `translate(${x},${y})` }, s("circle", { r: 6 }), s("path", { d: "M-2.4-2.4L2.4 2.4M2.4-2.4L-2.4 2.4" }));
}

// What shapes, lines and colours mean, in the drawing and under the bars of the timeline.

const PREDICTED = "predicted boundary: 1 likeliest";

export function legend() {
  const icon = (...parts) => s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }, ...parts);
  const box = (rx) => s("rect", { class: "shape", x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, picture, line) => h("li", { class: kind }, picture, h("span", { class: line ? `under ${line}` : null }, words));
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    item("first drafter", "first", icon(box(3)), "tok first"),
    item("second drafter", "second", icon(box(6)), "tok second"),
    item("target", "target", icon(s("polygon", { class: "shape", points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" })), "tok target"),
    item("accepted: filled", "accepted", icon(s("path", { class: "thick", d: "M-13 0H13" }), s("rect", { class: "shape one", x: -10, y: -5, width: 9, height: 10, rx: 2 }), s("rect", { class: "shape two", x: 1, y: -5, width: 9, height: 10, rx: 5 }))),
    item("rejected", "rejected", icon(box(3), s("g", { transform: "translate(9,-4)" }, s("circle", { r: 4.5 }), s("path", { d: "M-2-2L2 2M2-2L-2 2" })))),
    item("not reached", "unreached", icon(box(3))),
    item(PREDICTED, "flagged", icon(s("path", { d: "M-5 8V-7H8L5-2.5L8 2H-5" }))),
    item("re-draft wrote it too", "twinned", icon(s("rect", { class: "shape", x: -10, y: -7, width: 20, height: 11, rx: 3 }), s("path", { class: "twin", d: "M-10 7H10" }))),
    item("true boundary", "truth", icon(s("path", { d: "M0-8V8" }))),
    item("what its confidence head says", "headed", icon(s("path", { class: "trained", d: "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z" }))),
    h("li", { class: "space" }, h("b", {}, "␣"), "a space"),
    h("li", { class: "space unlogged" }, h("b", {}, "▯"), "a token that is not in this log"),
  );
}

const USUAL = { top_p: 1, seed: 0 }; // values that say nothing

/** What was run, in a few words: method, models and the settings that are not as they always are. */
export function runWords({ header, recorded, own: ours, seen, length }) {
  const config = header.config && typeof header.config === "object" ? header.config : {};
  const means = { block_size: seen.draft || !length, second_block_size: config.second_block_size !== config.block_size, num_branches: seen.branches, draft_depth: seen.levels, draft_top_k: seen.levels };
  const shown = SETTINGS.filter(([, name]) => typeof config[name] === "number" && config[name] !== USUAL[name] && means[name] !== false);
  const models = header.models && typeof header.models === "object" ? header.models : {};
  const [model, drafter] = [models.preset, models.first_drafter].map((name) => text(name) && visible(name, 60));
  const own = !drafter || !seen.draft || drafter.startsWith(`${model}/`);
  const who = [`${methodName(text(header.method) || "run")}${model && ` on ${model}`}`, own ? "" : `drafter ${drafter}`];
  const block = (name) => (name === "block_size" && config[name] > 1 ? ` (anchor + ${config[name] - 1})` : "");
  const words = [...who, ...shown.map(([symbol, name]) => `${symbol} ${config[name]}${block(name)}`), config.cost_aware === true ? "cost-aware" : "", config.chat === true ? "chat" : ""];
  return (recorded && !ours ? "recorded: " : "") + words.filter(Boolean).join(" · ");
}

/** Says what was run, and takes away what this kind of run never fills: its marks would only be puzzling. */
export class RunView {
  constructor(root, label) {
    Object.assign(this, { root, label });
  }

  show(store) {
    this.label.textContent = this.label.title = runWords(store);
    const yes = (flag) => (flag || !store.length ? "yes" : "no");
    Object.assign(this.root.dataset, { drafts: yes(store.seen.draft || store.seen.levels), redrafts: yes(store.seen.second), predicts: yes(store.seen.selected), headed: store.seen.head ? "yes" : "no", levels: yes(store.seen.levels), unlogged: ["tokens", "target"].some((part) => list(store.header.missing).includes(part)) ? "yes" : "no" });
    const first = this.root.querySelector(".legend .first span");
    if (first.textContent !== store.names.first) first.textContent = store.names.first;
    const flag = this.root.querySelector(".legend .flagged span");
    const name = store.manner.random ? "re-draft, drawn at random" : PREDICTED;
    if (flag.textContent !== name) flag.textContent = name;
  }
}
