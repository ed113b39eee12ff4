// What is written in the nodes of the tree and over its lanes, and how wide that makes them.

import { WORDLESS } from "./columns.js";
import { draftsName, draftsThrough } from "./explain.js";
import { BONUS } from "./tree_layout.js";
import { fitLabel, nodeFont, PADDING } from "./tree_shapes.js";

export const BOLD = 1.15; // how much wider bold words are
const AIR = 5; // pixels between a name and the line of the true boundary

/** The word in every node of a step, and the width of its shape, by node: two maps. */
export function nodeWords(step, columns, family) {
  const [words, widths] = [new Map(), new Map()];
  const put = (id, depth, value, bold, least, padding) => {
    const column = columns.width(depth);
    const room = column - (columns.slim ? PADDING.slim : 5) - padding;
    const fitted = fitLabel(value, room, nodeFont(bold, family));
    const blank = columns.slim && (column < WORDLESS || fitted.width + padding > column - 1);
    words.set(id, blank ? "" : fitted.words);
    widths.set(id, blank ? Math.max(5, Math.min(column - 3, WORDLESS)) : Math.max(least, fitted.width + padding));
  };
  for (const node of step.nodes.values()) put(node.id, node.depth, node.text, node.state === "accepted", columns.slim ? 18 : 28, PADDING.node);
  if (step.bonus) put(BONUS, step.bonus.depth, step.bonus.text, true, columns.slim ? 24 : 34, PADDING.target);
  return { words, widths };
}

/** Names a lane where it begins: the first draft, or the prefix that a re-draft started from, and what it brought. */
export function chainLabel({ step, columns, widths, small }, chain) {
  const trunk = chain.lane === 0 && chain.first.depth === 0;
  const main = trunk && Boolean(chain.nodes[1]) && chain.nodes[1].candidates.includes(0); // a node budget may have left the first draft out
  const at = trunk ? chain.nodes[1] : chain.first;
  if (!step.draft || !at || at.id === BONUS) return null;
  const accepted = chain.nodes.filter((n) => n.state === "accepted" && (!main || n.candidates.includes(0)));
  const drafts = main ? [] : draftsThrough(step, accepted.length ? accepted : [at]);
  if (!main && !drafts.length) return null;
  const slim = columns.slim; // a long name would lie across stems and the true boundary
  let words = main ? "first draft" : draftsName(drafts).replace(slim ? /^re-drafts? / : "", "");
  const [only] = drafts;
  const leaves = at.depth - 1;
  if (drafts.length === 1 && only.base === 0 && only.prefix < leaves && step.nodes.get(at.parent).candidates.includes(0)) words += `, differs after ${leaves}`;
  const won = accepted.length;
  if (won) words += main ? ` · ${won} ${step.sampled ? "drawn" : "right"}` : ` · ${slim ? "+" : "added "}${won}`;
  const width = small(words) * (won ? BOLD : 1);
  const [start, end] = [columns.x(-0.5), columns.x(step.columns - 0.5) - width - 2]; // no further to the right than the block goes
  const x = Math.max(start, Math.min(end, columns.x(at.depth) - widths.get(at.id) / 2));
  return { words, won, kind: at.proposer, x: step.boundary === null ? x : clearOf(columns.x(step.boundary + 0.5), x, width, [start, end], main) };
}

/** Where words that begin at `x` begin so that they do not lie across a line: behind it, or before it if they are rather there
 *  (`ahead`) or there is no room behind; where they were if there is none at all between `start` and `end`. */
export function clearOf(line, x, width, [start, end], ahead = false) {
  if (x > line + AIR || x + width < line - AIR) return x;
  const [before, behind] = [line - AIR - width, line + AIR];
  const fit = [behind <= end ? behind : null, before >= start ? before : null].filter((at) => at !== null);
  return (ahead ? fit.at(-1) : fit[0]) ?? x;
}
