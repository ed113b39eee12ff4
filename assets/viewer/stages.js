// The animation of a step, as a pure function of the step and a time t. At t = 0 only the anchor is drawn, at t = 6 the finished step.
// Six stages take 1 each: draft, doubt, re-draft, merge, verify, keep; methods with fewer parts skip some. Before 0, from ALONE on, the
// large model writes the same tokens one by one.

import { stepStory } from "./explain.js";
import { afterToken, capital, countInWords, inWords, percent, took } from "./words.js";
import { clamp, sum } from "./dom.js";
import { brokenTokens } from "./tree_layout.js";

export const END = 6;
export const ALONE = -1;
export const STAGE_NAMES = ["draft", "doubt", "re-draft", "merge", "verify", "keep"];

/** The stages of a step, as indices of STAGE_NAMES: without predictions there is no doubt, and plain decoding has no draft. */
export function stagesOf(step) {
  const { length } = step.branches;
  const has = [step.draft || step.levels.length, step.selected.length && length, length, length, true, true];
  return has.flatMap((there, at) => (there ? [at] : []));
}

/** The lowest number of a draft that contains a node: 0 is the first draft, re-drafts count from 1; null if no draft contains it. */
export const draftOf = ({ candidates }) => (candidates.length ? Math.min(...candidates) : null);

/** Numbers of the re-drafts, from 1, in the order of their rows: the longest prefix is nearest to the first draft. */
export const rowOrder = ({ branches }) =>
  branches.map((_, at) => at + 1).sort((a, b) => branches[b - 1].prefix - branches[a - 1].prefix || a - b);

/** Smoothstep: rises from 0 to 1 while `t` goes from `a` to `b`. */
function rise(t, a, b) {
  const x = clamp((t - a) / (b - a), 0, 1);
  return x * x * (3 - 2 * x);
}

const WRITTEN = -0.3; // the large model has written all tokens alone
const MERGE = [3.08, 3.84]; // rows merge one after the other
const PASS = [4.04, 4.36]; // the target's pass lights up the whole tree
const WALK = [4.4, 4.98]; // the walk along the accepted path
const FILL = [5.04, 5.34]; // accepted nodes are filled
const TOLD = 5.36; // the boundary and the nodes that were not reached are shown
const FOLD = [5.4, 5.52]; // branches that were not accepted are cut
const FLIGHT = 5.58; // tokens fly from the tree to the text

/** The times of all events in a step; computed once per step. */
function scheduleOf(step) {
  const { nodes, accepted, branches, drafted, levels } = step;
  const path = [0, ...accepted];
  const place = new Map(path.map((id, at) => [id, at]));
  const between = ([from, to], at, count) => from + ((to - from) * at) / (count || 1);
  const deepest = Math.max(1, ...[...nodes.values()].map(({ depth }) => depth));
  // passes of a drafter that writes one position per pass, else 0
  const inTurn = levels.length ? levels.length : step.passes >= drafted ? drafted : 0;
  const nested = (c) => (branches[c - 1].base > 0 ? 1 + nested(branches[c - 1].base) : 0);
  const batches = 1 + Math.max(0, ...branches.map((_, at) => nested(at + 1)));
  const order = rowOrder(step);
  /** Two times for the token of draft `c` at a depth: when it appears as a mask, and when its word appears. */
  const born = (c, depth) => {
    if (c === null && !levels.length) return Array(2).fill((branches.length ? 3.6 : 0.5) + (0.25 * depth) / deepest);
    if (!c && inTurn) return Array(2).fill((0.8 * (depth - 1)) / inTurn);
    if (!c) return [0.05, 0.42];
    const from = 2 + nested(c) / batches;
    return [from + 0.1 / batches, from + 0.5 / batches];
  };
  return {
    path,
    inTurn,
    born,
    broken: brokenTokens(step),
    walked: (at) => between(WALK, at, path.length),
    filled: (at) => between(FILL, at, path.length),
    decided: ({ id }) => (place.has(id) ? between(FILL, place.get(id), path.length) : TOLD),
    visited: ({ id }) => (place.has(id) ? between(WALK, place.get(id), path.length) : END),
    merging: (c) => (c ? between(MERGE, order.indexOf(c), order.length) : 3.02),
  };
}

const schedules = new WeakMap();

/**
 * The look of a step at a time: functions of its parts, with values from 0 to 1 unless stated otherwise.
 *
 * At the end all values are 1, except those of temporary parts (`apart`, `light`, `shake`, `copy`, `kept`, `rail`, `cast`, `wants`),
 * which are 0. `fold`: how far the branches that were not accepted are cut, after the walk.
 */
