// Labels of the tree, placed so that they touch no line, node or other label, and the lane distances that the labels need.

import { BONUS, nodeOf } from "./step.js";
import { draftsThrough } from "./explain.js";
import { best, clamp, s } from "./dom.js";
import { PILL } from "./tree_shapes.js";
import { chosenWords } from "./tree_layout.js";
import { share } from "./words.js";

export const AIR = 6; // pixels between words and lines
const BROKE = "it broke here";
const FIRST_BROKE = "the first draft broke here"; // beside the user's own draft
export const BROKE_HEIGHT = 26; // pixels for BROKE above all lanes
const OWN = "the large model’s own";
// zones for words: top and bottom, relative to the middle of a lane
const ABOVE = [-PILL / 2 - 20, -PILL / 2 - 3];
const BESIDE = [-9, 9];
export const BELOW = [PILL / 2 + 2, PILL / 2 + 20];

/** The label at the start of a lane: the name of the first draft or of an accepted branch, and the number of accepted tokens. Shorter if
 *  vertical `lines` leave little room; null if the lane needs no label or has no room for one. */
export function chainLabel({ step, columns, widths, small }, chain, lines) {
  const trunk = chain.lane === 0 && chain.first.depth === 0;
  const at = trunk ? chain.nodes[1] : chain.first;
  if (!at || at.id === BONUS) return null;
  const main = trunk && (step.levels.length > 0 || at.candidates.includes(0)); // the node budget may have pruned the first draft
  const accepted = chain.nodes.filter(
    (n) => n.state === "accepted" && (!main || !step.draft || n.candidates.includes(0)),
  );
  const won = accepted.length;
  if (!main && !won) return null;
  const drafts = main ? [] : draftsThrough(step, accepted);
  const draft = drafts.find(({ prefix }) => prefix === at.depth - 1) ?? drafts[0];
  const other = draft && !draft.resampled ? (draft.base > 0 ? "third draft" : "second draft") : "another draft";
  const full = draft?.prefix === at.depth - 1 ? `${other} from here` : `${other} started earlier`;
  const names = main ? ["first draft", ""] : draft ? [full, other, ""] : ["another guess", ""];
  const brought = won ? `${won} accepted` : "";
  const [left, right] = [columns.x(-0.5), columns.x(step.columns - 0.5)];
  const first = columns.x(at.depth) - widths.get(at.id) / 2;
  for (const name of names) {
    const words = [name, brought].filter(Boolean).join(", ");
    const width = small(words, won > 0);
    const begin = clamp(first, left, right - width);
    const x =
      words && clearOf(lines, begin, width, [main ? left : begin - 20, Math.min(begin + 20, right - width)], main);
    if (x) return { words, name, brought: words.slice(name.length), won, kind: at.proposer, x, width };
  }
  return null;
}

/** The place from `start` to `end` nearest to `x` where words of this width cross no line; null if there is none. Prefers places to the
 *  right of `x`, or with `ahead` to the left. */
export function clearOf(lines, x, width, [start, end], ahead = false) {
  const clear = (at) => lines.every((line) => at >= line + AIR || at + width <= line - AIR);
  if (clear(x)) return x;
  const fit = lines
    .flatMap((line) => [line - AIR - width, line + AIR])
    .filter((at) => at >= start && at <= end && clear(at));
  const far = (at) => Math.abs(at - x) + (at < x === ahead ? 0 : 1e6);
  return best(fit, (at) => -far(at)) ?? null;
}

const GAP = 5; // pixels: least distance of nodes in neighbouring lanes
const LOOSE = 22; // pixels: largest extra distance
/**
 * The y of every lane, with lanes as close as nodes and labels allow, and the top and bottom of all lanes.
 *
 * items: nodes and labels {lane, left, right, top, bottom}; top and bottom are relative to the lane's middle
 * room: pixels; unused room is spread between the lanes
 */
