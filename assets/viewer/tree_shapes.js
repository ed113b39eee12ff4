// The shapes of the tree. Who proposed a token is told by shape as well as colour: first drafter = box, second drafter = capsule,
// target = hexagon.

import { s } from "./dom.js";
import { CAPTION, NODE_FONT } from "./viewport.js";
import { visible } from "./words.js";

export const PILL = 32;

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

const nodeFont = (bold, { size, family }) => `${bold ? 600 : 400} ${size}px ${family}`;

/** What is left beside the words of a node: within its shape, in a hexagon, and between columns; the least width of a shape. */
export const PADDING = {
  wide: { node: 20, target: 28, gap: 14, least: 36 },
  close: { node: 12, target: 20, gap: 6, least: 28 },
  tight: { node: 8, target: 14, gap: 3, least: 16 },
};
export const BYTES = "·";
const MOST = 24; // letters
// Pieces of a character: nothing that can be read, or a byte of each as some tokenizers write them
const PIECE = /^$|^ ?\ufffd|^ ?[\u00c2-\u00f0][\u0122-\u0130\u0132-\u0141]/;

/** What a token is drawn as: the space that a word begins with is left out. */
const tokenWords = (value, most = MOST) => (PIECE.test(value) ? BYTES : visible(value.replace(/^ (?=\S)/, ""), most));

/** How wide every column has to be for the words of those nodes that are `drawn`, by depth. */
export function columnNeeds(step, font, padding, drawn) {
  const needs = new Map();
  const put = ({ depth, text }, bold, around) => {
    const width = Math.max(padding.least, measure(tokenWords(text), nodeFont(bold, font)) + around);
    needs.set(depth, Math.max(needs.get(depth) || 0, Math.ceil(width + padding.gap)));
  };
  for (const node of step.nodes.values()) if (drawn(node)) put(node, node.state === "accepted", padding.node);
  if (step.bonus) put(step.bonus, true, padding.target);
  return (depth) => needs.get(depth) || 0;
}

/** The longest beginning of a token that fits, its width and the size of its type: smaller rather than with fewer letters, if
 *  it may be. */
export function fitLabel(value, room, bold, family, smaller = false) {
  let [size, most] = [NODE_FONT, MOST];
  for (;;) {
    const words = tokenWords(value, most);
    const width = measure(words, nodeFont(bold, { size, family }));
    if (width <= room || most < 3) return { words, width, size };
    if (smaller && size > CAPTION) size = CAPTION;
    else most = Math.min(most, [...words].length) - 1;
  }
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
