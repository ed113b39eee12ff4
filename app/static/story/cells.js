// What the drawing of the story shows of a step: a row for every draft, a cell for every token, from the nodes of its tree.

/** The token at which the accepted path ends; null where nothing was accepted. */
const lastAccepted = (step) => (step.accepted.length ? step.nodes.get(step.accepted[step.accepted.length - 1]) : null);

/** The draft whose tokens the target accepted last, 0 for the first draft; null where nothing was accepted. */
export function winnerOf(step) {
  const last = lastAccepted(step);
  return last && last.candidates.length ? Math.min(...last.candidates) : null;
}

/** Whether the step can be told: all of its nodes belong to a first draft or to re-drafts of it. */
export const canTell = (step) => Boolean(step && step.draft && step.boundary !== null && step.nodes.size > 1 && [...step.nodes.values()].every((n) => n.depth === 0 || (n.candidates.length && Math.max(...n.candidates) <= step.branches.length)));

/** How many places are drawn: those of the text that the step brings and a few more, of `most`. */
export function placesOf(step, most) {
  const deepest = Math.max(step.drafted, ...[...step.nodes.values()].map((n) => n.depth));
  return Math.min(most, deepest, Math.max(step.committed.length, step.boundary + 4, 6));
}

/** Rows of the drawing, first draft first: its candidate number, its name and its cells. `most`: re-drafts at most; the one that
 *  won is among them. A cell is `own` where no row above has its node, and `kept` where the target accepted it. */
export function rowsOf(step, places, most) {
  const numbers = step.branches.map((_, at) => at + 1);
  const winner = winnerOf(step);
  const shown = numbers.slice(0, most);
  if (winner > most) shown[most - 1] = winner;
  const accepted = new Set(step.accepted);
  const seen = new Set();
  return [0, ...shown].map((candidate) => {
    const nodes = [...step.nodes.values()].filter((n) => n.depth > 0 && n.depth <= places && n.candidates.includes(candidate));
    const cells = nodes.map((n) => ({ id: n.id, parent: n.parent, place: n.depth, text: n.text, own: !seen.has(n.id), kept: accepted.has(n.id) }));
    for (const { id } of cells) seen.add(id);
    return { candidate, name: candidate ? `from ${step.branches[candidate - 1].prefix}` : "draft", cells };
  });
}
