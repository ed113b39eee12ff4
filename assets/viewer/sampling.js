// The tokens that the target may draw at a place, and a step drawn with other random numbers.

import { BONUS_NODE } from "./step.js";
import { best, sum } from "./dom.js";

const OTHER = { id: -1, text: "(another)" }; // all tokens whose probabilities were not recorded

/** A number between 0 and 1 that depends only on these integers. */
function uniform(...numbers) {
  let x = 0x9e3779b9;
  for (const n of numbers) {
    x = Math.imul(x ^ n, 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    x ^= x >>> 16;
  }
  return ((x >>> 0) + 0.5) / 2 ** 32;
}

/** The tokens that the target may draw after a node, with their probabilities at the run's temperature, or at 1 if that is 0. Empty if
 *  these were not recorded. */
export function oddsAfter({ nodes, choices, targetTops }, node) {
  const odds = new Map((targetTops.get(node) ?? []).map((token) => [token.id, token]));
  const choice = choices.get(node);
  if (choice?.p) odds.set(choice.token, { id: choice.token, text: choice.text, p: choice.p });
  for (const { parent, token, text, targetP } of nodes.values())
    if (parent === node && targetP !== null) odds.set(token, { id: token, text, p: targetP });
  const rest = 1 - sum([...odds.values()].map(({ p }) => p));
  if (odds.size && rest > 0.0005) odds.set(OTHER.id, { ...OTHER, p: rest });
  return [...odds.values()].sort((a, b) => b.p - a.p);
}

/** The token that a seed draws after a node: the one with the largest log probability plus noise (Gumbel-max). */
export function drawnAfter(step, node, seed) {
  const position = step.anchorPosition + step.nodes.get(node).depth;
  const score = ({ p, id }) => Math.log(p) - Math.log(-Math.log(uniform(seed, position, id)));
  return best(oddsAfter(step, node), score) ?? null;
}

/** The step as another seed would have drawn it from the recorded probabilities. */
export function redrawn(step, seed) {
  const [path, choices, all] = [[0], new Map(), [...step.nodes.values()]];
  let drawn = null;
  for (let node = 0; node !== undefined;) {
    drawn = drawnAfter(step, node, seed);
    if (drawn) choices.set(node, { token: drawn.id, text: drawn.text, p: drawn.p });
    node = all.find(({ parent, token }) => parent === path.at(-1) && token === drawn?.id)?.id;
    if (node !== undefined) path.push(node);
  }
  const stateOf = ({ id, parent }) =>
    !id ? "root" : path.includes(id) ? "accepted" : path.includes(parent) ? "rejected" : "unreached";
  const nodes = new Map(all.map((node) => [node.id, { ...node, state: stateOf(node) }]));
  const [accepted, last] = [path.slice(1), nodes.get(path.at(-1))];
  // the probabilities after an end of the tree are recorded only if the run reached it
  const { text = "?", p = null } = drawn ?? {};
  const bonus = { ...BONUS_NODE, parent: last.id, depth: last.depth + 1, text, p, node: null };
  const wrong = accepted.findIndex((id) => !nodes.get(id).candidates.includes(0));
  const right = wrong < 0 ? accepted.length : wrong;
  const checked = all.some(({ parent, candidates }) => parent === path[right] && candidates.includes(0));
  return {
    ...step,
    nodes,
    choices,
    accepted,
    bonus,
    committed: [...accepted.map((id) => ({ ...nodes.get(id), node: id })), bonus],
    boundary: checked || right === step.drafted ? right : null,
    verdict: null,
    sampled: true,
    draws: new Map(),
    columns: Math.max(step.columns, bonus.depth + 1),
  };
}
