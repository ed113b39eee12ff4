// Exports the shown step as a picture: the whole tree and strip, with the page's colours as attributes.

import { h, s, SVG } from "./dom.js";
import { stepStory } from "./explain.js";
import { BANDS } from "./strip.js";
import { measure } from "./tree_shapes.js";
import { plain } from "./words.js";

// the styles that are written as attributes, with the values that are left out
const STYLES = {
  fill: "",
  stroke: "",
  "stroke-width": "",
  "stroke-dasharray": "none",
  "stroke-linecap": "butt",
  "stroke-linejoin": "miter",
  "paint-order": "normal",
  opacity: "1",
  "font-family": "",
  "font-size": "",
  "font-weight": "",
  "text-anchor": "start",
};
const PICTURE = { pad: 12, title: 42, line: 22, font: 16, slack: 0.93 }; // slack: room for programs that draw with a wider font

/** Any CSS colour as #rrggbb or "none": other programs do not read the newer notations. */
const hex = (() => {
  let pen = null; // created on first use, so that the module can be imported without a document
  const converted = new Map();
  return (colour) => {
    if (!converted.has(colour)) {
      pen ??= h("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = "rgba(0,0,0,0)";
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      converted.set(colour, a ? "#" + [r, g, b].map((c) => c.toString(16).padStart(2, "0")).join("") : "none");
    }
    return converted.get(colour);
  };
})();

/** A copy of an element with its computed style as attributes. */
function inlined(element) {
  const copy = element.cloneNode(false);
  if (!(element instanceof SVGElement)) return copy;
  for (const name of [...copy.getAttributeNames()])
    if (name === "class" || name.startsWith("data-") || name.startsWith("aria-")) copy.removeAttribute(name);
  const style = getComputedStyle(element);
  if (style.display === "none") return s("g");
  const shape = element.matches("text, tspan, path, rect, circle, line, polyline, polygon");
  for (const name of shape ? Object.keys(STYLES) : ["opacity"]) {
    const value = style.getPropertyValue(name);
    if (!value || value === STYLES[name] || (name.startsWith("font") && !element.matches("text, tspan"))) continue;
    copy.setAttribute(name, ["fill", "stroke"].includes(name) && value !== "none" ? hex(value) : value);
  }
  for (const child of element.childNodes)
    copy.append(child.nodeType === Node.ELEMENT_NODE ? inlined(child) : child.cloneNode());
  return copy;
}

/** Breaks a sentence into lines of at most `room` pixels; a word longer than a line is cut between characters. */
export function wrapped(words, room, font) {
  const fits = (line) => measure(line.trimEnd(), font) <= room;
  const pieces = words.split(/(?<= )/).flatMap((word) => (fits(word) ? [word] : [...word]));
  return pieces.reduce(([...lines], piece) => {
    const line = (lines.pop() || "") + piece;
    return fits(line) || line === piece ? [...lines, line] : [...lines, line.slice(0, -piece.length), piece];
  }, []);
}

/** Splits coloured pieces of text at the ends of `lines`; returns a list of pieces for every line. */
export function onLines(pieces, lines) {
  const left = pieces.map((piece) => ({ ...piece }));
  return lines.map((line) => {
    const parts = [];
    for (let room = line.length; room && left.length;) {
      const text = left[0].text.slice(0, room);
      parts.push({ ...left[0], text });
      room -= text.length;
      left[0].text = left[0].text.slice(text.length);
      if (!left[0].text) left.shift();
    }
    return parts;
  });
}

/** Makes pictures of the drawn step; `colours`: an element with the page's colours. */
export function pictureMaker({ tree, strip, viewport, colours }) {
  /** Size of the picture, height of its head, and its texts. */
  function measured() {
    const { left, right, top, bottom } = tree.extent();
    const width = Math.max(500, Math.ceil(right - left) + 2 * PICTURE.pad);
    const { title, pieces: story, read } = stepStory(tree.step);
    const pieces = read ? [...story, { text: ` ${read}.` }] : story;
    const font = `${PICTURE.font}px ${getComputedStyle(colours).fontFamily}`;
    const lines = onLines(pieces, wrapped(plain(pieces), (width - 2 * PICTURE.pad) * PICTURE.slack, font));
    const head = PICTURE.title + lines.length * PICTURE.line;
    return { width, height: Math.ceil(bottom - top) + head + BANDS.wide.height + 2 * PICTURE.pad, head, title, lines };
  }

  /** The picture as the text of an SVG file. */
  function svg() {
    const { width, height, head, title, lines } = measured();
    const { left, top, bottom } = tree.extent();
    const { k, x, y, size } = viewport;
    const shift = { x: PICTURE.pad - left, y: PICTURE.pad + head - top };
    try {
      Object.assign(viewport, { k: 1, ...shift, size: { width, height } });
      for (const part of [tree, strip]) part.place();
      const style = getComputedStyle(colours);
      const colour = (name) => hex(style.getPropertyValue(name).trim());
      const world = inlined(tree.world);
      for (const line of world.querySelectorAll("line")) {
        if (line.getAttribute("y2") >= 4000) line.setAttribute("y2", bottom + PICTURE.pad);
      }
      const rows = s(
        "g",
        { transform: `translate(0,${height - BANDS.wide.height})` },
        ...[...strip.svg.children].map(inlined),
      );
      for (const element of rows.querySelectorAll("[x2='100%']")) element.setAttribute("x2", width);
      const written = { "font-family": style.fontFamily, x: PICTURE.pad };
      const sentence = [
        s("text", { ...written, y: 28, "font-size": 19, "font-weight": 600, fill: colour("--ink") }, title),
        ...lines.map((line, at) =>
          s(
            "text",
            { ...written, y: 52 + at * PICTURE.line, "font-size": PICTURE.font, fill: colour("--muted") },
            ...line.map(({ text, kind }) =>
              kind ? s("tspan", { "font-weight": 600, fill: colour(`--${kind}-ink`) }, text) : text,
            ),
          ),
        ),
      ];
      const picture = s(
        "svg",
        { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` },
        s("rect", { width, height, fill: colour("--panel") }),
        ...sentence,
        world,
        rows,
      );
      return new XMLSerializer().serializeToString(picture);
    } finally {
      Object.assign(viewport, { k, x, y, size });
      for (const part of [tree, strip]) part.place();
    }
  }

  return { size: measured, svg };
}
