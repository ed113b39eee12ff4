// The cost of a step with an 8B model on an H200, in plain decoding steps, and the break-even map. d2sd/costs/machines.py computes the
// same costs.

import { h, s, sum } from "./dom.js";
import { PAPER } from "./constants.js";
import { fixed, joined, methodName } from "./words.js";

/** Interpolates between the points of a curve; extrapolates after the last one, and is constant before the first one. */
function along(points, rows) {
  if (rows <= points[0][0] || points.length === 1) return points[0][1];
  const found = points.findIndex(([at]) => at >= rows);
  const at = found < 0 ? points.length - 1 : found;
  const [[x0, y0], [x1, y1]] = [points[at - 1], points[at]];
  return y0 + ((y1 - y0) * (rows - x0)) / (x1 - x0);
}

/**
 * The cost of a step in plain decoding steps; null if the drafter's time is not known.
 *
 * `first`: rows of the first draft; `again`: rows of each re-drafting pass; `nodes`: verified nodes.
 */
export function stepCost(machine, method, { first, again, nodes }) {
  const draft = Object.hasOwn(machine.drafts, method) ? machine.drafts[method] : machine.first_draft;
  if (first && !draft) return null;
  return (
    (first ? along(draft, first) : 0) +
    sum(again.map((rows) => along(machine.second_draft, rows))) +
    along(machine.verify, nodes) +
    machine.other
  );
}

/** The mean `stepCost` over the steps of a run; null if one is unknown or there are no steps. */
export function meanCost(machine, method, works) {
  if (!works.length || works.includes(null)) return null;
  const costs = works.map((work) => stepCost(machine, method, work));
  return costs.includes(null) ? null : sum(costs) / costs.length;
}

/** The source of `cost`, the cost of a step of `method` on the paper's machine; without `cost`, the source of all such costs. */
export function originWords(method = "", cost = null) {
  const { published } = PAPER;
  if (cost !== null && Object.hasOwn(published, method) && fixed(published[method], 2) === fixed(cost, 2))
    return `as published for ${methodName(method)}`;
  const known = Object.entries(published).map(([name, value]) => `${methodName(name)} ${fixed(value, 2)}`);
  return `calculated from the costs in the paper: ${joined(known)}`;
}

/** Parses the work of a step, [first, [again, …], nodes]; null stays null. */
export const readWork = (raw) => raw && { first: raw[0], again: raw[1], nodes: raw[2] };

const [WIDE, HIGH] = [420, 268];
const EDGE = { left: 40, right: 14, top: 12, bottom: 36 };
const ALONG = [1, 0.85, 0.7, 0.55]; // positions of a line's label, as shares of the line's length, tried in this order
const SPEEDUPS = [0.5, 1, 2, 4, 8];
const LETTER = 7.6; // pixels; approximate width of a letter
const LINE = 14; // pixels; height of a label
const SPOTS = [
  [8, -7, "start"],
  [-8, -7, "end"],
  [8, 17, "start"],
  [-8, 17, "end"],
  [8, -21, "start"],
  [-8, 31, "end"],
  [8, 31, "start"],
]; // label positions beside a point: dx, dy, anchor
const MOST = 16; // plain steps or tokens; points beyond are drawn at the edge

/** Ticks from 0 to `most` at round numbers. */
const ticksTo = (most) => {
  const step = [1, 2, 4, 5].find((n) => most / n <= 6) || 5;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
};

const boxOf = (x, y, words, anchor) => ({
  left: x - (anchor === "end" ? words.length * LETTER : 0),
  top: y - 11,
  width: words.length * LETTER,
  height: LINE,
});

/** The area of the intersection of two boxes. */
const shared = (a, b) =>
  Math.max(0, Math.min(a.left + a.width, b.left + b.width) - Math.max(a.left, b.left)) *
  Math.max(0, Math.min(a.top + a.height, b.top + b.height) - Math.max(a.top, b.top));

/** The index of the first box that lies within `frame` and covers no `taken` box, else of the box with the least overlap. */
export function freeBox(boxes, taken, frame) {
  const covered = boxes.map(
    (box) => box.width * box.height - shared(box, frame) + sum(taken.map((other) => shared(box, other))),
  );
  return covered.indexOf(Math.min(...covered));
}

/** Tokens per step against the cost of a step, with lines of equal speedup. */
export class BreakEvenMap {
  constructor() {
    this.svg = s("svg", {
      class: "breakeven",
      viewBox: `0 0 ${WIDE} ${HIGH}`,
      role: "img",
      "aria-label": "Break-even map: tokens per step against the cost of a step",
    });
    this.said = h("p", { class: "said" });
    this.box = h("div", { class: "map" }, this.svg, this.said);
  }

