// Why things are as they are, in plain sentences: for a step, its boundary and a node.

/**
 * Who brought the accepted tokens: `kept` of the first draft, then the `parts` that others added, in order. A part has
 * the number of tokens, its proposer, and the draft that it comes from (null: a drafter's lower-ranked choices).
 */
function contributions(step) {
  const path = step.accepted.map((id) => step.nodes.get(id));
  let kept = 0;
  while (kept < path.length && path[kept].candidates.includes(0)) kept += 1;
  const parts = [];
  for (let at = kept; at < path.length; ) {
    const { candidate, end } = longestRun(step, path, at);
    const drafts = lineage(step, candidate);
    for (; at < end; at += 1) {
      const { depth, proposer } = path[at];
      const draft = drafts.findLast((d) => d.prefix < depth) || null;
      const last = parts[parts.length - 1];
      if (last && last.draft === draft && (draft || last.proposer === proposer)) last.added += 1;
      else parts.push({ added: 1, draft, proposer });
    }
  }
  return { kept, parts };
}

/** The candidate whose own tokens go on longest from this place of a path, of equals the one that was drafted from right
 *  there; 0 for a token that is none's. */
function longestRun(step, path, start) {
  let best = { candidate: 0, end: start + 1 };
  const fromHere = (candidate) => candidate > 0 && Boolean(step.branches[candidate - 1]) && step.branches[candidate - 1].prefix === start;
  for (const candidate of path[start].candidates) {
    let end = start;
    while (end < path.length && path[end].candidates.includes(candidate)) end += 1;
    const better = end > best.end || !best.candidate || (end === best.end && fromHere(candidate) && !fromHere(best.candidate));
    if (candidate > 0 && better) best = { candidate, end };
  }
  return best;
}

/** A re-draft and those that it goes on from, the earliest first; empty for the first draft. */
function lineage(step, candidate) {
  const drafts = [];
  for (let c = candidate; c > 0 && step.branches[c - 1]; ) {
    const draft = step.branches[c - 1];
    drafts.unshift(draft);
    c = draft.base < c ? draft.base : 0;
  }
  return drafts;
}

function stepSentence(step) {
  const bonus = step.bonus ? [{ text: "the target wrote " }, { text: quoted(step.bonus.text), kind: "target" }] : null;
  if (!step.draft) {
    const why = step.decision ? "Nothing was drafted: " : "Plain decoding drafts nothing: ";
    return [{ text: why }, ...(bonus || [{ text: "nothing was written" }]), { text: "." }, ...decisionPieces(step)];
  }
  const { kept, parts } = contributions(step);
  const who = capital(step.names.first);
  const pieces = [];
  if (kept === step.drafted && kept > 0) {
    pieces.push({ text: `All ${kept} tokens of the first draft`, kind: "first" }, { text: " were right" });
  } else if (kept) {
    pieces.push({ text: `${who} got ${kept} right`, kind: "first" });
  } else {
    pieces.push({ text: `${who}’s first token was wrong`, kind: "first" });
  }
  for (const { added: tokens, draft, proposer } of parts) {
    const source = draft ? `the ${branchName(draft)}` : tokens > 1 ? "lower-ranked choices" : "a lower-ranked choice";
    pieces.push({ text: "; " }, { text: `${source} added ${tokens}${kept && parts.length === 1 ? " more" : ""}`, kind: proposer });
  }
  if (!parts.length && step.branches.length && kept < step.drafted && step.bonus) {
    const resampled = step.branches.every(isResample);
    pieces.push({ text: step.verdict === "miss" ? "; no re-draft started there" : `; the ${resampled ? "resampled drafts" : "re-drafts"} added nothing` });
  }
  if (bonus) pieces.push({ text: "; then " }, ...bonus, { text: "." });
  else pieces.push({ text: step.ending === "max_new_tokens" ? "; the limit on tokens ends the text here." : "; the text ends here." });
  return [...pieces, ...decisionPieces(step)];
}

