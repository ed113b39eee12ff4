// What of a step the tree must show and where the arrow keys lead in it.

import { isResample } from "./explain.js";
import { BONUS } from "./tree_layout.js";
import { visible } from "./words.js";

/** Columns that must be readable, the most important first: what is selected, the anchor, where the first draft went wrong,
 *  the target's token, then the accepted path. */
export function columnsThatMatter(step, selection) {
  const node = selection.shownNode;
  const selected = node === BONUS ? step.bonus : step.nodes.get(node);
  const deepest = Math.max(0, ...step.accepted.map((id) => step.nodes.get(id).depth));
  const end = step.bonus ? step.bonus.depth : deepest;
  const own = selection.shown === step.index && selected ? [selected.depth] : [];
  const wrong = step.boundary === null || !step.draft ? [] : [step.boundary + 1, step.boundary];
  const path = step.accepted.map((id) => step.nodes.get(id).depth);
  return [...own, 0, ...wrong.slice(0, 1), end, ...wrong.slice(1), 1, deepest, ...path, 2, 3];
}

/** Under one rejected node of every place where the target chose otherwise: what it wanted. The first draft's own token says
 *  it if there is one, else the likeliest. */
export function wantedTokens(step) {
  const best = new Map();
  const found = new Set(step.accepted.map((id) => step.nodes.get(id).parent));
  const rank = (node) => (node.candidates.includes(0) ? 2 : 0) + (node.drafterP || 0);
  for (const node of step.nodes.values()) {
    if (node.state !== "rejected" || !step.choices.has(node.parent)) continue;
    if (found.has(node.parent) && !node.candidates.includes(0)) continue; // what it wanted stands beside it
    const other = best.get(node.parent);
    if (!other || rank(node) > rank(other)) best.set(node.parent, node);
  }
  return new Map([...best.values()].map((node) => [node.id, visible(step.choices.get(node.parent).text, 12)]));
}

/** Whether a re-draft wrote this token of the first draft once more: it leaves the first draft later than where it began. */
export function sharedWithRedraft(step, node) {
  if (!step.draft || !node.candidates.includes(0)) return false;
  return node.candidates.some((c) => c > 0 && step.branches[c - 1] && !isResample(step.branches[c - 1]) && step.branches[c - 1].prefix < node.depth);
}

/** The next node in a direction: up and down across lanes, sideways along the path. */
export function nextNode(step, layout, node, direction) {
  if (!step || !step.nodes.size) return null;
  if (node === null || !layout.lanes.has(node)) return step.accepted.length ? step.accepted[step.accepted.length - 1] : step.nodes.keys().next().value;
  const all = [...[...step.nodes.values()].filter((n) => layout.lanes.has(n.id)), ...(layout.lanes.has(BONUS) ? [{ id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth }] : [])];
  const here = all.find((n) => n.id === node);
  if (direction === "left") return here.parent >= 0 ? here.parent : node;
  if (direction === "right") {
    const next = all.filter((n) => n.parent === node);
    const path = next.find((n) => n.id === BONUS || n.state === "accepted");
    return (path || next.find((n) => layout.lanes.get(n.id) === layout.lanes.get(node)) || next[0] || here).id;
  }
  const side = direction === "up" ? -1 : 1;
  const lane = layout.lanes.get(node);
  const away = (n) => (layout.lanes.get(n.id) - lane) * side * 1000 + Math.abs(n.depth - here.depth);
  const beyond = all.filter((n) => (layout.lanes.get(n.id) - lane) * side > 0);
  return beyond.length ? beyond.reduce((a, b) => (away(b) < away(a) ? b : a)).id : node;
}
