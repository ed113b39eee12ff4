// The cost of a verified node: the race timed again between this machine and the paper's ratio, and the axis of its time.

import { verifyAt } from "../../../assets/viewer/cost.js";
import { h } from "../../../assets/viewer/dom.js";

/** When every step of a lane would end at `t` between this machine (0) and the paper's ratio (1); `plain`: what `plainStep` returns. */
export function retimed(lane, plain, t) {
  let [before, end] = [0, 0];
  return lane.steps.map((step) => {
    const took = step.elapsed - before;
    before = step.elapsed;
    const verify = Math.min(step.verify, took);
    end += step.nodes ? took - verify + verifyAt(verify, plain, step.nodes, t) : took;
    return end;
  });
}

/** Seconds that the target's pass over one token takes: of the lane that drafts nothing; null where there is none. */
export function plainStep(lanes) {
  const lane = lanes.find(({ method, row }) => method === "autoregressive" && row);
  const passes = lane ? lane.steps.filter((step) => step.nodes && step.verify) : [];
  return passes.length ? passes.reduce((sum, step) => sum + step.verify, 0) / passes.length : null;
}

/** What one more node costs at `t`, in plain steps, mean over the steps of all lanes that verify more than one. */
export function nodeCost(lanes, plain, t) {
  let [extra, nodes] = [0, 0];
  for (const step of lanes.flatMap((lane) => lane.steps)) {
    if (step.nodes < 2) continue;
    extra += verifyAt(step.verify, plain, step.nodes, t) / plain - 1;
    nodes += step.nodes - 1;
  }
  return nodes ? extra / nodes : null;
}

/** Round times along an axis, in seconds. */
export function timeTicks(longest) {
  const step = [1, 2, 5].flatMap((n) => [-4, -3, -2, -1, 0, 1, 2, 3].map((e) => n * 10 ** e)).sort((a, b) => a - b).find((s) => longest / s <= 6) || longest;
  return Array.from({ length: Math.floor(longest / step + 1e-9) + 1 }, (_, at) => at * step);
}

export class CostsView {
  /** `changed(t)`: the slider stands elsewhere. */
  constructor(changed) {
    this.axis = h("div", { class: "track axis", "aria-hidden": "true" }, h("span", {}), h("span", { class: "ticks" }), h("span", {}));
    this.slider = h("input", { type: "range", min: 0, max: 100, step: 5, value: 0, "aria-label": "Cost of a verified node: from this machine to the paper’s" });
    this.value = h("output", {});
    this.said = h("p", { class: "said", role: "status" });
    this.box = h("div", { class: "costs", hidden: true }, h("label", {}, h("span", {}, "Cost of a verified node"), h("span", { class: "end" }, "here"), this.slider, h("span", { class: "end" }, "8B on a GPU"), this.value), this.said);
    this.slider.addEventListener("input", () => changed(this.t));
  }

  get t() {
    return Number(this.slider.value) / 100;
  }

  load(lanes, plain) {
    this.box.hidden = !plain || nodeCost(lanes, plain, 0) === null;
    this.slider.value = 0;
    Object.assign(this, { lanes, plain });
    this.say();
  }

  say() {
    if (this.box.hidden) return;
    const cost = nodeCost(this.lanes, this.plain, this.t);
    const words = `${(100 * cost).toFixed(cost < 0.02 ? 1 : 0)}% of a plain step`;
    this.value.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
    this.said.textContent = this.t ? "These times are calculated: verifying at this cost, drafting as measured here, which is much for so small a target. The figures below stay as measured." : "These times are measured. Move the slider: where a pass waits for the weights, as on a GPU with a large model, more nodes cost nearly nothing.";
  }

  /** The ticks under the lanes. */
  scale(longest) {
    const unit = longest < 1 ? [1000, " ms"] : [1, " s"];
    this.axis.children[1].replaceChildren(...timeTicks(longest).map((t) => h("i", { style: `left:${((100 * t) / Math.max(1e-9, longest)).toFixed(2)}%` }, `${Number((t * unit[0]).toPrecision(6))}${t ? "" : unit[1]}`)));
  }
}
