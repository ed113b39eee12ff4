// Details of one node, or of the whole step if no node is selected: in the panel beside the tree and in the tooltip.

import { BONUS, nodeOf } from "./step.js";
import { clamp, closeButton, h, sum } from "./dom.js";
import {
  alternativesOf,
  bonusSentence,
  boundaryWords,
  decisionWords,
  draftsName,
  equalDrafts,
  nodeSentence,
  ofBoth,
  originWords,
  rankWords,
  scoreWords,
  targetTopOf,
  textbookWords,
} from "./explain.js";
import { STAGES, count, milliseconds, probability, took, visible } from "./words.js";

/** A horizontal bar, filled up to `share` (0 to 1). */
const rail = (share, kind) =>
  h("span.rail", {}, h("span", { class: `level ${kind}`, style: `width:${(share * 100).toFixed(1)}%` }));

function meter(label, p, kind, note) {
  const value = h("span.value", {}, probability(p, 3));
  return h(
    "div.meter",
    {},
    h("span.name", {}, label),
    rail(p || 0, kind),
    value,
    note ? h("span.note", {}, note) : null,
  );
}

function nodeTitle(node, words) {
  return h(
    "div.title",
    {},
    h("bdi", { class: `chip ${node.proposer} ${node.state}` }, visible(node.text, 28)),
    h("span", {}, words),
  );
}

/** The card of a node, for the tooltip and the details panel. */
export function nodeCard(step, id) {
  if (id === BONUS) {
    return h(
      "div.card",
      {},
      nodeTitle(step.bonus, `token ${step.bonus.depth}`),
      h("p", {}, bonusSentence(step)),
      meter("large model", step.bonus.p, "target"),
      ...targetRows(step, step.bonus),
    );
  }
  const node = nodeOf(step, id);
  if (node.name) {
    const words = h("p", { class: node.state }, node.name);
    return h("div.card", {}, words, node.p === null ? "" : meter("large model", node.p, "target"));
  }
  const card = h(
    "div.card",
    {},
    nodeTitle(node, `token ${node.depth} · ${originWords(step, node)}`),
    h("p", { class: node.state }, nodeSentence(step, node)),
  );
  if (node.depth === 0) return card;
  const drafted = ofBoth(step, node)
    ? meter("both drafters", node.drafterP, node.proposer, "weighted")
    : meter(step.names[node.proposer], node.drafterP, node.proposer);
  card.append(drafted, meter("large model", node.targetP, "target", rankWords(node.rank)));
  const others = alternativesOf(step, node);
  card.append(
    ...topRows(`Top choices of the ${step.names[node.proposer]}`, others, node.proposer, step.sampled),
    ...targetRows(step, node),
  );
  return card;
}

/** The target's likeliest tokens at the place of a node; when sampling, with its draw. Empty if these were not recorded. */
function targetRows(step, node) {
  const draw = step.draws.get(node.parent);
  const heading = `Top choices of the large model${draw ? ": p, random noise, and log p + noise; the largest is drawn" : ""}`;
  const words = draw && node.id !== BONUS ? textbookWords(step, node) : "";
  return [
    ...topRows(heading, targetTopOf(step, node), "target", step.sampled, draw),
    words ? h("p.textbook", {}, words) : "",
  ];
}

function topRows(heading, top, proposer, sampled, draw) {
  return top.length
    ? [
        h("div.heading", {}, heading),
        h("ol", { class: `top of-${proposer}` }, ...top.map((a) => alternativeRow(a, proposer, sampled, draw))),
      ]
    : [];
}

/** Marks a listed token that the drafter, the target or both chose. In the target's own list, its choice is marked only when
 *  sampling: at temperature 0 it is always the first entry. */
export function markOf(a, ofTarget, sampled) {
  const marked = a.wanted && !(ofTarget && !sampled);
  if (a.own && marked) return sampled ? "drafted, drawn" : "both";
  if (a.own) return "drafted";
  return !marked ? "" : sampled ? "drawn" : "large model’s";
}

function alternativeRow(a, proposer, sampled, draw) {
  return h(
    "li",
    { class: a.own ? "own" : null },
    h("bdi.word", {}, visible(a.text, 14)),
    draw ? "" : rail(a.p, proposer),
    h("span.value", {}, probability(a.p, 3)),
    draw ? h("span.score", {}, scoreWords(draw, a)) : "",
    h("span.mark", {}, markOf(a, proposer === "target", sampled)),
  );
}

const passWords = (step) => (step.passes ? `, ${count(step.passes, "draft pass")}` : "");

