// How a step comes about, as a pure function of the step and of a time from 0, where only the anchor is there, to 5, where the step is
// drawn as it stays. Every stage takes 1: draft, boundary, re-draft, merge and verify, commit. Methods with fewer parts skip some.

import { capital, count, joined, milliseconds, percent } from "./words.js";
import { sum } from "./dom.js";

export const END = 5;
export const STAGE_NAMES = ["draft", "boundary", "re-draft", "verify", "commit"];

/** The stages that a step has, as places in STAGE_NAMES. Without flags there is no boundary to estimate, plain decoding drafts nothing. */
export function stagesOf(step) {
  const has = [
    step.draft || step.levels.length,
    step.selected.length && step.branches.length,
    step.branches.length,
    true,
    true,
  ];
  return has.flatMap((there, at) => (there ? [at] : []));
}

/** The draft that wrote a node first: 0 the first draft, then the re-drafts in their order; null where none did. */
export const draftOf = ({ candidates }) => (candidates.length ? Math.min(...candidates) : null);

/** From 0 to 1 while `t` goes from `a` to `b`, with ease in and out. */
function rise(t, a, b) {
  const x = Math.min(1, Math.max(0, (t - a) / (b - a)));
  return x * x * (3 - 2 * x);
}

const MERGE = [3.02, 3.4];
const SWEEP = [3.5, 3.98];
const WALK = [4.06, 4.6];
const AFTER = 4.7; // what the target did not reach is known

/** When what happens in a step happens: computed once a step. */
function scheduleOf(step) {
  const { nodes, accepted, branches, drafted, levels } = step;
  const path = [0, ...accepted];
  const place = new Map(path.map((id, at) => [id, at]));
  const walked = (at) => WALK[0] + ((WALK[1] - WALK[0]) * at) / (path.length + (step.bonus ? 0 : -1) || 1);
  const deepest = Math.max(1, ...[...nodes.values()].map(({ depth }) => depth));
  const inTurn = levels.length ? levels.length : step.passes >= drafted ? drafted : 0; // passes of a drafter that writes one place a pass
  const nested = (c) => (branches[c - 1].base > 0 ? 1 + nested(branches[c - 1].base) : 0);
  const levelsDeep = 1 + Math.max(0, ...branches.map((_, at) => nested(at + 1)));
  /** When the token that draft `c` wrote at a depth begins to be there as a mask, and when as a token. */
  const born = (c, depth) => {
    if (c === null && !levels.length) return [MERGE[0] + (0.3 * depth) / deepest, MERGE[0] + (0.3 * depth) / deepest];
    if (!c && inTurn) return Array(2).fill((0.8 * (depth - 1)) / inTurn);
    if (!c) return [0.05, 0.42];
    const { prefix, texts } = branches[c - 1];
    const from = 2 + nested(c) / levelsDeep;
    const along = (depth - prefix - 1) / Math.max(1, texts.length);
    return [from + (0.12 + 0.4 * along) / levelsDeep, from + 0.66 / levelsDeep];
  };
  const decided = (node) =>
    place.has(node.id)
      ? walked(place.get(node.id))
      : node.state === "rejected" && place.has(node.parent)
        ? walked(place.get(node.parent) + 1)
        : AFTER;
  const broken = step.boundary === null ? AFTER : walked(Math.min(step.boundary + 1, path.length));
  return { walked, inTurn, born, decided, broken, steps: path.length };
}

const schedules = new WeakMap();

/**
 * What a step looks like at a time: functions of its parts, each with values from 0 to 1 unless it says otherwise.
 *
 * Everything is 1 at the end, except what has gone by then (`apart`, `light`, `shake`, `copy`, `rail`, `cast`, `ahead`): 0.
 */