export function laneRows({ low, high }, items, room = 0) {
  const byLane = new Map();
  for (const item of items) byLane.set(item.lane, [...(byLane.get(item.lane) || []), item]);
  const y = new Map([[low, 0]]);
  for (let lane = low + 1; lane <= high; lane += 1) {
    let gap = PILL + GAP;
    for (const above of byLane.get(lane - 1) || []) {
      for (const below of byLane.get(lane) || []) {
        if (above.left < below.right && below.left < above.right) gap = Math.max(gap, above.bottom - below.top + 2);
      }
    }
    y.set(lane, y.get(lane - 1) + gap);
  }
  const above = Math.min(-PILL / 2, ...(byLane.get(low) || []).map((item) => item.top));
  const below = Math.max(PILL / 2, ...(byLane.get(high) || []).map((item) => item.bottom));
  const more = clamp((room - (y.get(high) + below - above)) / (high - low || 1), 0, LOOSE);
  const middle = y.get(0);
  for (const lane of y.keys()) y.set(lane, y.get(lane) - middle + more * lane);
  return { y, top: y.get(low) + above, bottom: y.get(high) + below };
}

/** The number of unverified tokens of a draft after its last verified one, by this node; drafts without verified tokens do not count. */
function unreadAfter({ left, branches }) {
  const counts = new Map();
  for (const { at, candidates } of left)
    if (candidates.some((c) => !branches[c - 1]?.unread)) counts.set(at, 1 + (counts.get(at) ?? 0));
  return counts;
}

/** All `items` that take room in lanes, for `laneRows`, and the `labels`. A label has a `lane` and an offset from the lane's middle
 *  (`down`). A label belongs to a node (`of`), or counts the hidden nodes after node `at` and has a line to this node (`stub(y)`). */
