// One step as the views need it: the recorded event with every number bounded and every reference checked.

import { list, number, text, whole } from "./dom.js";
import { readWork } from "./machine.js";
import { OUTCOMES, PROPOSERS, STAGES } from "./words.js";

const MOST_NODES = 4096;
const MOST_DEPTH = 512;

function readTop(top) {
  return list(top).slice(0, 5).map((a) => ({ id: a && a.id, text: text(a && a.text), p: number(a && a.probability, 0, 1, 0) }));
}

function readDraft(raw) {
  if (!raw || typeof raw !== "object") return null;
  return {
    drafter: raw.drafter === "second" ? "second" : "first",
    prefix: whole(raw.prefix, 0, MOST_DEPTH, 0),
    base: whole(raw.base, 0, MOST_NODES, 0),
    texts: list(raw.texts).slice(0, MOST_DEPTH).map(text),
    confidence: list(raw.confidence).slice(0, MOST_DEPTH).map((c) => number(c, 0, 1, 0)),
    alternatives: list(raw.alternatives).slice(0, MOST_DEPTH).map(readTop),
  };
}

function readNodes(raw) {
  const nodes = new Map();
  for (const n of list(raw).slice(0, MOST_NODES)) {
    const id = whole(n && n.id, 0, 1e9, -1);
    const parent = whole(n && n.parent, -1, 1e9, -1);
    // A parent comes before its children, so a node without a known parent (or a second root) cannot be drawn.
    if (id < 0 || nodes.has(id) || (nodes.size > 0 && !nodes.has(parent))) continue;
    nodes.set(id, {
      id,
      parent: nodes.size ? parent : -1,
      depth: nodes.size ? Math.min(MOST_DEPTH, nodes.get(parent).depth + 1) : 0,
      token: n.token,
      text: text(n.text),
      candidates: list(n.candidates).map((c) => whole(c, 0, MOST_NODES, 0)),
      proposer: PROPOSERS.includes(n.proposer) ? n.proposer : "first",
      state: ["root", "accepted", "rejected", "unreached"].includes(n.state) ? n.state : "unreached",
      drafterP: number(n.drafter_probability, 0, 1, null),
      targetP: number(n.target_probability, 0, 1, null),
      rank: whole(n.target_rank, 0, 1e9, null),
    });
  }
  return nodes;
}

/** Levels of a tree that grew one a pass: of the nodes that the next pass went on from, path probability and tree node. */
function readLevels(raw, nodes) {
  return list(raw).slice(0, MOST_DEPTH).map((level) => {
    const ids = list(level && level.nodes);
    return {
      scored: whole(level && level.scored, 0, 1e9, 0),
      best: list(level && level.scores).slice(0, MOST_NODES).map((score, at) => ({
        p: Math.exp(number(score, -1e9, 0, -1e9)),
        text: text(list(level.texts)[at]),
        node: nodes.has(ids[at]) ? nodes.get(ids[at]) : null,
      })),
    };
  });
}

/** What stands where a tree would be: an imported log that holds counts alone; empty where there is a tree to draw. */
export function lacking(missing) {
  if (missing.includes("tokens")) return "Tokens and confidences are not in this log: ▯ stands for each token.";
  return missing.includes("rejected") ? "The drafted tokens that were rejected, and confidences, are not in this log." : "";
}

/** `run`: names, what the proposers of this run are called; lacks, why there is no tree to draw, if so; sampled, whether the target drew its tokens; random, whether
 *  the re-drafted prefixes were drawn; weighted, whether nodes after one have a probability of both drafters; then its outcome. */
export function readStep(raw, index, run, { verdict, gained, closed } = readOutcome(null)) {
  const nodes = readNodes(raw.nodes);
  const choices = new Map(list(raw.choices).filter(Boolean).map((c) => [c.node, { token: c.token, text: text(c.text), p: number(c.probability, 0, 1, null) }]));
  const accepted = list(raw.accepted).filter((id) => nodes.has(id) && nodes.get(id).depth > 0);
  const committed = list(raw.committed).map(readCommitted);
  const draft = readDraft(raw.first_draft);
  const trained = draft ? list(list(raw.trained)[0]).slice(0, draft.texts.length).map((c) => number(c, 0, 1, 0)) : [];
  const step = {
    index,
    ...run,
    anchorText: text(raw.anchor_text),
    anchorPosition: whole(raw.anchor_position, 0, 1e9, 0),
    draft,
    trained,
    drafted: draft ? draft.texts.length : 0,
    branches: readBranches(raw),
    posterior: list(raw.boundary_posterior).slice(0, MOST_DEPTH).map((r) => number(r, 0, 1, 0)),
    full: number(raw.full_acceptance, 0, 1, 0),
    levels: readLevels(raw.levels, nodes),
    passes: whole(raw.draft_passes, 0, 1e6, null),
    nodes,
    choices,
    targetTops: new Map(list(raw.target_tops).slice(0, MOST_NODES).map((behind) => [behind && behind.node, readTop(behind && behind.top)])),
    accepted,
    committed,
    bonus: committed.find((c) => c.node === null) || null,
    seconds: readSeconds(raw.seconds),
    decision: readDecision(raw.decision),
    ...readBoundary(raw),
    verdict,
    gained,
    closed,
  };
  const last = accepted.at(-1) ?? nodes.keys().next().value;
  if (step.bonus && last !== undefined) {
    const choice = choices.get(last);
    // What the bonus adds to the text can be empty inside a character; the choice has the token's own text.
    step.bonus = { ...step.bonus, parent: last, depth: nodes.get(last).depth + 1, text: choice ? choice.text : step.bonus.text, p: choice ? choice.p : null };
  }
  // room for a bonus token behind the whole draft: the axis does not tell where the path ends
  step.columns = 1 + Math.max(draft ? step.drafted + 1 : 0, step.bonus?.depth || 0, ...[...nodes.values()].map((node) => node.depth));
  return step;
}