export function stage(step, t) {
  if (!schedules.has(step)) schedules.set(step, scheduleOf(step));
  const { walked, inTurn, born, decided, broken, steps } = schedules.get(step);
  const has = stagesOf(step);
  const merged = rise(t, ...MERGE);
  const known = (at) => (t >= END ? 1 : rise(t, at, at + 0.07));
  const light = (depth) => (t >= END ? 0 : Math.max(0, 1 - Math.abs(depth - sweep) / 1.3));
  const sweep = -2 + (step.columns + 3) * Math.min(1, Math.max(0, (t - SWEEP[0]) / (SWEEP[1] - SWEEP[0])));
  const growth = (c, depth) => {
    const [mask, word] = born(c, depth);
    return { opacity: rise(t, mask, mask + 0.12), word: rise(t, word, word + 0.22) };
  };
  const late = step.branches.length ? rise(t, 3.25, 3.42) : 1; // lines and names of the merged tree
  return {
    /** Opacity of a node and of its word, how far it is `apart`, in the row of its draft, the light of the target's pass on it, what
     *  is known of its fate, and where a rejected one shakes, in pixels. */
    node(node) {
      const [at, owner] = [decided(node), draftOf(node)];
      const u = Math.min(1, Math.max(0, (t - at) / 0.22));
      const there = node.parent < 0 ? { opacity: 1, word: 1 } : growth(owner, node.depth);
      return {
        ...there,
        apart: owner ? 1 - merged : 0,
        light: light(node.depth),
        known: node.parent < 0 ? 1 : known(at),
        shake: node.state === "rejected" && t < END ? 4 * (1 - u) * Math.sin(6 * Math.PI * u) : 0,
      };
    },
    /** The line to a node: its opacity, and whether it is known to be on the path. */
    edge(node) {
      const owner = draftOf(node);
      return {
        opacity: Math.min(growth(owner, node.depth).opacity, owner === null ? 1 : late),
        known: known(decided(node)),
      };
    },
    bonus: known(walked(steps)),
    /** A token that re-draft `c` wrote like another draft: it slides into that one's node. */
    copy: (c, depth) => ({
      ...growth(c, depth),
      ...(t > MERGE[1] - 0.1 ? { opacity: 1 - rise(t, MERGE[1] - 0.1, MERGE[1]) } : {}),
      apart: 1 - merged,
    }),
    /** The line of draft `c` in its own row: how much of it there is, and its opacity. */
    rail(c) {
      const end = c ? step.branches[c - 1].prefix + step.branches[c - 1].texts.length : step.drafted;
      const [from] = born(c, c ? step.branches[c - 1].prefix + 1 : 1);
      const [to] = born(c, end);
      return {
        grown: rise(t, Math.max(0, from - 0.1), to + 0.12),
        opacity: 1 - (c ? rise(t, 3, 3.15) : rise(t, 3.3, 3.45)),
      };
    },
    /** Names: of draft `c` in its own row, of a lane of the merged tree, and what it brought. */
    row: (c) =>
      rise(t, born(c, step.branches[c - 1].prefix + 1)[0], born(c, step.branches[c - 1].prefix + 1)[0] + 0.2) *
      (1 - rise(t, 3, 3.2)),
    lane: (first) => (first ? rise(t, 0.42, 0.64) : late),
    brought: known(AFTER - 0.1),
    /** A bar of the confidence: its height, opacity, and whether the fate of its token is known. */
    bar(k) {
      const at = inTurn ? born(0, k)[1] : 0.6;
      const right = step.boundary ?? step.accepted.length;
      const fate = k <= right ? walked(Math.min(k, steps)) : k === step.boundary + 1 ? broken : AFTER;
      return {
        grown: rise(t, at, at + 0.3),
        opacity: has.includes(1) ? 1 - 0.6 * rise(t, 1, 1.2) * (1 - rise(t, 4, 4.2)) : 1,
        known: known(fate),
      };
    },
    /** How far r(i) is drawn, from left to right. */
    posterior: has.includes(1) ? Math.min(1, Math.max(0, (t - 1.08) / 0.42)) : rise(t, 0.8, 1),
    /** The flag of the prediction number `n`, from 0, drops; and the line that it casts up to the place in the tree. */
    flag(n) {
      const at = 1.5 + (0.3 * n) / Math.max(1, step.selected.length);
      return { dropped: rise(t, at, at + 0.16), cast: rise(t, at + 0.05, at + 0.2) * (1 - rise(t, 2.35, 2.6)) };
    },
    truth: known(broken),
    sweep: t > SWEEP[0] && t < SWEEP[1] ? sweep : null, // the depth where the light is
    late,
    /** How far token `i` of the text that the step brings has come from the tree. */
    landed: (i) =>
      t >= END
        ? 1
        : rise(t, AFTER + (0.12 * i) / step.committed.length, AFTER + 0.14 + (0.12 * i) / step.committed.length),
  };
}

const NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
const inWords = (n) => NUMBERS[n] ?? String(n);
const took = (seconds) => (seconds ? `: ${milliseconds(seconds)}` : "");

/** A stage in words, with the numbers of the step. */
export function stageWords(step, at) {
  const { drafted, levels, selected, branches, seconds, nodes, accepted, committed, names } = step;
  const tokens = committed.length;
  if (at === 0) {
    if (levels.length)
      return `The ${names.first} grows a tree, level by level: ${count(levels.length, "pass").replace(/s$/, "es")}, one after the other.`;
    if (step.passes >= drafted && drafted > 1)
      return `The ${names.first} guesses ${drafted} tokens, one pass after the other.`;
    return drafted > 1
      ? `One pass guesses ${drafted} tokens at once, and says how sure it is of each.`
      : "One pass guesses a token, and says how sure it is.";
  }
  if (at === 1) {
    if (step.random)
      return `Where will it break? Nobody asks: the places are drawn at random, after ${joined(selected.map(String))}.`;
    const [first, ...others] = selected;
    const or = others.length > 1 ? `${others.slice(0, -1).join(", ")} or ${others.at(-1)}` : others.join();
    return `Where will it break? Most likely after ${first} (${percent(first < drafted ? (step.posterior[first] ?? 0) : step.full)})${or && `, then ${or}`}.`;
  }
  if (at === 2) {
    if (branches.every(({ resampled }) => resampled))
      return `${capital(inWords(branches.length))} more drafts are drawn from the same pass.`;
    const who = branches.some(({ drafter }) => drafter === "second") ? "A second drafter" : "The drafter";
    const places = new Set(branches.map(({ prefix }) => prefix)).size;
    return `${who} goes on from ${places > 1 ? `all ${inWords(places)} places, in one batch` : `after ${branches[0].prefix}`}${took(seconds.second_draft)}.`;
  }
  if (at === 3) {
    if (nodes.size < 2) return `The target reads the latest token${took(seconds.verify)}.`;
    const all = drafted + sum(branches.map(({ prefix, texts }) => prefix + texts.length));
    const merged = branches.length
      ? `${branches.length + 1} drafts, ${all} tokens, are one tree of ${nodes.size} nodes.`
      : drafted === nodes.size - 1
        ? `Anchor and draft are ${nodes.size} tokens in a row.`
        : `The candidates are one tree of ${nodes.size} nodes.`;
    return `${merged} The target reads ${drafted === nodes.size - 1 ? "them" : "it"} in one pass${took(seconds.verify)}.`;
  }
  if (nodes.size < 2) return `${count(tokens, "token")} for one pass of the target.`;
  const first = accepted.filter((id) => nodes.get(id).candidates.includes(0) || !branches.length).length;
  const got =
    accepted.length - first
      ? `${first} + ${accepted.length - first} accepted`
      : accepted.length
        ? `${accepted.length} accepted`
        : "Nothing is accepted";
  return `${got}${step.bonus ? ", and one of the target’s own" : ""}: ${count(tokens, "token")}; plain decoding needs ${tokens === 1 ? "one pass" : `${tokens} passes`}.`;
}

const STAGE_SECONDS = 1.2;
const LEAST_SECONDS = 0.15; // a stage can still be seen

/** How long each of its stages lasts on the screen, in seconds. `measured`: in the proportion of their times, together as long as else. */
export function durations(step, measured) {
  const stages = stagesOf(step);
  const { first_draft: draft, second_draft: redraft, tree, verify, commit } = step.seconds;
  const times = stages.map((at) => [draft, 0, redraft, tree + verify, commit][at]);
  const all = sum(times);
  if (!measured || !all) return stages.map(() => STAGE_SECONDS);
  return times.map((seconds) => Math.max(LEAST_SECONDS, (seconds / all) * STAGE_SECONDS * stages.length));
}