  /** `points`: `name`, `alpha`, and two costs of a step in plain steps, null if unknown: `here` (measured) and `there` (with an 8B model
   *  on the paper's H200). */
  show(points) {
    this.points = points.filter(({ alpha, here, there }) => alpha > 0 && (here || there));
    const costs = this.points.flatMap(({ here, there }) => [here, there]).filter(Boolean);
    const room = (values) => Math.min(MOST, Math.max(3, ...values));
    this.most = { x: 1.15 * room(costs), y: 1.2 * room(this.points.map(({ alpha }) => alpha)) };
    this.draw();
    this.said.textContent = this.points.length
      ? `${this.points.some(({ here }) => here) ? "● measured here, " : ""}○ an 8B model on ${PAPER.name}, ${originWords()}.`
      : "";
  }

  x = (cost) => EDGE.left + (Math.min(cost, this.most.x) / this.most.x) * (WIDE - EDGE.left - EDGE.right);
  y = (alpha) => HIGH - EDGE.bottom - (Math.min(alpha, this.most.y) / this.most.y) * (HIGH - EDGE.top - EDGE.bottom);

  draw() {
    const { most } = this;
    this.taken = this.points.flatMap(({ alpha, here, there }) =>
      [here, there]
        .filter(Boolean)
        .map((cost) => ({ left: this.x(cost) - 7, top: this.y(alpha) - 7, width: 14, height: 14 })),
    );
    const [right, floor] = [this.x(most.x), this.y(0)];
    const even = Math.min(most.x, most.y);
    const slower = `${this.x(0)},${floor} ${this.x(even)},${this.y(even)} ${right},${this.y(Math.min(most.y, most.x))} ${right},${floor}`;
    const lines = SPEEDUPS.map((gain) => {
      const cost = Math.min(most.x, most.y / gain);
      const end = [this.x(cost), this.y(cost * gain)];
      const words = gain === 1 ? "breaks even" : `${gain}×`;
      const spots = ALONG.map((share) => [this.x(cost * share) - 4, this.y(cost * share * gain) - 4]);
      const free = (box) => box.left > EDGE.left && this.taken.every((other) => !shared(box, other));
      const spot = spots.find(([x, y]) => free(boxOf(x, y, words, "end"))); // not over a point or another label
      if (spot) this.taken.push(boxOf(...spot, words, "end"));
      return s(
        "g",
        { class: gain === 1 ? "even" : "speedup" },
        s("line", { x1: this.x(0), y1: floor, x2: end[0], y2: end[1] }),
        spot ? s("text", { x: spot[0], y: spot[1], "text-anchor": "end" }, words) : "",
      );
    });
    const ticks = [
      ...ticksTo(most.x).map((n) =>
        s("text", { class: "tick", x: this.x(n), y: floor + 15, "text-anchor": "middle" }, n),
      ),
      ...ticksTo(most.y)
        .slice(1)
        .map((n) => s("text", { class: "tick", x: EDGE.left - 6, y: this.y(n) + 4, "text-anchor": "end" }, n)),
      s(
        "text",
        { class: "tick", x: (EDGE.left + right) / 2, y: HIGH - 5, "text-anchor": "middle" },
        "cost of a step, in plain steps",
      ),
      s(
        "text",
        {
          class: "tick",
          x: 11,
          y: (EDGE.top + floor) / 2,
          "text-anchor": "middle",
          transform: `rotate(-90 11 ${(EDGE.top + floor) / 2})`,
        },
        "tokens per step, α",
      ),
    ];
    this.svg.replaceChildren(
      s("polygon", { class: "slower", points: slower }),
      ...lines,
      s("path", { class: "axes", d: `M${EDGE.left} ${EDGE.top}V${floor}H${right}` }),
      ...ticks,
      ...this.points.map((point) => this.mark(point)),
    );
  }

  /** The marks of a method: filled for the cost here, hollow for the H200, both at the same alpha. */
  mark({ name, alpha, here, there }) {
    const y = this.y(alpha);
    const at = this.x(here || there);
    const [dx, dy, anchor] = this.place(at, y, name);
    const parts = [
      here && there ? s("line", { class: "move", x1: this.x(here), y1: y, x2: this.x(there), y2: y }) : null,
      there ? s("circle", { class: "there", cx: this.x(there), cy: y, r: 5 }) : null,
      here ? s("circle", { class: "here", cx: this.x(here), cy: y, r: 5 }) : null,
      s("text", { class: "name", x: at + dx, y: y + dy, "text-anchor": anchor }, name),
    ];
    return s("g", { class: "point" }, ...parts);
  }

  /** Chooses the label position of a point: [dx, dy, anchor]. */
  place(x, y, name) {
    const boxes = SPOTS.map(([dx, dy, anchor]) => boxOf(x + dx, y + dy, name, anchor));
    const at = freeBox(boxes, this.taken, {
      left: EDGE.left,
      top: 0,
      width: WIDE - EDGE.left,
      height: HIGH - EDGE.bottom,
    });
    this.taken.push(boxes[at]);
    return SPOTS[at];
  }
}