/** The drafts after the first. Where no prefixes were selected, one from the anchor itself is a resample. */
function readBranches(raw) {
  const resamples = !list(raw.selected_prefixes).length;
  const drafts = list(raw.branches).map(readDraft).filter(Boolean);
  return drafts.map((draft) => ({ ...draft, resampled: resamples && draft.drafter === "first" && draft.prefix === 0 }));
}

/** What a cost-aware step decided, of which options; null where the settings alone say what a step does. */
function readDecision(raw) {
  if (!raw || typeof raw !== "object") return null;
  const options = list(raw.options).slice(0, MOST_DEPTH).map((o) => ({
    size: whole(o && o.block_size, 0, MOST_DEPTH, 0),
    branches: whole(o && o.branches, 0, MOST_NODES, 0),
    tokens: number(o && o.tokens, 0, 1e6, 0),
    seconds: number(o && o.seconds, 0, 1e6, 0),
  }));
  const taken = options[whole(raw.taken, 0, MOST_DEPTH, -1)];
  return taken ? { options, taken, looking: raw.looking === true } : null;
}

const proposerOf = (value) => (PROPOSERS.includes(value) ? value : "target");

export function readCommitted(c) {
  return { text: text(c && c.text), proposer: proposerOf(c && c.proposer), node: c && Number.isInteger(c.node) ? c.node : null };
}

/** A committed token as it travels where its node does not matter: [text, proposer]. */
export function readToken(pair) {
  const [words, proposer] = list(pair);
  return { text: text(words), proposer: proposerOf(proposer) };
}

export const readSeconds = (raw) => Object.fromEntries(STAGES.map(([stage]) => [stage, number(raw && raw[stage], 0, 1e6, 0)]));

/** The line before a step, which d2sd/trace/metrics.py computes: `verdict`: one of OUTCOMES, or none (no prediction, or not seen);
 *  `gained`: tokens that re-drafts added; `closed`: the first place behind a drafted end of the text, or null; `work`: the rows
 *  of its passes, or null. */
export function readOutcome(raw) {
  return {
    verdict: raw && Object.hasOwn(OUTCOMES, raw.verdict) ? raw.verdict : "none",
    gained: whole(raw && raw.gained, 0, MOST_NODES, 0),
    closed: whole(raw && raw.closed, 0, MOST_DEPTH, null),
    work: readWork(raw && raw.work),
  };
}

/** Predicted prefixes, the true boundary, and as which of them it was predicted, from 1; 0: as none. */
function readBoundary(raw) {
  const selected = list(raw.selected_prefixes).slice(0, MOST_DEPTH).map((i) => whole(i, 0, MOST_DEPTH, 0));
  const boundary = whole(raw.actual_boundary, 0, MOST_DEPTH, null);
  return { selected, boundary, rank: boundary === null ? 0 : selected.indexOf(boundary) + 1 };
}

/** What the timeline and the totals need of a step, without reading its tree. */
export function summarise(raw, outcome) {
  const counts = { first: 0, second: 0, target: 0 };
  for (const c of list(raw.committed)) counts[readCommitted(c).proposer] += 1;
  const { boundary } = readBoundary(raw);
  const confidence = raw.first_draft ? list(raw.first_draft.confidence) : [];
  return {
    counts,
    redrafts: list(raw.branches).length,
    ...outcome,
    sureOfWrong: boundary === null ? null : number(confidence[boundary], 0, 1, null), // of the token that was rejected
    total: counts.first + counts.second + counts.target,
    boundary,
    nodes: list(raw.nodes).length,
    undrafted: Boolean(raw.decision) && !raw.first_draft && list(raw.nodes).length < 2,
    seconds: readSeconds(raw.seconds),
    elapsed: number(raw.elapsed, 0, 1e9, 0),
  };
}
