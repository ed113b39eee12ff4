// Why a pass over many tokens may cost as much as one: the time of a pass against its tokens, on a machine to choose.

import { h, number, s, whole } from "../../../assets/viewer/dom.js";
import { MachineChoice, stepCost } from "../../../assets/viewer/machine.js";
import { MACHINES } from "../../../assets/viewer/machines.js";
import { fixed } from "../../../assets/viewer/words.js";

const [WIDE, HIGH] = [340, 190];
const EDGE = { left: 44, right: 12, top: 14, bottom: 34 };
// the roofline is known of these, the largest card first
const CALCULATED = ["h100", "h200", "space", "rtx-4090", "laptop-gpu", "laptop-cpu"].map((name) => MACHINES.find(({ id }) => id === name));
const ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/** A pass over so many tokens, in plain steps. */
export const passCost = (machine, nodes) => stepCost(machine, "autoregressive", { first: 0, again: [], nodes }) / stepCost(machine, "autoregressive", { first: 0, again: [], nodes: 1 });

/** What the chart says of a machine and a pass. */
export function passWords({ name }, cost, nodes) {
  const more = cost < 1.05 ? "no more than one" : `${fixed(cost, cost < 10 ? 1 : 0)} times as much as one`;
  return `With an 8B model on ${name} a pass over ${nodes} tokens costs ${more}.`;
}

export class PassView {
  constructor() {
    this.choice = new MachineChoice(() => this.show(), "Machine of the chart", CALCULATED);
    this.slider = h("input", { type: "range", min: 1, max: 256, step: 1, "aria-label": "Tokens in the pass" });
    this.value = h("output", {});
    this.chart = s("svg", { class: "pass", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
    this.said = h("p", { class: "said", role: "status" });
    this.slider.addEventListener("input", () => this.show());
    this.box = h("div", { class: "passes" }, h("label", {}, h("span", {}, "tokens in the pass"), this.slider, this.value), h("label", {}, "8B model on ", this.choice.select), this.chart, this.said);
  }

  /** `nodes` of the step's own pass, its `seconds`, and those of a `plain` step where it was recorded (null: not timed). */
  load({ nodes, seconds, plain }) {
    this.own = { nodes: whole(nodes, 1, 4096, 1), ratio: plain ? number(seconds, 0, 1e6, 0) / number(plain, 1e-9, 1e6, 1) : null };
    this.slider.value = this.own.nodes;
    this.show();
  }

  show() {
    if (!this.own) return;
    const { machine } = this.choice;
    const nodes = Number(this.slider.value);
    const cost = passCost(machine, nodes);
    this.value.textContent = nodes;
    const here = this.own.ratio && this.own.nodes > 1 ? ` Where this step was recorded, its pass over ${this.own.nodes} cost ${fixed(this.own.ratio, 1)} plain steps (✕).` : "";
    this.said.textContent = passWords(machine, cost, nodes) + here;
    this.draw(machine, nodes, cost);
  }

  draw(machine, nodes, cost) {
    const most = Math.max(8, ...[256, nodes].map((n) => passCost(machine, n)), this.own.ratio || 0);
    const x = (n) => EDGE.left + (Math.log2(Math.max(1, n)) / Math.log2(512)) * (WIDE - EDGE.left - EDGE.right);
    const y = (c) => HIGH - EDGE.bottom - (Math.log2(Math.max(0.25, c) * 4) / Math.log2(most * 4)) * (HIGH - EDGE.top - EDGE.bottom);
    const rows = Array.from({ length: 91 }, (_, at) => 2 ** (at / 10));
    const points = (of) => rows.map((n) => [n, of(n)]).filter(([, c]) => c >= 0.25 && c <= most).map(([n, c]) => `${x(n).toFixed(1)},${y(c).toFixed(1)}`).join(" ");
    const end = machine.verify[machine.verify.length - 1];
    // far to the right arithmetic is all that counts, so its line goes from there through nothing
    const arithmetic = s("polyline", { class: "arithmetic", points: points((n) => (end[1] * n) / end[0]) });
    const memory = s("line", { class: "memory", x1: x(1), x2: x(512), y1: y(1), y2: y(1) });
    const ticks = [
      ...ROWS.filter((_, at) => at % 2 === 0).map((n) => s("text", { x: x(n), y: HIGH - 19, "text-anchor": "middle" }, n)),
      ...[1, 2, 4, 8, 16, 32, 64].filter((c) => c <= most).map((c) => s("text", { x: EDGE.left - 6, y: y(c) + 4, "text-anchor": "end" }, c)),
      s("text", { x: (EDGE.left + WIDE) / 2, y: HIGH - 4, "text-anchor": "middle" }, "tokens in one pass"),
      s("text", { x: EDGE.left + 8, y: 11 }, "cost, in plain steps"),
    ];
    const own = this.own.ratio ? s("text", { class: "own", x: x(this.own.nodes), y: y(this.own.ratio) + 5, "text-anchor": "middle" }, "✕") : null;
    const names = [s("text", { class: "memory", x: x(1) + 4, y: y(1) + 14 }, "reading the weights"), s("text", { class: "arithmetic", x: WIDE - EDGE.right, y: y(Math.min(most, (end[1] * 512) / end[0])) - 5, "text-anchor": "end" }, "arithmetic")];
    this.chart.replaceChildren(...[memory, arithmetic, s("polyline", { class: "time", points: points((n) => passCost(machine, n)) }), ...ticks, ...names, s("circle", { cx: x(nodes), cy: y(cost), r: 5 }), own].filter(Boolean));
    this.chart.setAttribute("aria-label", passWords(machine, cost, nodes));
  }
}
