// Why drafting is faster, or slower: what a step costs, in steps of plain decoding, against the tokens that it brings.

import { h } from "./dom.js";
import { fixed, STAGES } from "./words.js";

/** D²SD with Qwen3-8B on an H200, mean of eight sets of prompts (arXiv 2606.04446): tokens per step, speedup, and the tokens
 *  that the target reads in a pass there, K + 1 = 5 blocks of 16. */
const PAPER = { alpha: 7.05, speedup: 4.98, nodes: 80 };
const PAPER_CYCLE = PAPER.alpha / PAPER.speedup;
/** At most what one more verified node costs there, in plain steps: as if drafting cost nothing. */
export const PAPER_NODE = (PAPER_CYCLE - 1) / (PAPER.nodes - 1);

/** What a run's step costs: `cost` in plain steps, `parts` of it by stage, `brought` tokens; null where plain decoding was
 *  not timed. `speed` and `plain`: tokens per second, `seconds` by stage. */
export function cycleOf({ tokens, steps, speed, plain, seconds }) {
  if (!steps || !speed || !plain) return null;
  const brought = tokens / steps;
  const cost = (brought * plain) / speed;
  const all = STAGES.reduce((sum, [stage]) => sum + (seconds[stage] || 0), 0);
  const parts = STAGES.map(([stage, name]) => ({ stage, name, cost: all ? (cost * (seconds[stage] || 0)) / all : 0 }));
  return { cost, brought, parts, gain: speed / plain };
}

/** The same in a sentence. */
export function cycleWords({ cost, brought, gain }) {
  const end = gain < 1 ? `so it is slower, ${fixed(gain, 2)}×` : `so it is ${fixed(gain, 2)}× as fast`;
  return `A step cost ${fixed(cost, 1)} plain steps and brought ${fixed(brought, 1)} tokens, ${end}.`;
}

export const elsewhere = () => `On a GPU with a model of 8B a step costs about ${fixed(PAPER_CYCLE, 2)}: a pass waits for the weights there, and reads many nodes meanwhile.`;

/** Seconds that verifying `nodes` takes between this machine (`t` = 0: as measured) and the paper's ratio (1); `plain`: of
 *  a plain step here. */
export function verifyAt(measured, plain, nodes, t) {
  const there = plain * (1 + PAPER_NODE * Math.max(0, nodes - 1));
  return Math.max(1e-9, measured) ** (1 - t) * Math.max(1e-9, there) ** t;
}

/** Two bars on one scale: what a step cost, by stage, and what it brought. */
export function cycleBars(cycle) {
  const most = Math.max(cycle.cost, cycle.brought, 1);
  const width = (value) => `width:${((100 * value) / most).toFixed(2)}%`;
  const shown = cycle.parts.filter((part) => part.cost > 0);
  const row = (name, words, ...bars) => h("div", { class: "bar" }, h("span", { class: "name" }, name), h("span", { class: "rail" }, ...bars), h("span", { class: "value" }, words));
  return h(
    "div",
    { class: "cycle" },
    row("costs", `${fixed(cycle.cost, 1)} plain steps`, ...shown.map((part) => h("span", { class: `segment ${part.stage}`, style: width(part.cost), title: `${part.name}: ${fixed(part.cost, 2)} plain steps` }))),
    row("brings", `${fixed(cycle.brought, 1)} tokens`, h("span", { class: "segment brought", style: width(cycle.brought) })),
    h("p", { class: "parts" }, shown.filter((part) => part.cost >= 0.05).map((part) => `${part.name.toLowerCase()} ${fixed(part.cost, 1)}`).join(" · ")),
  );
}
