// The shown step as a picture of its own: tree and strip at their full extent, with the colours of the page written in.

import { h, s, SVG } from "./dom.js";
import { stepSentence } from "./explain.js";
import { BANDS } from "./strip.js";
import { measure } from "./tree_shapes.js";
import { plain } from "./words.js";

const KEPT_STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "paint-order",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
];
const PLAIN_STYLES = {
  "stroke-dasharray": "none",
  "stroke-linecap": "butt",
  "stroke-linejoin": "miter",
  "paint-order": "normal",
  opacity: "1",
  "text-anchor": "start",
};
const PICTURE = { pad: 12, title: 34, line: 18, font: 14, slack: 0.93 }; // slack: other programs may draw with a wider font

/** Any CSS colour as #rrggbb (or none): other programs do not know the newer ways of writing one. */
const hex = (() => {
  let pen = null; // no document is needed to import this
  const known = new Map();
  return (colour) => {
    if (!known.has(colour)) {
      pen ??= h("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = "rgba(0,0,0,0)";
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, a ? "#" + [r, g, b].map((c) => c.toString(16).padStart(2, "0")).join("") : "none");
    }
    return known.get(colour);
  };
})();

/** A copy of an element whose computed style stands in its attributes. */
function inlined(element) {
  const copy = element.cloneNode(false);
  if (!(element instanceof SVGElement)) return copy;
  for (const name of [...copy.getAttributeNames()])
    if (name === "class" || name.startsWith("data-") || name.startsWith("aria-")) copy.removeAttribute(name);
  const style = getComputedStyle(element);
  const shape = element.matches("text, tspan, path, rect, circle, line, polyline, polygon");
  for (const name of shape ? KEPT_STYLES : ["opacity"]) {
    const value = style.getPropertyValue(name);
    if (!value || value === PLAIN_STYLES[name] || (name.startsWith("font") && !element.matches("text, tspan")))
      continue;
    copy.setAttribute(name, name === "fill" || name === "stroke" ? (value === "none" ? "none" : hex(value)) : value);
  }
  for (const child of element.childNodes)
    copy.append(child.nodeType === Node.ELEMENT_NODE ? inlined(child) : child.cloneNode());
  return copy;
}

/** A sentence as lines that fit; a word that fits in no line is cut between characters. */
export function wrapped(words, room, font) {
  const fits = (line) => measure(line.trimEnd(), font) <= room;
  const pieces = words.split(/(?<= )/).flatMap((word) => (fits(word) ? [word] : [...word]));
  return pieces.reduce(([...lines], piece) => {
    const line = (lines.pop() || "") + piece;
    return fits(line) || line === piece ? [...lines, line] : [...lines, line.slice(0, -piece.length), piece];
  }, []);
}

export class PictureMaker {
  constructor({ tree, strip, viewport, colours }) {
    Object.assign(this, { tree, strip, viewport, colours });
  }

  /** How large the picture is, and the lines of its title. */
  size() {
    const { tree } = this;
    const { left, right, top, bottom } = tree.extent();
    const width = Math.max(500, Math.ceil(right - left) + 2 * PICTURE.pad);
    const words = `Step ${tree.step.index + 1}: ${plain(stepSentence(tree.step))}`;
    const title = wrapped(
      words,
      (width - 2 * PICTURE.pad) * PICTURE.slack,
      `${PICTURE.font}px ${getComputedStyle(this.colours).fontFamily}`,
    );
    const head = PICTURE.title + (title.length - 1) * PICTURE.line;
    const legend = this.legend(width);
    const foot = legend.length ? (legend[legend.length - 1].row + 1) * PICTURE.line + 6 : 0;
    return {
      width,
      height: Math.ceil(bottom - top) + head + BANDS.wide.height + foot + 2 * PICTURE.pad,
      head,
      title,
      legend,
      foot,
    };
  }

  /** What shapes and lines mean, as it stands under the drawing: where each item goes. */
  legend(width) {
    const font = `12px ${getComputedStyle(this.colours).fontFamily}`;
    let [x, row] = [PICTURE.pad, 0];
    return [...this.colours.querySelectorAll(".legend li")]
      .filter((item) => getComputedStyle(item).display !== "none" && item.querySelector("svg"))
      .map((item) => {
        const words = item.textContent;
        const room = 32 + measure(words, font) / PICTURE.slack + 16;
        if (x + room > width && x > PICTURE.pad) [x, row] = [PICTURE.pad, row + 1];
        const at = { item, words, x, row };
        x += room;
        return at;
      });
  }

  legendItem({ item, words, x, row }, top, style, colour) {
    const y = top + 6 + row * PICTURE.line;
    const shapes = [...item.querySelector("svg").children].map(inlined);
    return s(
      "g",
      { transform: `translate(${x},${y})` },
      s("g", { transform: "translate(13,8)" }, ...shapes),
      s("text", { x: 32, y: 12, "font-family": style.fontFamily, "font-size": 12, fill: colour("--muted") }, words),
    );
  }

  /** The picture as the text of an SVG file. */
  svg() {
    const { viewport, tree, strip } = this;
    const { width, height, head, title, legend, foot } = this.size();
    const { left, top, bottom } = tree.extent();
    const before = { k: viewport.k, x: viewport.x, y: viewport.y, size: viewport.size };
    const shift = { x: PICTURE.pad - left, y: PICTURE.pad + head - top };
    try {
      Object.assign(viewport, { k: 1, ...shift, size: { width, height } });
      viewport.moved();
      const style = getComputedStyle(this.colours);
      const colour = (name) => hex(style.getPropertyValue(name).trim());
      const world = inlined(tree.world);
      for (const line of world.querySelectorAll("line")) {
        if (line.getAttribute("y2") >= 4000) line.setAttribute("y2", bottom + PICTURE.pad);
      }
      const rows = s(
        "g",
        { transform: `translate(0,${height - foot - BANDS.wide.height})` },
        ...[...strip.svg.children].map(inlined),
      );
      for (const element of rows.querySelectorAll("[x2='100%']")) element.setAttribute("x2", width);
      const lines = title.map((line, at) => s("tspan", { x: PICTURE.pad, y: 22 + at * PICTURE.line }, line));
      const sentence = s(
        "text",
        { "font-family": style.fontFamily, "font-size": PICTURE.font, fill: colour("--ink") },
        ...lines,
      );
      const picture = s(
        "svg",
        { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` },
        s("rect", { width, height, fill: colour("--panel") }),
        sentence,
        world,
        rows,
        ...legend.map((entry) => this.legendItem(entry, height - foot, style, colour)),
      );
      return new XMLSerializer().serializeToString(picture);
    } finally {
      Object.assign(viewport, before);
      viewport.moved();
    }
  }
}
