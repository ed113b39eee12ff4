// The run in a sentence: what a step brings, what it costs, and where that would pay.

import { count, fixed } from "./words.js";

/** The sentence as pieces; kind "b": a number that matters. `step`: tokens of the shown step, null where none is shown; `cycle`:
 *  what `cycleOf` returns; `machine` and `there`: the one to compare with, and what a step costs on it; `missing`: why there is no
 *  cycle. */
export function gist({ method, step, tokens, steps, cycle, machine, there, missing }) {
  if (!steps) return [];
  const b = (text) => ({ text, kind: "b" });
  const t = (text) => ({ text });
  if (method === "autoregressive") return [b("1 token"), t(" a step: plain decoding, the baseline of all other methods.")];
  const alpha = tokens / steps;
  const begin = step === null ? [] : [b(count(step, "token")), t(" in this step. ")];
  const run = [t("The run: "), b(`α = ${fixed(alpha, 2)}`)];
  const elsewhere = there === null ? [] : [t(cycle ? ", at " : "; it breaks even at "), b(fixed(there, 2)), t(` on ${machine.name}`)];
  if (!cycle) return [...begin, ...run, t(` tokens a step${missing}`), ...elsewhere, t(".")];
  const gain = { text: `${fixed(cycle.gain, 2)}×`, kind: cycle.gain < 1 ? "b slower" : "b" };
  return [...begin, ...run, t(" for the price of "), b(fixed(cycle.cost, 1)), t(" plain steps: "), gain, t(" as fast. It breaks even at "), b(fixed(cycle.cost, 1)), t(" here"), ...elsewhere, t(".")];
}