/** What a cost-aware step weighed against each other, as pieces of its sentence. */
function decisionPieces(step) {
  if (!step.decision) return [];
  const { options, taken, looking } = step.decision;
  const rate = (o) => (o.seconds > 0 ? o.tokens / o.seconds : 0);
  const best = (among) => among.reduce((a, b) => (!a || rate(b) > rate(a) ? b : a), null);
  const ms = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
  const says = [];
  if (!taken.size) {
    const other = best(options.filter((o) => o.size));
    if (other) says.push(`A draft of ${other.size} promised ${other.tokens.toFixed(1)} tokens in ${ms(other.seconds)}, the target alone 1 in ${ms(taken.seconds)}.`);
  } else {
    // Options with the first draft at hand come last and begin with the one that adds no re-draft.
    const bare = options.findLast((o) => o.size === taken.size && !o.branches);
    const other = taken.branches ? taken : best(options.filter((o) => o.size === taken.size && o.branches));
    if (other) says.push(`${taken.branches ? "Re-drafts" : "Re-draft skipped"}: +${(other.tokens - bare.tokens).toFixed(1)} tokens expected for ${ms(other.seconds - bare.seconds)}.`);
  }
  if (looking) says.push("It was tried to see whether it pays by now.");
  return says.map((said) => ({ text: ` ${said}` }));
}

/** What became of the first draft's token at position `k`, from 1: "right", "wrong", or "unseen" by the target. */
function fateOf(step, k) {
  const right = step.boundary ?? contributions(step).kept;
  if (k <= right) return "right";
  return step.boundary !== null && k === right + 1 ? "wrong" : "unseen";
}

/** The whole step in one line for those who do not see the tree. */
function stepSummary(step, total) {
  const tokens = count(step.committed.length, "token");
  return `Step ${step.index + 1} of ${total}: ${tokens} committed. ${plain(stepSentence(step))} ${boundaryWords(step).long}`;
}

function boundaryWords(step) {
  if (!step.draft) return { short: "", long: "" };
  if (step.boundary === null) return { short: "not seen", long: "The boundary was not seen: the text ended first." };
  if (step.verdict === "all") return { short: "all accepted ✓", long: "The whole first draft was accepted." };
  const accepted = `accepted ${step.boundary}`;
  if (step.verdict === "hit") return { short: `${accepted} · hit #${step.rank} ✓`, long: `The true boundary ${step.boundary} was prediction number ${step.rank}.` };
  if (step.verdict === "miss") return { short: `${accepted} · miss ✕`, long: `The true boundary ${step.boundary} was not predicted.` };
  return { short: accepted, long: `The first ${step.boundary} drafted tokens were accepted.` };
}

/** The drafted block that a node's token was drafted in (not merely given as a prefix), and its place there. */
function originOf(step, node) {
  for (const c of node.candidates) {
    const draft = c === 0 ? step.draft : step.branches[c - 1];
    const at = draft ? node.depth - 1 - draft.prefix : -1;
    if (at >= 0 && at < draft.texts.length) return { draft, at, branch: c > 0 };
  }
  return null;
}

function originWords(step, node) {
  if (node.depth === 0) return "anchor";
  const origin = originOf(step, node);
  if (!origin) return `a lower-ranked choice of the ${step.names[node.proposer]}`;
  return origin.branch ? branchName(origin.draft) : "first draft";
}

const isResample = (draft) => draft.resampled;

function branchName(draft) {
  if (isResample(draft)) return "resampled draft";
  return draft.base > 0 ? `second re-draft from ${draft.prefix}` : `re-draft from ${draft.prefix}`;
}

function nodeSentence(step, node) {
  const wanted = step.choices.get(node.parent);
  const chance = (p) => (p === null ? "" : ` (p\u00a0=\u00a0${probability(p)})`);
  if (node.state === "root") return "Anchor: every draft of this step continues from here.";
  if (node.state === "accepted") return `Accepted: the target chose this token${chance(node.targetP)}.`;
  if (node.state === "rejected") {
    return wanted ? `Rejected: the target wanted ${quoted(wanted.text)}${chance(wanted.p)}.` : "Rejected: the target wanted another token here.";
  }
  return "Not reached: an earlier token on this path was rejected.";
}

function bonusSentence(step) {
  const where = step.accepted.length ? "after the accepted path" : "after the anchor";
  return `Bonus token: the target’s own choice ${where}${step.bonus.p === null || step.bonus.p === undefined ? "" : ` (p = ${probability(step.bonus.p)})`}. It is the next anchor.`;
}

/** The drafter's top list where this node was drafted, with the node's token and the target's choice marked. */
function alternativesOf(step, node) {
  const origin = originOf(step, node);
  const top = origin ? origin.draft.alternatives[origin.at] || [] : [];
  const wanted = step.choices.get(node.parent);
  return top.map((a) => ({
    ...a,
    own: a.id === node.token,
    wanted: Boolean(wanted) && a.id === wanted.token,
  }));
}

const rankWords = (rank) => (rank === null ? "—" : rank === 0 ? "favourite" : `number ${rank + 1}`);
