// The cost of a step, in one-token passes, on this machine's curves or on an H200. d2sd/costs/machines.py computes the same costs.

import { sum } from "./dom.js";
import { MEASURED, PAPER } from "./constants.js";

/** Interpolates between the points of a curve; extrapolates after the last one, and is constant before the first one. */
function along(points, rows) {
  if (rows <= points[0][0] || points.length === 1) return points[0][1];
  const reached = points.findIndex(([end]) => end >= rows);
  const end = reached < 0 ? points.length - 1 : reached;
  const [[x0, y0], [x1, y1]] = [points[end - 1], points[end]];
  return y0 + ((y1 - y0) * (rows - x0)) / (x1 - x0);
}

/** The costs on an H200 with an 8B model: as measured, or as published if the drafter of this method was not measured. */
export const h200 = (method) => (Object.hasOwn(MEASURED.drafts, method) && !MEASURED.drafts[method] ? PAPER : MEASURED);

/** The cost of a pass over `nodes` tokens, in one-token passes; it includes the time between passes. */
export const passCost = (machine, nodes) => along(machine.verify, nodes) + machine.other;

/**
 * The cost of a step by stage, in one-token passes; null if the drafter's time is not known.
 *
 * `first`: rows of the first draft; `again`: rows of each re-drafting pass; `nodes`: verified nodes.
 */
export function costParts(machine, method, { first, again, nodes }) {
  const draft = Object.hasOwn(machine.drafts, method) ? machine.drafts[method] : machine.first_draft;
  if (first && !draft) return null;
  return {
    first_draft: first ? along(draft, first) : 0,
    second_draft: sum(again.map((rows) => along(machine.second_draft, rows))),
    verify: passCost(machine, nodes),
  };
}

/** The parts of a cost from the seconds of its stages; `scale`: passes per second; `more`: further seconds of the rest. */
export const partsOf = ({ first_draft, second_draft, verify, tree, commit }, scale, more = 0) => ({
  first_draft: scale * first_draft,
  second_draft: scale * second_draft,
  verify: scale * verify,
  rest: scale * (tree + commit + more),
});

/** The mean of `costParts` over the steps of a run; null if one is unknown or there are no steps. */
export function meanParts(machine, method, works) {
  if (!works.length || works.includes(null)) return null;
  const parts = works.map((work) => costParts(machine, method, work));
  if (parts.includes(null)) return null;
  const mean = (stage) => [stage, sum(parts.map((part) => part[stage])) / parts.length];
  return Object.fromEntries(Object.keys(parts[0]).map(mean));
}

/** The mean cost of the steps of a run, in one-token passes; null if unknown. */
export function meanCost(machine, method, works) {
  const parts = meanParts(machine, method, works);
  return parts && sum(parts);
}

/** Parses the work of a step, [first, [again, …], nodes]; null stays null. */
export const readWork = (raw) => raw && { first: raw[0], again: raw[1], nodes: raw[2] };