export function stage(step, t) {
  if (!schedules.has(step)) schedules.set(step, scheduleOf(step));
  const { path, inTurn, born, broken, walked, filled, decided, visited, merging } = schedules.get(step);
  const doubts = stagesOf(step).includes(1);
  const known = (at) => rise(t, at, at + 0.06);
  const merged = (c) => (step.branches.length ? rise(t, merging(c), merging(c) + 0.24) : 1);
  const pass = rise(t, PASS[0], PASS[0] + 0.1) * (1 - rise(t, PASS[1] - 0.1, PASS[1]));
  const growth = (c, depth) => {
    const [mask, word] = born(c, depth);
    return { opacity: rise(t, mask, mask + 0.12), word: rise(t, word, word + 0.22) };
  };
  const late = step.branches.length ? rise(t, 3.84, 3.98) : 1; // opacity of the merged tree's lines and names
  return {
    /** A node: opacity of its shape and of its word; `apart`: how far it stands in the separate row of its draft; `light`: of the
     *  target's pass; `known`: how far its fate is shown; `shake`: shift of a rejected token, in pixels. */
    node(node) {
      const owner = draftOf(node);
      const there = node.parent < 0 ? { opacity: 1, word: 1 } : growth(owner, node.depth);
      const u = clamp((t - TOLD) / 0.14, 0, 1);
      return {
        ...there,
        apart: owner === null ? 0 : 1 - merged(owner),
        light: Math.max(pass, rise(t, visited(node), visited(node) + 0.03) * (1 - known(decided(node)))),
        known: node.parent < 0 ? 1 : known(decided(node)),
        shake: broken.has(node.id) ? 4 * (1 - u) * Math.sin(6 * Math.PI * u) : 0,
      };
    },
    /** The line to a node: its opacity, and how far its fate is shown. */
    edge(node) {
      const owner = draftOf(node);
      return {
        opacity: Math.min(growth(owner, node.depth).opacity, owner === null ? 1 : late),
        known: known(decided(node)),
      };
    },
    alone: t < 0 ? 1 : 0,
    bonus: known(FOLD[1]),
    fold: rise(t, ...FOLD),
    /** The target's token after position `at` of the path: its opacity, and how far it has come down onto the drafted token. Before
     *  t = 0 it is a token of the row that the large model writes alone. */
    wants(at) {
      if (t < 0) {
        const from = ALONE + ((WRITTEN - ALONE) * at) / path.length;
        return { opacity: rise(t, from, from + 0.06) * (1 - rise(t, -0.12, -0.01)), down: 1 };
      }
      const [from, to] = [walked(at), walked(at + 1)];
      const along = (share) => from + (to - from) * share;
      const met = at + 1 < path.length;
      return {
        opacity: rise(t, from, along(0.3)) * (1 - (met ? rise(t, along(0.8), to) : rise(t, 5.1, 5.2))),
        down: met ? rise(t, along(0.4), along(0.85)) : 0,
      };
    },
    /** A token of re-draft `c` that another draft has too: it slides into the node of that draft. */
    copy: (c, depth) => ({
      ...growth(c, depth),
      ...(t > merging(c) ? { opacity: 1 - rise(t, merging(c) + 0.16, merging(c) + 0.24) } : {}),
      apart: 1 - merged(c),
    }),
    /** Opacity of a prefix token in the row of re-draft `c`. */
    kept: (c) =>
      0.4 *
      rise(t, born(c, step.branches[c - 1].prefix + 1)[0] - 0.08, born(c, step.branches[c - 1].prefix + 1)[0]) *
      (1 - merged(c)),
    /** The line of draft `c` in its separate row: its length and opacity. */
    rail(c) {
      const [from] = born(c, c ? step.branches[c - 1].prefix + 1 : 1);
      const [to] = born(c, step.drafted);
      return { grown: rise(t, Math.max(0, from - 0.1), (c ? from : to) + 0.12), opacity: 1 - merged(c) };
    },
    /** Opacity of the name of a lane; `first`: whether this is the lane of the first draft. */
    lane: (first) => (first ? rise(t, 0.42, 0.64) : rise(t, ...FOLD)),
    apart: 1 - merged(0),
    brought: known(TOLD),
    /** The confidence bar of token `k`: its height, and how far its fate is shown. */
    bar(k) {
      const start = doubts ? 1.05 : inTurn ? born(0, k)[1] : 0.64;
      const right = step.boundary ?? step.accepted.length;
      return { grown: rise(t, start, start + 0.3), known: known(k <= right ? filled(Math.min(k, path.length)) : TOLD) };
    },
    /** How far r(i) is drawn, from left to right. */
    posterior: doubts ? rise(t, 1.35, 1.6) : rise(t, 0.8, 1),
    /** The flag of prediction `n`, from 0: how far it has dropped, and the opacity of its line up to the tree (`cast`). */
    flag(n) {
      const start = 1.6 + (0.28 * n) / Math.max(1, step.selected.length);
      return {
        dropped: rise(t, start, start + 0.1),
        cast: rise(t, start + 0.04, start + 0.1) * (1 - rise(t, 2.6, 2.9)),
      };
    },
    truth: known(TOLD),
    late,
    /** How far committed token `i` has flown from the tree to the text. */
    landed(i) {
      const start = FLIGHT + (0.2 * i) / step.committed.length;
      return rise(t, start, start + 0.2);
    },
  };
}

