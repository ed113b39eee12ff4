// One step as the views need it. Whatever the server sends or writes into a file has passed d2sd/trace/checks.py: its fields have their
// types and bounds, and refer to what is there.

import { readWork } from "./machine.js";

const readTop = (top) => top.slice(0, 5).map(({ id, text, probability }) => ({ id, text, p: probability }));
const readDraft = (draft) => draft && { ...draft, alternatives: draft.alternatives.map(readTop) };

/** What stands where a tree would be: an imported log that holds counts alone; empty where there is a tree to draw. */
export function lacking(missing) {
  if (missing.includes("tokens")) return "Tokens and confidences are not in this log: ▯ stands for each token.";
  return missing.includes("rejected")
    ? "The drafted tokens that were rejected, and confidences, are not in this log."
    : "";
}

/** What came of a step of which nobody says it. */
export const NO_OUTCOME = { verdict: null, gained: 0, closed: null, work: null };

/** The line before a step, which d2sd/trace/metrics.py computes: `verdict`: one of OUTCOMES, or null (no prediction, or not seen);
 *  `gained`: tokens that re-drafts added; `closed`: the first place behind a drafted end of the text, or null; `work`: the rows
 *  of its passes, or null. */
export const readOutcome = ({ verdict, gained, closed, work }) => ({ verdict, gained, closed, work: readWork(work) });

/** `run`: names, what the proposers of this run are called; lacks, why there is no tree to draw, if so; sampled, whether the target drew its tokens; random, whether
 *  the re-drafted prefixes were drawn; weighted, whether nodes after one have a probability of both drafters; then its outcome. */
export function readStep(raw, index, run, { verdict, gained, closed } = NO_OUTCOME) {
  const nodes = new Map(
    raw.nodes.map((n) => [
      n.id,
      { ...n, drafterP: n.drafter_probability, targetP: n.target_probability, rank: n.target_rank },
    ]),
  );
  const choices = new Map(
    raw.choices.map(({ node, token, text, probability }) => [node, { token, text, p: probability }]),
  );
  const {
    accepted,
    committed,
    selected_prefixes: selected,
    actual_boundary: boundary,
    target_tops: tops = [],
    trained = [],
  } = raw;
  const draft = readDraft(raw.first_draft);
  const drafted = draft ? draft.texts.length : 0;
  const last = accepted.at(-1) ?? 0;
  const bonus = committed.find(({ node }) => node === null) ?? null;
  const choice = choices.get(last);
  const taken = raw.decision?.options[raw.decision.taken];
  const step = {
    index,
    ...run,
    anchorText: raw.anchor_text,
    anchorPosition: raw.anchor_position,
    draft,
    trained: trained[0] ?? [],
    drafted,
    // where no prefixes were selected, a draft from the anchor itself is a resample
    branches: raw.branches.map((branch) => ({
      ...readDraft(branch),
      resampled: !selected.length && branch.drafter === "first" && branch.prefix === 0,
    })),
    posterior: raw.boundary_posterior,
    full: raw.full_acceptance,
    // a tree that grew level by level: of the nodes that the next pass went on from, path probability and tree node
    levels: raw.levels.map(({ scored, scores, texts, nodes: ids }) => ({
      scored,
      best: scores.map((score, at) => ({ p: Math.exp(score), text: texts[at], node: nodes.get(ids[at]) ?? null })),
    })),
    passes: raw.draft_passes,
    nodes,
    choices,
    targetTops: new Map(tops.map(({ node, top }) => [node, readTop(top)])),
    accepted,
    committed,
    // what the bonus adds to the text can be empty inside a character; the choice has the token's own text
    bonus: bonus && {
      ...bonus,
      parent: last,
      depth: nodes.get(last).depth + 1,
      text: choice ? choice.text : bonus.text,
      p: choice ? choice.p : null,
    },
    seconds: raw.seconds,
    decision: taken ? { ...raw.decision, taken } : null, // what a cost-aware step decided
    selected,
    boundary,
    rank: selected.indexOf(boundary) + 1, // as which of them the boundary was predicted, from 1; 0: as none
    verdict,
    gained,
    closed,
  };
  // room for a bonus token behind the whole draft: the axis does not tell where the path ends
  step.columns =
    1 + Math.max(draft ? drafted + 1 : 0, step.bonus?.depth ?? 0, ...[...nodes.values()].map(({ depth }) => depth));
  return step;
}

/** A committed token as it travels where its node does not matter: [text, proposer]. */
export const readToken = ([text, proposer]) => ({ text, proposer });

/** What the timeline and the totals need of a step, without reading its tree. */
export function summarise(raw, outcome) {
  const { actual_boundary: boundary, nodes, seconds, elapsed } = raw;
  const counts = { first: 0, second: 0, target: 0 };
  for (const { proposer } of raw.committed) counts[proposer] += 1;
  return {
    counts,
    redrafts: raw.branches.length,
    ...outcome,
    sureOfWrong: boundary === null ? null : (raw.first_draft.confidence[boundary] ?? null), // of the token that was rejected
    total: raw.committed.length,
    boundary,
    nodes: nodes.length,
    undrafted: Boolean(raw.decision) && !raw.first_draft && nodes.length < 2,
    seconds,
    elapsed,
  };
}
