// The shapes of the tree. Shape and colour both show the proposer of a token: first drafter = box, second drafter = capsule, target =
// hexagon.

import { s } from "./dom.js";
import { CAPTION, NODE_FONT } from "./viewport.js";
import { visible } from "./words.js";

export const PILL = 32;
const HATCH = 7; // pixels between the lines of `hatching`

export const measure = (() => {
  let context = null; // created on first use, so that the module can be imported without a document
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

/** Pixels beside the words of a box (`node`) and of a hexagon (`target`), and between columns (`gap`); `least`: width of a shape. */
export const PADDING = {
  wide: { node: 20, target: 28, gap: 14, least: 36 },
  close: { node: 12, target: 20, gap: 6, least: 28 },
  tight: { node: 8, target: 14, gap: 3, least: 16 },
};
export const BYTES = "·";
const MOST = 24; // letters
// tokens that are parts of a character: empty, the replacement character, or bytes in the alphabet of byte-level BPE
const PIECE = /^$|^ ?\ufffd|^ ?[\u00c2-\u00f0][\u0122-\u0130\u0132-\u0141]/;

/** The text drawn for a token, without the space before a word. */
const tokenWords = (value, most = MOST) => (PIECE.test(value) ? BYTES : visible(value.replace(/^ (?=\S)/, ""), most));

/** A function from depth to the column width that the words of its nodes need; `drawn(node)`: whether a node counts. */
export function columnNeeds(step, font, padding, drawn) {
  const needs = new Map();
  const put = ({ depth, text }, bold, around) => {
    const width = Math.max(padding.least, measure(tokenWords(text), nodeFont(bold, font)) + around);
    needs.set(depth, Math.max(needs.get(depth) || 0, Math.ceil(width + padding.gap)));
  };
  for (const node of [...step.nodes.values(), ...step.left])
    if (drawn(node)) put(node, node.state === "accepted", padding.node);
  if (step.bonus) put(step.bonus, true, padding.target);
  return (depth) => needs.get(depth) || 0;
}

/** Cuts a token to fit into `room` pixels; returns its words, their width and font size. `smaller`: whether to try smaller type before
 *  letters are cut. */
export function fitLabel(value, room, bold, family, smaller = false) {
  let [size, most] = [NODE_FONT, MOST];
  for (;;) {
    const words = tokenWords(value, most);
    const width = measure(words, nodeFont(bold, { size, family }));
    if (width <= room || most < 3) return { words, width, size };
    if (smaller && size > CAPTION) size = CAPTION;
    else most = Math.max(1, Math.min(most, [...words].length) - 1);
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
    return s("polygon.shape", { points: points.map((p) => p.join(",")).join(" ") });
  }
  return s("rect.shape", { x: -w, y: -r, width, height, rx: Math.min(w, kind === "second" ? r : height / 5) });
}

/** Diagonal lines over a box, which mark the user's own draft. */
export function hatching(width, height) {
  const [w, h] = [width - 4, height - 4];
  const lines = Array.from({ length: Math.ceil((w + h) / HATCH) }, (_, n) => {
    const at = n * HATCH - h; // where the line would meet the lower edge
    const [from, to] = [Math.max(0, at), Math.min(w, at + h)];
    return `M${from - w / 2} ${h / 2 - from + at}L${to - w / 2} ${h / 2 - to + at}`;
  });
  return s("path.hatch", { d: lines.join("") });
}

/** The path of an edge: straight within a lane, else a rounded elbow with its stem at `border`, between two columns. */
export function edgePath(x1, y1, x2, y2, border) {
  if (y1 === y2) return `M${x1} ${y1}H${x2}`;
  const turn = Math.min(7, Math.abs(y2 - y1) / 2, Math.max(1, border - x1), Math.max(1, x2 - border));
  const down = y2 > y1 ? turn : -turn;
  return (
    `M${x1} ${y1}H${border - turn}Q${border} ${y1} ${border} ${y1 + down}` +
    `V${y2 - down}Q${border} ${y2} ${border + turn} ${y2}H${x2}`
  );
}