/** A stage in words, with the numbers of the step: `title` and a second sentence (`more`), which may be empty. */
export function stageWords(step, at) {
  const { drafted, levels, selected, branches, seconds, nodes, committed } = step;
  const tokens = committed.length;
  /** What a stage ran, and its time. */
  const taking = (n, noun, stage, how = "") =>
    `${capital(countInWords(n, noun))}${how.trimEnd()}${seconds[stage] ? `, ${took(step, seconds[stage])}` : ""}.`;
  const said = (title, more = "") => ({ title, more });
  if (at === 0) {
    if (levels.length)
      return said(
        `${capital(countInWords(levels.length, "draft pass"))} grow a tree, level by level.`,
        "Each continues the likeliest paths.",
      );
    const inTurn = step.passes >= drafted && drafted > 1;
    return said(
      `The drafter guesses ${countInWords(drafted, "token")}${inTurn ? ", one after the other" : drafted > 1 ? " at once" : ""}.`,
      taking(inTurn ? drafted : 1, "draft pass", "first_draft"),
    );
  }
  if (at === 1) {
    const more = selected.length > 2 ? ", …" : ".";
    const chance = (i) => (step.random ? "" : `${percent(i < drafted ? (step.posterior[i] ?? 0) : step.full)} `);
    const places =
      selected
        .slice(0, 2)
        .map((i, n) => chance(i) + afterToken(i, n > 0))
        .join(", ") + more;
    return said("Where will the draft break?", step.random ? `Not predicted but drawn at random: ${places}` : places);
  }
  if (at === 2) {
    if (branches.every(({ resampled }) => resampled))
      return said(
        `${capital(inWords(branches.length))} more drafts are drawn from the same draft pass.`,
        taking(branches.length, "draft", "second_draft"),
      );
    const who = branches.some(({ drafter }) => drafter === "second") ? "A second drafter" : "The drafter";
    const places = new Set(branches.map(({ prefix }) => prefix)).size;
    const from = places > 1 ? `from ${inWords(places)} places` : afterToken(branches[0].prefix);
    return said(`${who} starts ${from}.`, taking(branches.length, "draft", "second_draft", ` ${batchWords(step)}`));
  }
  if (at === 3) {
    const all = drafted + sum(branches.map(({ prefix, texts }) => prefix + texts.length));
    return said(
      `${all} tokens become one tree of ${step.whole ?? nodes.size} nodes.`,
      step.whole ? `Only the ${nodes.size} likeliest go on.` : "A token that several drafts share is read only once.",
    );
  }
  if (at === 4)
    return said(
      nodes.size < 2
        ? "The large model reads the latest token."
        : `The large model reads ${step.whole ? nodes.size : "all"} nodes in one pass.`,
      taking(1, "pass", "verify") +
        (step.sampled ? " After each it draws a token: log probability plus noise, the largest sum wins." : ""),
    );
  const { title } = stepStory(step);
  if (tokens === 1) return said(title);
  return said(
    title,
    step.sampled
      ? "A guess is accepted if it is the token that was drawn: so the text is the large model’s own."
      : `One by one, they would take ${countInWords(tokens, "pass")}.`,
  );
}

/** How the second drafts are written: "at once", or "in turn" if they continue each other; "" for a single one. */
export const batchWords = ({ branches }) =>
  branches.some(({ base }) => base > 0) ? "in turn" : branches.length > 1 ? "at once" : "";
