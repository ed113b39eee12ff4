// Explains a step, its boundary and its nodes in plain sentences.

import { best } from "./dom.js";
import { oddsAfter } from "./sampling.js";
import {
  capital,
  count,
  countInWords,
  inWords,
  joined,
  ordinal,
  afterToken,
  percent,
  plain,
  probability,
  quoted,
  share,
} from "./words.js";

/**
 * Returns who proposed the accepted tokens: `right` tokens of the first draft, then the `parts` from other sources, in order.
 *
 * A part has `added` (number of tokens), `proposer` and `drafts`: the re-drafts that contain the part (several if these are equal, none
 * for a drafter's lower-ranked choices). Parts match the lanes of the tree: a part follows one candidate as far as possible.
 */
export function contributions(step) {
  const path = step.accepted.map((id) => step.nodes.get(id));
  let right = 0;
  while (right < path.length && path[right].candidates.includes(0)) right += 1;
  const parts = [];
  for (const node of path.slice(right)) {
    const last = parts.at(-1);
    const goesOn =
      last &&
      (last.candidate === null
        ? !node.candidates.some((c) => c > 0) && last.proposer === node.proposer
        : node.candidates.includes(last.candidate) && draftAt(step, last.candidate, node.depth) === last.draft);
    if (goesOn) last.nodes.push(node);
    else {
      const candidate = furthest(node, path);
      parts.push({ candidate, draft: draftAt(step, candidate, node.depth), proposer: node.proposer, nodes: [node] });
    }
  }
  for (const part of parts)
    Object.assign(part, { added: part.nodes.length, drafts: part.draft ? draftsThrough(step, part.nodes) : [] });
  return { right, parts };
}

/** The re-draft through `node` that shares the most nodes with `path`; null if no re-draft contains the node. */
function furthest(node, path) {
  const shared = (candidate) => path.filter((other) => other.candidates.includes(candidate)).length;
  const redrafts = node.candidates.filter((candidate) => candidate > 0);
  return best(redrafts, shared) ?? null;
}

/** The re-draft that wrote the token of a candidate at this depth; null if the first draft or no draft wrote it. */
const draftAt = (step, candidate, depth) => lineage(step, candidate).findLast((d) => d.prefix < depth) || null;

/** The re-drafts that wrote all of these nodes, which lie on one path; several if re-drafts have equal tokens. */
export function draftsThrough(step, nodes) {
  const common = nodes[0].candidates.filter((c) => c > 0 && nodes.every((node) => node.candidates.includes(c)));
  return [...new Set(common.map((c) => draftAt(step, c, nodes[0].depth)))].filter(Boolean);
}

/** A common name for several re-drafts. */
export function draftsName(drafts) {
  const [first] = drafts;
  if (drafts.length === 1) return branchName(first);
  if (first.resampled) return `${drafts.length} equal resampled drafts`;
  const from = (level) =>
    [...new Set(drafts.filter((d) => d.base > 0 === level).map((d) => d.prefix))].sort((a, b) => a - b);
  const named = (noun, prefixes) =>
    prefixes.length
      ? `${noun}${prefixes.length > 1 ? "s" : ""} that start ${joined(prefixes.map((prefix) => afterToken(prefix, true)))}`
      : "";
  return [named("second draft", from(false)), named("third draft", from(true))].filter(Boolean).join(" and ");
}

/** Groups of re-drafts with equal tokens, which the target verified only once. */
export function equalDrafts(step) {
  const routes = new Map();
  for (const node of step.nodes.values())
    for (const c of node.candidates) if (c > 0) routes.set(c, (routes.get(c) || "") + " " + node.id);
  const groups = new Map();
  for (const [c, route] of routes) groups.set(route, [...(groups.get(route) || []), step.branches[c - 1]]);
  return [...groups.values()].filter((group) => group.length > 1);
}

/** A re-draft and the re-drafts that it continues, the earliest first; empty for the first draft. */
function lineage(step, candidate) {
  const drafts = [];
  for (let c = candidate; c > 0; c = step.branches[c - 1].base) drafts.unshift(step.branches[c - 1]);
  return drafts;
}

export const inTree = (level) => level.best.filter(({ node }) => node).length;

