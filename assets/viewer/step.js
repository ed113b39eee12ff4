// One step in the form that the views need. Everything that the server sends or writes into a file has passed d2sd/trace/checks.py:
// types, bounds and references are valid.

import { readWork } from "./machine.js";
import { quoted } from "./words.js";

export const BONUS = "bonus"; // id of the bonus token, which is no node of the tree
/** The fields of every bonus token. */
export const BONUS_NODE = { id: BONUS, proposer: "target", state: "bonus", candidates: [] };

/** A node of a step, its bonus token, or a token of the user's draft (`yours`). */
export const nodeOf = (step, id) => (id === BONUS ? step.bonus : (step.nodes.get(id) ?? step.yours?.nodes.get(id)));

/** The tokens of a draft that the user typed, as nodes by id; their `name` says whose they are, and their fate. */
export const typedNodes = ({ tokens, accepted, wanted }) =>
  new Map(
    tokens.map(({ text, p }, at) => {
      const state = at < accepted ? "accepted" : at === accepted && wanted !== null ? "rejected" : "unreached";
      const name = `you: ${quoted(text.replace(/^ (?=\S)/, ""))}, ${state === "unreached" ? "not reached" : state}`;
      const [parent, id] = [at ? `you ${at}` : 0, `you ${at + 1}`];
      return [id, { id, parent, depth: at + 1, text, p, state, name, proposer: "yours", candidates: [] }];
    }),
  );

const readTop = (top) => top.slice(0, 5).map(({ id, text, probability }) => ({ id, text, p: probability }));
const readDraft = (draft) => draft && { ...draft, alternatives: draft.alternatives.map(readTop) };

/** A sentence that replaces the tree if an imported log lacks its tokens, else "". */
export function lacking(missing) {
  if (missing.includes("tokens")) return "This log has no tokens and no confidences: ▯ stands for each token.";
  return missing.includes("rejected") ? "This log has no confidences and no rejected tokens." : "";
}

/** The drafted tokens that the node budget left out of the tree, as nodes; `at`: the node of the tree that they follow. */
function leftOut({ first_draft: first, branches, nodes }) {
  const byToken = new Map(nodes.map((node) => [`${node.parent} ${node.token}`, node]));
  const [chains, left] = [[], []];
  [first, ...branches].forEach((draft, c) => {
    if (!draft) return;
    const written = draft.ids.map((token, at) => ({ token, text: draft.texts[at], drafterP: draft.confidence[at] }));
    chains[c] = [...(chains[draft.base]?.slice(0, draft.prefix) ?? []), ...written];
    let above = nodes[0];
    for (const [at, token] of chains[c].entries()) {
      const key = `${above.id} ${token.token}`;
      let node = byToken.get(key);
      if (!node) {
        const place = { id: `left ${left.length}`, parent: above.id, depth: at + 1, at: above.at ?? above.id };
        node = { ...token, ...place, candidates: [], proposer: draft.drafter, state: "unreached" };
        byToken.set(key, node);
        left.push(node);
      }
      if (node.at !== undefined) node.candidates.push(c);
      above = node;
    }
  });
  return left;
}

/** The outcome of a step without an outcome line. */
export const NO_OUTCOME = { verdict: null, gained: 0, closed: null, work: null };

/** The outcome line before a step, from d2sd/trace/metrics.py. `verdict`: one of OUTCOMES, or null (no prediction, or boundary unknown);
 *  `gained`: tokens that re-drafts added; `closed`: the first position after a drafted end of the text, or null; `work`: rows of the
 *  step's passes, or null. */
export const readOutcome = ({ verdict, gained, closed, work }) => ({ verdict, gained, closed, work: readWork(work) });

/**
 * A step for the views, from its line `raw`.
 *
 * run: facts of the run: `names` of the proposers; `lacks`: why there is no tree, or ""; `sampled`: whether the target sampled its
 *   tokens; `random`: whether the re-drafted prefixes were drawn at random; `weighted`: whether nodes after a re-drafted prefix have the
 *   weighted probability of both drafters
 * outcome: the result of `readOutcome`
 */
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
  const left = run.lacks ? [] : leftOut(raw);
  const step = {
    index,
    ...run,
    anchorText: raw.anchor_text,
    anchorPosition: raw.anchor_position,
    draft,
    trained: trained[0] ?? [],
    drafted,
    // if no prefixes were selected, another draft of the first drafter from the anchor is a resampled draft
    // `unread`: none of its tokens was verified
    branches: raw.branches.map((branch, at) => ({
      ...readDraft(branch),
      resampled: !selected.length && branch.drafter === "first" && branch.prefix === 0,
      unread: left.some(({ candidates, depth }) => candidates.includes(at + 1) && depth === branch.prefix + 1),
    })),
    posterior: raw.boundary_posterior,
    full: raw.full_acceptance,
    // levels of a drafted tree: path probability and tree node of the candidates that the next pass continued
    levels: raw.levels.map(({ scored, scores, texts, nodes: ids }) => ({
      scored,
      best: scores.map((score, at) => ({ p: Math.exp(score), text: texts[at], node: nodes.get(ids[at]) ?? null })),
    })),
    passes: raw.draft_passes,
    nodes,
    left,
    // size of the tree of all drafts, if the verified tree is a part of it
    whole: left.length && raw.nodes.every(({ candidates }) => candidates.length) ? nodes.size + left.length : null,
    choices,
    targetTops: new Map(tops.map(({ node, top }) => [node, readTop(top)])),
    draws: new Map(
      (raw.draws ?? []).map(({ node, tokens, noise, rejected, residual }) => [
        node,
        { noise: new Map(tokens.map((token, at) => [token, noise[at]])), rejected, residual: readTop(residual) },
      ]),
    ),
    accepted,
    committed,
    // the committed text of a bonus inside a multi-token character can be empty; the choice has the text of the token
    bonus: bonus && {
      ...bonus,
      ...BONUS_NODE,
      parent: last,
      depth: nodes.get(last).depth + 1,
      text: choice?.text ?? bonus.text,
      p: choice?.p ?? null,
    },
    seconds: raw.seconds,
    decision: taken ? { ...raw.decision, taken } : null, // of a cost-aware step
    selected,
    boundary,
    rank: selected.indexOf(boundary) + 1, // rank of the boundary among the selected prefixes, from 1; 0 if not selected
    verdict,
    gained,
    closed,
  };
  // always one column for a bonus token after the draft: the width must not reveal where the path ends
  step.columns =
    1 + Math.max(draft ? drafted + 1 : 0, step.bonus?.depth ?? 0, ...[...nodes.values()].map(({ depth }) => depth));
  return step;
}

/** The fields of a step that the timeline and the totals need; its tree is not read. */
export function summarise(raw, outcome) {
  const { actual_boundary: boundary, nodes, seconds, elapsed } = raw;
  const counts = { first: 0, second: 0, target: 0 };
  for (const { proposer } of raw.committed) counts[proposer] += 1;
  return {
    counts,
    redrafts: raw.branches.length,
    ...outcome,
    sureOfWrong: boundary === null ? null : (raw.first_draft.confidence[boundary] ?? null), // confidence of the rejected token
    total: raw.committed.length,
    boundary,
    nodes: nodes.length,
    undrafted: Boolean(raw.decision) && !raw.first_draft && nodes.length < 2,
    seconds,
    elapsed,
  };
}