export function labelsOf(tree, layout) {
  const { step, columns, widths, small } = tree;
  const [items, labels, stems] = [[], [], []]; // stems: x, lowest and highest lane
  const [start, end] = [columns.x(-0.5), columns.x(columns.widths.length - 0.5)];
  const laneOf = (id) => layout.lanes.get(id);
  const put = (lane, left, right, [top, bottom]) => items.push({ lane, left, right, top, bottom });
  for (const [id, lane] of layout.lanes) {
    const { depth, parent } = nodeOf(step, id);
    const [x, w, from] = [columns.x(depth), widths.get(id), laneOf(parent)];
    put(lane, x - w / 2, x + w / 2, [-PILL / 2, PILL / 2]);
    if (from === undefined) continue;
    const border = columns.x(depth - 0.5);
    if (from !== lane) stems.push([border, Math.min(from, lane), Math.max(from, lane)]);
    put(lane, from === lane ? columns.x(depth - 1) : border, x, [-2, 2]);
  }
  /** x of the vertical lines that cross the space above a lane. */
  const lines = (lane) => [
    ...tree.broke,
    ...stems.filter(([, low, high]) => low < lane && lane <= high).map(([x]) => x),
  ];
  const free = (lane, [top, bottom], left, right) =>
    items.every(
      (o) => o.lane !== lane || o.right <= left - AIR || o.left >= right + AIR || o.bottom <= top || o.top >= bottom,
    );
  const label = (lane, zone, x, width, also) => {
    put(lane, Math.min(x, also.from ?? x), x + width, zone);
    labels.push({ lane, x, width, down: zone[0] + 14, ...also });
  };
  /** Puts a label of a node into the first free place; leaves it out if there is none. */
  const beside = (id, also, places) => {
    const lane = laneOf(id);
    for (const [words, zone, left, from = left, to = left] of places) {
      const width = small(words);
      const far = (zone === BESIDE ? Math.max(end, start + tree.across) : end) - width;
      if (zone === BESIDE && left > far) continue;
      const at = clamp(left, start, far);
      const x = clearOf(lines(zone === BELOW ? lane + 1 : lane), at, width, [from, Math.min(to, far)]);
      if (x === null || !free(lane, zone, Math.min(x, also.from ?? x), x + width)) continue;
      label(lane, zone, x, width, {
        ...also,
        words: [words],
        stub: also.stub && ((y) => also.stub(y, zone === BELOW ? 1 : -1, x)),
      });
      return;
    }
  };
  for (const chain of layout.chains) {
    const name = chainLabel(tree, chain, lines(chain.lane));
    if (!name) continue;
    label(chain.lane, ABOVE, name.x, name.width, {
      kind: `lane ${name.kind}${name.won ? " won" : ""}`,
      first: chain.lane === 0 && chain.first.depth === 0 ? chain.nodes[1] : chain.first,
      words: [name.name, s("tspan.brought", {}, name.brought)],
    });
  }
  const { yours } = step;
  const own = yours ? [...yours.nodes.values()] : [];
  if (yours) {
    const [{ id }] = own;
    const left = columns.x(1) - widths.get(id) / 2;
    const words = `your draft${yours.accepted ? `, ${yours.accepted} accepted` : ""}`;
    beside(id, { kind: `ghost yours${yours.accepted ? " won" : ""}`, of: id }, [[words, ABOVE, left, start, end]]);
  }
  const notes = [...unreadAfter(step)].map(([id, count]) => [id, `${count} not read`]);
  if (yours?.cut) notes.push([own.at(-1).id, `+ ${yours.cut} more`]);
  for (const [id, words] of notes) {
    if (!layout.lanes.has(id) || layout.more.has(id)) continue;
    const [x, w] = [columns.x(nodeOf(step, id).depth), widths.get(id)];
    beside(id, { kind: "ghost unread", of: id }, [
      [words, BESIDE, x + w / 2 + AIR],
      ...[BELOW, ABOVE].map((zone) => [words, zone, x - w / 2, x - w / 2 - 60, x + 60]),
    ]);
  }
  const goesOn = new Set(layout.chains.flatMap(({ nodes }) => nodes.map(({ parent }) => parent)));
  const more = [...layout.more.values()];
  for (const ending of more.filter(({ at }) => !goesOn.has(at))) {
    const { at } = ending;
    const [x, words] = [tree.moreX(at), tree.moreWords(ending)];
    const from = columns.x(nodeOf(step, at).depth) + widths.get(at) / 2;
    label(laneOf(at), BESIDE, x, small(words), { at, words: [words], stub: (y) => `M${from} ${y}H${x - AIR}` });
  }
  const path = new Set([0, ...step.accepted]);
  for (const id of step.sampled ? layout.lanes.keys() : []) {
    const { parent, depth, targetP, p = targetP } = nodeOf(step, id);
    if (!path.has(parent) || (p ?? null) === null) continue;
    const [words, x] = [share(p), columns.x(depth)];
    beside(id, { kind: "ghost odds", of: id }, [[words, BELOW, x - small(words) / 2]]);
  }
  const missed = own.filter(({ state }) => state === "rejected").map(({ id }) => [id, chosenWords(yours.wanted)]);
  for (const [id, token] of [...tree.broken, ...missed]) {
    if (!token || !layout.lanes.has(id)) continue;
    const left = columns.x(nodeOf(step, id).depth) - widths.get(id) / 2;
    const chip = `\u2004${token}\u2004`; // spaces that SVG does not trim
    beside(
      id,
      { kind: "under", of: id, chip },
      [`instead ${chip}`, chip].flatMap((words) =>
        [BELOW, ABOVE].map((zone) => [words, zone, left, left - 60, left + 40]),
      ),
    );
  }
  for (const { at, count } of more.filter((one) => goesOn.has(one.at))) {
    const x = columns.x(nodeOf(step, at).depth);
    const stub = (y, side, to) => `M${x - 6} ${y + (side * PILL) / 2}v${side * 12}H${to > x ? to - 3 : x - 3}`;
    const said = [`+ ${count} more`, `+${count}`];
    beside(
      at,
      { at, stub, from: x - 6 },
      said.flatMap((words) => [BELOW, ABOVE].map((zone) => [words, zone, x + 4, x + 4, x + 90])),
    );
  }
  if (layout.lanes.has(BONUS)) {
    const [x, w] = [columns.x(step.bonus.depth), widths.get(BONUS)];
    beside(BONUS, { kind: "under", of: BONUS }, [
      [OWN, BESIDE, x + w / 2 + AIR + 2],
      ...[ABOVE, BELOW].map((zone) => [OWN, zone, x - w / 2, start, end]),
    ]);
  }
  for (const line of tree.broke) {
    const words = yours ? FIRST_BROKE : BROKE;
    const half = small(words, true) / 2;
    labels.push({
      lane: null,
      x: clamp(line, start + half, end - half),
      down: 14,
      kind: "boundary",
      words: [words],
    });
  }
  return { items, labels };
}
