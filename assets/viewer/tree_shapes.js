// The shapes of the tree. Who proposed a token is told by shape as well as colour:
// first drafter = box, second drafter = capsule, target = hexagon.

import { s } from "./dom.js";
import { NODE_FONT } from "./viewport.js";
import { visible } from "./words.js";

export const PILL = 26;

export const measure = (() => {
  let context = null; // no document is needed to import this
  const widths = new Map();
  globalThis.document?.fonts.addEventListener("loadingdone", () => widths.clear());
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
  const put = (depth, words, bold, padding) =>
    needs.set(
      depth,
      Math.max(needs.get(depth) || 0, fitLabel(words, Infinity, nodeFont(bold, family)).width + padding + PADDING.slim),
    );
  for (const node of step.nodes.values())
    if (node.state === "accepted" || node.candidates.includes(0) || node.parent < 0 || node.id === selected)
      put(node.depth, node.text, node.state === "accepted", PADDING.node);
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

export function nodeShape(kind, width, height) {
  const [w, r] = [width / 2, height / 2];
  if (kind === "target") {
    const cut = Math.min(8, w / 2);
    const points = [
      [-w, 0],
      [-w + cut, -r],
      [w - cut, -r],
      [w, 0],
      [w - cut, r],
      [-w + cut, r],
    ];
    return s("polygon", { class: "shape", points: points.map((p) => p.join(",")).join(" ") });
  }
  return s("rect", {
    class: "shape",
    x: -w,
    y: -r,
    width,
    height,
    rx: Math.min(w, kind === "second" ? r : height / 5),
  });
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
  return s(
    "g",
    { class: "fold", transform: `translate(${x},${y})` },
    s("rect", { x: -width / 2, y: -7.5, width, height: 15, rx: 7.5 }),
    s("text", { y: 4 }, words),
  );
}

/** The ✕ on the corner of a rejected node. */
export function crossBadge(x, y) {
  return s(
    "g",
    { class: "badge", transform: `translate(${x},${y})` },
    s("circle", { r: 6 }),
    s("path", { d: "M-2.4-2.4L2.4 2.4M2.4-2.4L-2.4 2.4" }),
  );
}