/** A note for the strip of a tree that grew level by level; strip.js splits it at ": ". */
export function levelWords(step) {
  return `${step.levels.length} draft passes, one per level: this method does not predict where the draft breaks.`;
}

/** A step in words: a title with the number of tokens, and pieces with the proposers; `kind` sets the colour of a piece. `read`: which part
 *  of the drafts was verified, "" or undefined for all. */
export function stepStory(step) {
  const tokens = step.committed.length;
  if (isPlain(step)) {
    const why = "nothing was drafted.";
    const pieces = step.bonus ? onlyToken(why) : [{ text: capital(why) }];
    return { title: tokens ? "One token in one pass." : "Nothing was written.", pieces };
  }
  return {
    title: tokens > 1 ? `${capital(inWords(tokens))} tokens in one pass.` : "One token: no gain this time.",
    pieces: storyPieces(step),
    read: step.whole ? `${step.nodes.size} of ${step.whole} nodes read` : "",
  };
}

/** Like `stepStory`, as one text. */
export const stepSentence = (step) => {
  const { title, pieces, read } = stepStory(step);
  return `${title} ${plain(pieces)}${read ? ` ${read}.` : ""}`;
};

const OWN = ["the large model", "target"];
const tokensFrom = (tokens, [who, kind]) => ({ text: `${tokens} from ${who}`, kind });
const onlyToken = (why) => [
  { text: "The only token is from " },
  { text: OWN[0], kind: OWN[1] },
  { text: ` itself: ${why}` },
];

const firstName = ({ names, branches, selected }) =>
  names.first !== "first drafter"
    ? `the ${names.first}`
    : branches.length || selected.length
      ? "the first draft"
      : "the draft";

function storyPieces(step) {
  const { right, parts } = contributions(step);
  const ofFirst = step.levels.length ? step.accepted.length : right;
  const items = ofFirst ? [[tokensFrom(ofFirst, [firstName(step), "first"])]] : [];
  for (const { added, drafts, proposer } of step.levels.length ? [] : parts) {
    const who = !drafts.length
      ? "the drafter’s lower-ranked choices"
      : drafts[0].resampled
        ? "another draft"
        : "a second draft";
    const ready = drafts.length && parts.length === 1 && ofFirst && step.bonus ? readyWords(drafts, right) : "";
    items.push([tokensFrom(added, [who, proposer]), ...(ready ? [{ text: ready }] : [])]);
  }
  const reasons = [ofFirst ? "" : firstWrong(step), parts.length ? "" : noBetter(step, ofFirst)];
  const after = [reasons.filter(Boolean).join(", and "), endWords(step)].filter(Boolean).join("; ");
  if (!items.length) return step.bonus ? onlyToken(`${after}.`) : [{ text: `${capital(after)}.` }];
  if (step.bonus) items.push([tokensFrom(1, OWN), { text: " itself" }]);
  const listed = items.flatMap((item, at) => [
    ...(at ? [{ text: at < items.length - 1 ? ", " : items.length > 2 ? ", and " : " and " }] : []),
    ...item,
  ]);
  return [...listed, { text: after ? `; ${after}.` : "." }];
}

/** How many tokens before the boundary these second drafts had started; `right`: accepted tokens of the first draft. */
function readyWords(drafts, right) {
  const early = right - Math.max(...drafts.map(({ prefix }) => prefix));
  return early > 0
    ? ` that had started ${countInWords(early, "token")} before the break`
    : " that had started where the first one broke";
}

function firstWrong(step) {
  const there = [...step.nodes.values()].some((n) => n.depth === 1 && (n.candidates.includes(0) || step.levels.length));
  if (!there && step.boundary === null) return "the tree left out the first guess";
  return step.sampled ? "the first guess was not the token drawn" : "the first guess was rejected";
}

/** Why second drafts did not help where the first one broke. */
function noBetter(step, ofFirst) {
  if (!step.branches.length || !step.bonus || step.boundary === step.drafted || step.boundary === null) return "";
  const started = `started ${ofFirst ? "where the first one broke" : "at the anchor"}`;
  const there = step.branches.filter(({ prefix }) => prefix === step.boundary);
  if (there.length && there.every(({ unread }) => unread))
    return `a second draft that ${started} was prepared, not read`;
  const said = { found: `a second draft that ${started} did no better`, missed: `no second draft ${started}` };
  return said[step.verdict] ?? "the other drafts added nothing";
}