/** Where the second drafts start, or if no prefixes were selected, the number of further drafts; null without further drafts. */
function redraftFact({ branches, selected }) {
  if (selected.length) return `after ${[...selected].sort((a, b) => a - b).join(", ")}`;
  const resampled = branches.filter((draft) => draft.resampled).length;
  return resampled ? `${resampled} resampled` : branches.length ? count(branches.length, "draft") : null;
}

/** The card of a step: a table of its stages with their times, then sentences. */
function stepCard(step, total) {
  const spent = sum(step.seconds);
  const facts = {
    first_draft: step.levels.length
      ? count(step.levels.length, "level") + passWords(step)
      : step.draft
        ? count(step.drafted, "token") + (step.branches.length ? "" : passWords(step))
        : null,
    second_draft: redraftFact(step),
    tree: step.whole ? `${step.nodes.size} of ${count(step.whole, "node")}` : count(step.nodes.size, "node"),
    verify: "one pass",
    commit: count(step.committed.length, "token"),
  };
  // Leave out a stage that this method does not have, unless time was recorded for it.
  const rows = STAGES.filter(([stage]) => facts[stage] || step.seconds[stage] > 0).map(([stage, name]) =>
    h(
      "tr",
      { "data-stage": stage },
      h("th", { scope: "row" }, name),
      h("td.fact", {}, facts[stage] || ""),
      h("td.time", {}, rail(spent ? step.seconds[stage] / spent : 0, stage)),
      h("td.value", {}, spent ? milliseconds(step.seconds[stage]) : ""),
    ),
  );
  const equal = equalDrafts(step).map(
    (group) => `The ${draftsName(group)} wrote the same tokens and were verified once. `,
  );
  const point = matchMedia("(hover: none)").matches ? "Tap" : "Point at";
  return h(
    "div.card",
    {},
    h(
      "div.title",
      {},
      h("b", {}, `Step ${step.index + 1}`),
      h("span", {}, `of ${total} · ${spent ? took(step, spent) : "no stage times in this run"}`),
    ),
    h("table.stages", {}, h("tbody", {}, ...rows)),
    ...[boundaryWords(step), decisionWords(step), equal.join("")].filter(Boolean).map((words) => h("p", {}, words)),
    h("p.hint", {}, `${point} a token of the tree for its probabilities.`),
  );
}

/** A panel with details of the step or its selected node, and a card with the result of a what-if re-draft. `redraft`: the what-if
 *  question and its answer; `places`: the clickable positions in the strip. */
export function detailsView({ details: host, redraft: below }, state, redraft, places, strip) {
  let inView = 0; // number of the latest answer that was scrolled into view
  const close = closeButton("Release the node", () => state.set({ node: null }));
  const body = h("div.body", {});
  host.append(close, body);

  function show({ step, node, total }) {
    const card = redraft.card(step);
    below.hidden = !card;
    below.replaceChildren(card || "");
    if (card) placeCard(redraft.here);
    const chosen = step && nodeOf(step, node);
    close.hidden = !chosen;
    host.dataset.node = chosen ? node : "";
    body.replaceChildren(step ? (chosen ? nodeCard(step, node) : stepCard(step, total)) : "");
    places.mark(card ? redraft.here.prefix : null);
  }

  /** Centres the card over the position of the question; narrow windows show it below the strip (explorer.css). */
  function placeCard({ prefix, answer, number }) {
    const width = below.offsetWidth;
    const left = strip.left(prefix + 0.5) - width / 2;
    below.style.left = `${clamp(left, 0, strip.viewport.size.width - width)}px`;
    if (inView !== number) below.scrollIntoView({ block: "nearest" });
    if (answer) inView = number;
  }

  return { uses: ["step", "node", "total", "data", "question", "zoom", "fresh"], show };
}

/** One tooltip for all views, kept inside the view's box. */
export function tooltipIn(root) {
  const box = h("div.tip", { role: "tooltip", hidden: true });
  root.append(box);

  function show(content, { clientX, clientY }) {
    box.replaceChildren(content);
    box.hidden = false;
    const frame = root.getBoundingClientRect();
    const { width, height } = box.getBoundingClientRect();
    let x = clientX - frame.left + 14;
    let y = clientY - frame.top + 16;
    if (x + width > frame.width - 4) x = clientX - frame.left - width - 14;
    if (clientY + 16 + height > innerHeight) y = clientY - frame.top - height - 12;
    box.style.left = Math.max(4, x) + "px";
    box.style.top = Math.max(4, y) + "px";
  }

  return { show, hide: () => (box.hidden = true) };
}
