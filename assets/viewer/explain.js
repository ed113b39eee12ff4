// Why things are as they are, in plain sentences: for a step, its boundary and a node.

/** How many accepted tokens the first draft brought, how many a re-draft added, and from which prefix. */
function contributions(step) {
  const path = step.accepted.map((id) => step.nodes.get(id));
  let kept = 0;
  while (kept < path.length && path[kept].candidates.includes(0)) kept += 1;
  const added = path.length - kept;
  let from = null;
  if (added) {
    const prefixes = path[path.length - 1].candidates.filter((c) => step.branches[c - 1]).map((c) => step.branches[c - 1].prefix);
    const fitting = prefixes.filter((prefix) => prefix <= kept);
    from = fitting.length ? Math.max(...fitting) : prefixes.length ? Math.min(...prefixes) : null;
  }
  return { kept, added, from };
}

function stepSentence(step) {
  const bonus = step.bonus ? [{ text: "the target wrote " }, { text: quoted(step.bonus.text), kind: "target" }] : null;
  if (!step.draft) {
    return [{ text: "Plain decoding drafts nothing: " }, ...(bonus || [{ text: "nothing was written" }]), { text: "." }];
  }
  const { kept, added, from } = contributions(step);
  const pieces = [];
  if (kept === step.drafted && kept > 0) {
    pieces.push({ text: `All ${kept} tokens of the first draft`, kind: "first" }, { text: " were right" });
  } else if (kept) {
    pieces.push({ text: `First drafter got ${kept} right`, kind: "first" });
  } else {
    pieces.push({ text: "First drafter’s first token was wrong", kind: "first" });
  }
  if (added) {
    const branch = from === null ? "another candidate" : `the re-draft from ${from}`;
    pieces.push({ text: "; " }, { text: `${branch} added ${added}${kept ? " more" : ""}`, kind: "second" });
  } else if (step.branches.length && kept < step.drafted && step.bonus) {
    pieces.push({ text: step.verdict === "miss" ? "; no re-draft started there" : "; the re-drafts added nothing" });
  }
  if (bonus) pieces.push({ text: "; then " }, ...bonus, { text: "." });
  else pieces.push({ text: "; the text ends here." });
  return pieces;
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
  return origin && origin.branch ? branchName(origin.draft) : "first draft";
}

/** A second look by the first drafter from the anchor itself is a resample; everything else starts at a prefix. */
function branchName(draft) {
  return draft.drafter === "first" && draft.prefix === 0 ? "resampled draft" : `re-draft from ${draft.prefix}`;
}

function nodeSentence(step, node) {
  const wanted = step.choices.get(node.parent);
  const chance = (p) => (p === null ? "" : ` (p = ${probability(p)})`);
  if (node.state === "root") return "Anchor: every draft of this step continues from here.";
  if (node.state === "accepted") return `Accepted: the target chose this token${chance(node.targetP)}.`;
  if (node.state === "rejected") {
    return wanted ? `Rejected: the target wanted ${quoted(wanted.text)} here${chance(wanted.p)}.` : "Rejected: the target wanted another token here.";
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