function endWords({ bonus, ending }) {
  if (bonus) return "";
  return ending === "max_new_tokens" ? "the limit on tokens ends the text here" : "the text ends here";
}

/** The options that a cost-aware step compared; empty if it made no decision. */
export function decisionWords(step) {
  if (!step.decision) return "";
  const { options, taken, looking } = step.decision;
  const rate = (o) => (o.seconds > 0 ? o.tokens / o.seconds : 0);
  const ms = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
  const says = [];
  if (!taken.block_size) {
    const other = best(
      options.filter((o) => o.block_size),
      rate,
    );
    if (other)
      says.push(
        `A block of ${other.block_size} was expected to write ${other.tokens.toFixed(1)} tokens in ${ms(other.seconds)}, the large model alone 1 in ${ms(taken.seconds)}.`,
      );
  } else {
    // Options that were considered after the first draft come last; the first of them has no re-draft.
    const bare = options.findLast((o) => o.block_size === taken.block_size && !o.branches);
    const other = taken.branches
      ? taken
      : best(
          options.filter((o) => o.block_size === taken.block_size && o.branches),
          rate,
        );
    if (other && bare)
      says.push(
        `${taken.branches ? "Re-drafts" : "Re-draft skipped"}: +${(other.tokens - bare.tokens).toFixed(1)} tokens expected for ${ms(other.seconds - bare.seconds)}.`,
      );
  }
  if (looking) says.push("This option was not expected to pay; it was tried again to update the estimates.");
  return says.join(" ");
}

/** Whether the first draft's token at position `k` (from 1) was "right" or "wrong"; "unseen" if the target did not check it. */
export function fateOf(step, k) {
  const right = step.boundary ?? contributions(step).right;
  if (k <= right) return "right";
  return step.boundary !== null && k === right + 1 ? "wrong" : "unseen";
}

/** The whole step in one line, for screen readers. */
export function stepSummary(step, total, growing = false) {
  return `Step ${step.index + 1} of ${total}${growing ? " so far" : ""}. ${stepSentence(step)} ${boundaryWords(step)}`;
}

/** Where the first draft broke, whether that was predicted, and whether second drafts helped. */
export function boundaryWords(step) {
  const { draft, boundary, verdict, rank, gained, random } = step;
  if (!draft) return "";
  if (boundary === null)
    return "It is not known where the first draft would have broken: the text or the tree ended before this place.";
  if (verdict === "all") return "The whole first draft was accepted.";
  const broke = `The first draft broke ${afterToken(boundary)}`;
  if (verdict === null) return `${broke}.`;
  const expected = random
    ? rank
      ? ", a place drawn at random"
      : ", which was not among the randomly drawn places"
    : rank
      ? `, the ${rank > 1 ? `${ordinal(rank)} ` : ""}likeliest place`
      : ", which was not among the expected places";
  const came = {
    repaired: `: second drafts rescued it and added ${count(gained, "token")}`,
    found: ": a second draft started there, but added nothing",
    missed: ": no second draft started there",
  };
  return `${broke}${expected}${came[verdict]}.`;
}

/** The draft that wrote a node's token, and the token's index in this draft, counted after the prefix of a re-draft. */
function originOf(step, node) {
  for (const c of node.candidates) {
    const draft = c === 0 ? step.draft : step.branches[c - 1];
    const index = draft ? node.depth - 1 - draft.prefix : -1;
    if (index >= 0 && index < draft.texts.length) return { draft, index, branch: c > 0 };
  }
  return null;
}

export function originWords(step, node) {
  if (node.depth === 0) return "anchor";
  const origin = originOf(step, node);
  if (!origin && step.levels.length) return `level ${node.depth} of the ${step.names.first}’s tree`;
  if (!origin) return `a lower-ranked choice of the ${step.names[node.proposer]}`;
  return origin.branch ? branchName(origin.draft) : "first draft";
}

function branchName(draft) {
  if (draft.resampled) return "resampled draft";
  return `${draft.base > 0 ? "third" : "second"} draft that starts ${afterToken(draft.prefix)}`;
}

const chance = (p) => ((p ?? null) === null ? "" : ` (p\u00a0=\u00a0${probability(p)})`);

