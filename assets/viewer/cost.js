// Why drafting is faster, or slower: what a step costs, in steps of plain decoding, against the tokens that it brings.

import { h } from "./dom.js";
import { fixed, STAGES } from "./words.js";

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
  const end = `so it is ${fixed(gain, 2)}× as fast as plain decoding`;
  return `A step cost ${fixed(cost, 1)} plain steps and brought ${fixed(brought, 1)} tokens, ${end}.`;
}

/** Recommends cost-aware steps for a run that was slower without them; else "". `aware`: the run's setting, undefined if imported. */
export function savingWords({ gain }, aware) {
  return gain < 1 && aware === false ? "The setting “cost-aware” verifies only what pays." : "";
}

/** How fast the same steps would be on another machine, where each costs `cost` plain steps; null: that is not known. */
export function elsewhereWords({ name }, cost, brought) {
  if (cost === null) return `The time of its draft with an 8B model on ${name} is not known.`;
  return `With an 8B model on ${name} such a step costs ${fixed(cost, 2)} plain steps, so the same ${fixed(brought, 1)} tokens would come ${fixed(brought / cost, 2)}× as fast.`;
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
