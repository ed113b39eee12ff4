// The race on other machines: its steps timed again, the axis of its time, and the break-even map.

import { BreakEvenMap, chosenMachine, meanCost, stepCost } from "../../assets/viewer/machine.js";
import { h, number } from "../../assets/viewer/dom.js";
import { MACHINES } from "../../assets/viewer/machines.js";

const COST_AWARE = " cost-aware";
const methodOf = (lane) => lane.method.replace(COST_AWARE, "");

/** When every step of a lane would end on a machine, in its seconds or, where only ratios are known, in plain steps; null where
 *  its drafter's time is not known. */
export function retimed(lane, machine) {
  const costs = lane.steps.map(({ work }) => (work ? stepCost(machine, methodOf(lane), work) : 0));
  if (costs.includes(null)) return null;
  const unit = machine.milliseconds === null ? 1 : machine.milliseconds / 1000;
  let end = 0;
  return costs.map((cost) => (end += unit * cost));
}

/** A point of the map for every lane that drafts: α, and what its step costs here (measured) and on a machine. */
export function mapPoints(lanes, machine) {
  const drafted = lanes.filter((lane) => lane.row && lane.method !== "autoregressive" && lane.total);
  return drafted.map((lane) => {
    const [alpha, gain] = [number(lane.row.mean_acceptance_length, 0, 1e6, 0), number(lane.row.speedup, 1e-9, 1e6, null)];
    const works = lane.steps.map(({ work }) => work).filter(Boolean);
    return { name: lane.name, alpha, here: gain && alpha / gain, there: meanCost(machine, methodOf(lane), works) };
  });
}

/** Round times along an axis. */
export function timeTicks(longest) {
  const step = [1, 2, 5].flatMap((n) => [-4, -3, -2, -1, 0, 1, 2, 3].map((e) => n * 10 ** e)).sort((a, b) => a - b).find((s) => longest / s <= 6) || longest;
  return Array.from({ length: Math.floor(longest / step + 1e-9) + 1 }, (_, at) => at * step);
}

export class CostsView {
  /** `changed()`: another machine was chosen. */
  constructor(changed) {
    this.axis = h("div", { class: "track axis", "aria-hidden": "true" }, h("span", {}), h("span", { class: "ticks" }), h("span", {}));
    this.select = h("select", { class: "machine", "aria-label": "Machine that the race is timed on" }, h("option", { value: "" }, "here, as measured"), ...MACHINES.map(({ id, name }) => h("option", { value: id }, `8B model on ${name}`)));
    this.said = h("p", { class: "said", role: "status" });
    this.box = h("div", { class: "costs", hidden: true }, h("label", {}, h("span", {}, "Time the race"), this.select), this.said);
    this.map = new BreakEvenMap();
    this.mapBox = h("div", { class: "map-box" }, h("h4", {}, "Where drafting pays"), this.map.box);
    this.select.addEventListener("change", () => changed());
  }

  /** The machine that the race is timed on; null: here. */
  get machine() {
    return MACHINES.find(({ id }) => id === this.select.value) || null;
  }

  load(lanes) {
    this.lanes = lanes;
    this.box.hidden = !lanes.length;
    this.select.value = "";
    this.say();
  }

  say() {
    const { machine, lanes } = this;
    const there = machine || chosenMachine();
    const points = mapPoints(lanes, there);
    this.mapBox.hidden = !points.some(({ here }) => here) && !points.some(({ there: cost }) => cost);
    this.map.show(points, `an 8B model on ${there.name}`);
    const aware = lanes.some((lane) => lane.method.endsWith(COST_AWARE)) ? " Cost-aware lanes decided by the times of this machine, not of that one." : "";
    this.said.textContent = machine ? `The same steps with the times of that machine. ${machine.source}${aware} The figures below stay as measured.` : "";
  }

  /** The ticks under the lanes; `unit`: what the axis counts. */
  scale(longest) {
    const relative = this.machine && this.machine.milliseconds === null;
    const unit = relative ? [1, " plain steps"] : longest < 1 ? [1000, " ms"] : [1, " s"];
    this.axis.children[1].replaceChildren(...timeTicks(longest).map((t) => h("i", { style: `left:${((100 * t) / Math.max(1e-9, longest)).toFixed(2)}%` }, `${Number((t * unit[0]).toPrecision(6))}${t && (!relative || t === timeTicks(longest).at(-1)) ? unit[1] : ""}`)));
  }
}