export function nodeSentence(step, node) {
  const wanted = step.choices.get(node.parent);
  if (node.state === "root") return "Anchor: every draft of this step continues from here.";
  if (node.state === "accepted")
    return `Accepted: the large model ${step.sampled ? "drew" : "chose"} this token${chance(node.targetP)}.`;
  if (node.state === "rejected") {
    const could =
      step.sampled && node.targetP > 0 ? ` This token could have been drawn too${chance(node.targetP)}.` : "";
    return `Rejected: the large model ${step.sampled ? "drew" : "chose"} ${wanted ? quoted(wanted.text) + chance(wanted.p) : "another token here"}.${could}`;
  }
  for (let above = step.nodes.get(node.parent); above; above = step.nodes.get(above.parent)) {
    if (above.state === "rejected") return "Not reached: an earlier token on this path was rejected.";
  }
  return step.ending === "max_new_tokens"
    ? "Not reached: the limit on tokens ends the text before this token."
    : "Not reached: the text ends before this token.";
}

const isPlain = (step) => !step.draft && step.nodes.size < 2;

export function bonusSentence(step) {
  const wish = `the large model’s own ${step.sampled ? "draw" : "choice"}`;
  if (isPlain(step)) return `${capital(wish)}${chance(step.bonus.p)}: nothing was drafted. It is the next anchor.`;
  return `Bonus token: ${wish} after the ${step.accepted.length ? "accepted path" : "anchor"}${chance(step.bonus.p)}. It is the next anchor.`;
}

/** Whether a node's probability combines both drafters (method `d2sd_tree`). It does if a re-draft starts from a prefix of the node's
 *  path, and both drafters drafted the position of the node. */
export function ofBoth(step, node) {
  if (!step.weighted || node.depth < 1 || node.depth > step.drafted) return false;
  let shared = 0; // length of the path's common prefix with the first draft
  for (let above = step.nodes.get(node.parent); above && above.depth; above = step.nodes.get(above.parent))
    shared = above.candidates.includes(0) ? shared + 1 : 0;
  return step.branches.some(({ prefix }) => prefix <= shared);
}

/** The drafter's top tokens at this node's position; `own` marks the node's token, `wanted` the target's choice. */
export function alternativesOf(step, node) {
  const origin = originOf(step, node);
  return marked(step, node, origin && origin.draft.alternatives[origin.index]);
}

/** The tokens that the target could choose at this node's position, with the same marks; empty in older traces. */
export const targetTopOf = (step, node) =>
  marked(
    step,
    node,
    oddsAfter(step, node.parent).filter(({ id }) => id >= 0),
  );

function marked(step, node, top) {
  const wanted = step.choices.get(node.parent);
  return (top || []).map((a) => ({ ...a, own: a.id === node.token, wanted: Boolean(wanted) && a.id === wanted.token }));
}

export const rankWords = (rank) => (rank === null ? "—" : rank === 0 ? "favourite" : `number ${rank + 1}`);

/** The noise of a token that the target could draw, and the sum of log probability and noise; "" if unknown. */
export function scoreWords({ noise }, { id, p }) {
  const drawnNoise = noise.get(id);
  if (drawnNoise === undefined || !(p > 0)) return "";
  const signed = (x) => x.toFixed(2).replace("-", "−");
  return `${drawnNoise < 0 ? "" : "+"}${signed(drawnNoise)} → ${signed(Math.log(p) + drawnNoise)}`;
}

/** What the textbook rule (speculative sampling, arXiv 2211.17192) would have done with the token of a visited node. */
export function textbookWords(step, node) {
  const draw = step.draws.get(node.parent);
  if (!node.drafterP || node.targetP === null || ofBoth(step, node)) return "";
  const [p, q] = [node.targetP, node.drafterP];
  const rule = `Textbook rule, for guesses that the drafter draws: accepted with probability min(1, ${probability(p)} ÷ ${probability(q)}) = ${share(Math.min(1, p / q))}`;
  const left = draw.rejected === node.id ? draw.residual.filter((other) => other.p >= 0.005) : [];
  const rest = left.slice(0, 3).map((other) => `${quoted(other.text)} (${percent(other.p)})`);
  return `${rule}${rest.length ? `, else replaced by a draw from p − q: ${rest.join(", ")} or others` : ""}. Both rules give the large model’s distribution.`;
}
