// What steps cost on a machine, in steps of plain decoding; d2sd/costs/machines.py computes the same.

import { h, list, whole } from "./dom.js";
import { MACHINES } from "./machines.js";

/** The value at so many rows of a curve through points: lines between and after them. */
function along(points, rows) {
  if (rows <= points[0][0] || points.length === 1) return points[0][1];
  const found = points.findIndex(([at]) => at >= rows);
  const at = found < 0 ? points.length - 1 : found;
  const [[x0, y0], [x1, y1]] = [points[at - 1], points[at]];
  return y0 + ((y1 - y0) * (rows - x0)) / (x1 - x0);
}

/** What a step of `method` costs with so much work: rows of the first draft, of each re-drafting pass, and verified nodes; null
 *  where the drafter's time is not known. */
export function stepCost(machine, method, { first, again, nodes }) {
  const draft = Object.hasOwn(machine.drafts, method) ? machine.drafts[method] : machine.first_draft;
  if (first && !draft) return null;
  return (first ? along(draft, first) : 0) + again.reduce((sum, rows) => sum + along(machine.second_draft, rows), 0) + along(machine.verify, nodes) + machine.other;
}

/** Mean of the same over the steps of a run; null where it is not known, or there is no step. */
export function meanCost(machine, method, works) {
  if (!works.length || works.includes(null)) return null;
  const costs = works.map((work) => stepCost(machine, method, work));
  return costs.includes(null) ? null : costs.reduce((sum, cost) => sum + cost, 0) / costs.length;
}

/** The work of a step as it travels, [first, [again, …], nodes]; null where there is none. */
export function readWork(raw) {
  if (!Array.isArray(raw)) return null;
  return { first: whole(raw[0], 0, 1e6, 0), again: list(raw[1]).map((rows) => whole(rows, 0, 1e6, 0)), nodes: whole(raw[2], 1, 1e6, 1) };
}

const KEY = "d2sd-machine";

/** The machine that is compared with, the same everywhere on the page; remembered by the browser where that is allowed. */
export function chosenMachine() {
  let id = null;
  try {
    id = localStorage.getItem(KEY);
  } catch {} // a file, or a browser that keeps nothing
  return MACHINES.find((machine) => machine.id === id) || MACHINES[0];
}

/** A list to choose the machine from; `changed()` when another one was. */
export class MachineChoice {
  constructor(changed, label = "Machine to compare with", machines = MACHINES) {
    this.select = h("select", { class: "machine", "aria-label": label }, ...machines.map(({ id, name }) => h("option", { value: id }, name)));
    this.select.addEventListener("change", () => {
      try {
        localStorage.setItem(KEY, this.select.value);
      } catch {}
      this.machine = MACHINES.find(({ id }) => id === this.select.value);
      document.dispatchEvent(new CustomEvent("machine:chosen", { detail: { from: this, id: this.select.value } }));
      changed();
    });
    document.addEventListener("machine:chosen", ({ detail }) => {
      if (detail.from === this || !machines.some(({ id }) => id === detail.id)) return;
      this.machine = MACHINES.find(({ id }) => id === detail.id);
      this.select.value = detail.id;
      changed();
    });
    this.machine = machines.includes(chosenMachine()) ? chosenMachine() : machines[0];
    this.select.value = this.machine.id;
  }
}
