// The drawing of the story: drafts as rows of tokens, as columns on a narrow screen. What a frame shows of it is in story.css.

import { s } from "../../../assets/viewer/dom.js";
import { visible } from "../../../assets/viewer/words.js";
import { placesOf, rowsOf } from "./cells.js";

const NARROW = 560; // pixels; below it the drafts stand beside each other
const CHARACTER = 7.4; // width of a character of 12 pixels
const LAYOUTS = {
  wide: { gutter: 50, head: 12, least: 60, most: 110, height: 36, step: 62, places: 16, redrafts: 5, size: 13 },
  narrow: { gutter: 0, head: 22, least: 0, most: 999, height: 22, step: 26, places: 10, redrafts: 3, size: 12 },
};

/** Where the cell of a row and a place stands: place 0 is the anchor, row 0 the text of the target. */
function layoutOf(step, width) {
  const way = width < NARROW ? "narrow" : "wide";
  const l = LAYOUTS[way];
  const fit = way === "wide" ? Math.floor((width - l.gutter) / l.least) - 1 : l.places;
  const places = placesOf(step, Math.min(l.places, fit));
  const rows = rowsOf(step, places, l.redrafts);
  const across = way === "wide" ? places + 1 : rows.length + 1;
  const pitch = Math.min(l.most, (width - l.gutter - 2) / across);
  const at = (row, place) => (way === "wide" ? { x: l.gutter + place * pitch, y: l.head + row * l.step } : { x: row * pitch, y: l.head + place * l.step });
  const high = way === "wide" ? l.head + (rows.length + 1) * l.step : l.head + (places + 1) * l.step;
  return { ...l, way, places, rows, at, width, high, cell: pitch - (way === "wide" ? 6 : 4) };
}

export class Sketch {
  constructor() {
    this.svg = s("svg", { class: "sketch", role: "img" });
  }

  /** Draws all that any frame shows. */
  draw(step, width) {
    const layout = layoutOf(step, width);
    const { svg } = this;
    svg.setAttribute("viewBox", `0 0 ${width} ${layout.high}`);
    svg.setAttribute("height", layout.high);
    svg.dataset.way = layout.way;
    svg.replaceChildren(...this.edges(layout), ...this.names(layout), ...this.drafts(step, layout), ...this.target(step, layout), this.anchor(step, layout));
  }

  cell({ cell, height, size }, { x, y }, kind, words) {
    const most = Math.max(2, Math.floor((cell - 6) / ((CHARACTER * size) / 12)));
    return s("g", { class: `cell ${kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, s("title", {}, visible(words, 60)), s("rect", { width: cell.toFixed(1), height, rx: 6 }), s("text", { x: (cell / 2).toFixed(1), y: height / 2 + 4.5, "font-size": size }, visible(words, most)));
  }

  anchor(step, layout) {
    return this.cell(layout, layout.at(0, 0), "anchor", step.anchorText);
  }

  /** The text of the target: in the first frame each token with the number of its pass. */
  target(step, layout) {
    return step.committed.slice(0, layout.places).map(({ text }, at) => {
      const cell = this.cell(layout, layout.at(0, at + 1), `target${at > step.boundary ? " beyond" : ""}${at === step.boundary ? " wanted" : ""}`, text);
      const wide = layout.way === "wide";
      cell.append(s("text", { class: "pass", x: wide ? layout.cell / 2 : layout.cell + 10, y: wide ? layout.height + 14 : layout.height / 2 + 4.5, "text-anchor": wide ? "middle" : "start" }, `pass ${at + 1}`));
      return cell;
    });
  }

  drafts(step, layout) {
    return layout.rows.flatMap(({ candidate, cells }, row) =>
      cells.map((c) => {
        const verdict = candidate ? (c.kept ? "kept" : "idle") : c.place <= step.boundary ? "kept" : c.place === step.boundary + 1 ? "wrong" : "lost";
        return this.cell(layout, layout.at(row + 1, c.place), `${candidate ? "again" : "first"} ${verdict}${c.own ? "" : " copy"}${c.kept ? " accepted" : ""}`, c.text);
      }),
    );
  }

  names(layout) {
    const wide = layout.way === "wide";
    return [{ name: "text", candidate: -1 }, ...layout.rows].map(({ name, candidate }, row) => {
      const { x, y } = layout.at(row, 0);
      const kind = candidate < 0 ? "of-text" : candidate ? "of-again" : "of-first";
      return s("text", { class: `name ${kind}`, x: wide ? 0 : x + layout.cell / 2, y: wide ? y + layout.height / 2 + 4.5 : 14, "text-anchor": wide ? "start" : "middle" }, name);
    });
  }

  /** From every node to its children, where both are drawn; the anchor's come from the text's row. */
  edges(layout) {
    const { rows, at, cell, height, way } = layout;
    const placed = new Map();
    rows.forEach(({ cells }, row) => cells.forEach((c) => c.own && placed.set(c.id, { ...c, ...at(row + 1, c.place) })));
    const from = ({ x, y }) => (way === "wide" ? [x + cell, y + height / 2] : [x + cell / 2, y + height]);
    const to = ({ x, y }) => (way === "wide" ? [x, y + height / 2] : [x + cell / 2, y]);
    return [...placed.values()].map((c) => {
      const [[x0, y0], [x1, y1]] = [from(placed.get(c.parent) || at(0, 0)), to(c)];
      const mid = way === "wide" ? `${((x0 + x1) / 2).toFixed(1)} ${y0.toFixed(1)} ${((x0 + x1) / 2).toFixed(1)} ${y1.toFixed(1)}` : `${x0.toFixed(1)} ${((y0 + y1) / 2).toFixed(1)} ${x1.toFixed(1)} ${((y0 + y1) / 2).toFixed(1)}`;
      return s("path", { class: `link${c.kept ? " accepted" : ""}`, d: `M${x0.toFixed(1)} ${y0.toFixed(1)}C${mid} ${x1.toFixed(1)} ${y1.toFixed(1)}` });
    });
  }
}
