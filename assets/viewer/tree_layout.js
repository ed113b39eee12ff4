// Where the nodes of a token tree stand: the lane of each, the width of columns, and which node is next in a direction.

import { visible } from "./words.js";

export const BONUS = -1;
const MOST_CHAINS = 64; // more never fit on a screen

/**
 * Lanes for the nodes of a step (and its bonus token under the id BONUS).
 *
 * A chain is a run of nodes in one lane: a node goes on in its parent's lane when it continues the same candidate.
 * Chains that leave latest are placed first and nearest, so a stem never crosses a lane that is in use beside it.
 * Where a layout does not `fit`, the chains that the drafters gave the least probability are folded away: `folded`
 * counts the nodes that are hidden below each node. The accepted path and the selected node are always there.
 */
export function layoutTree(step, selected, fits) {
  const [root, ...others] = step.nodes.values();
  const children = new Map();
  for (const node of others) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const bonus = step.bonus && { id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth, candidates: [] };
  const main = chainFrom(root, children, heights(step.nodes), bonus);
  const order = byWorth(main, step, selected);
  if (!fits) return arrange(main, order, order.length);
  let least = order.filter((chain) => chain.needed).length;
  let most = Math.max(least, Math.min(order.length, MOST_CHAINS));
  const whole = arrange(main, order, most);
  if (fits(whole)) return whole;
  // the largest number of chains that fits, by halving
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (fits(arrange(main, order, middle))) least = middle;
    else most = middle - 1;
  }
  return arrange(main, order, least); // anew: chains know their lane in the latest layout
}

/** The chains below the main one, what must be shown first, then by the probability that the drafters gave them. */
function byWorth(main, step, selected) {
  const reach = new Map();
  for (const node of step.nodes.values())
    reach.set(node.id, node.parent < 0 ? 1 : reach.get(node.parent) * (node.drafterP || 0));
  const order = [];
  const collect = (chain, most) => {
    chain.needed =
      chain.first.id === BONUS || chain.first.state === "accepted" || chain.nodes.some((node) => node.id === selected);
    // never more than the chain that it leaves, so that it does not come before that one
    chain.worth = Math.min(
      most,
      chain.nodes.reduce((sum, node) => sum + (reach.get(node.id) || 0), 0),
    );
    if (chain !== main) order.push(chain);
    for (const sub of chain.subs) {
      collect(sub, chain === main ? Infinity : chain.worth);
      if (sub.needed) chain.needed = true;
    }
  };
  collect(main, Infinity);
  return order.sort((a, b) => b.needed - a.needed || b.worth - a.worth);
}

/** The layout with the first `most` chains of `order`. */
function arrange(main, order, most) {
  const shown = new Set([main, ...order.slice(0, most)]);
  const lanes = new Map();
  const chains = [];
  const folded = new Map();
  place(main, shown);
  // the path leaves upwards, in a narrow frame, where more is folded away, as in a wide one
  const path = main.subs.find(({ first }) => first.id === BONUS || first.state === "accepted");
  settle(main, 0, shown, lanes, chains, path && path.offset > 0 ? -1 : 1);
  let hidden = 0;
  for (const chain of chains) {
    for (const sub of chain.subs) {
      if (shown.has(sub)) continue;
      const size = sizeOf(sub);
      hidden += size;
      folded.set(sub.first.parent, (folded.get(sub.first.parent) || 0) + size);
    }
  }
  return { lanes, chains, folded, hidden, low: Math.min(...lanes.values()), high: Math.max(...lanes.values()) };
}

const sizeOf = (chain) => chain.nodes.length + chain.subs.reduce((sum, sub) => sum + sizeOf(sub), 0);

function heights(nodes) {
  const out = new Map();
  for (const node of [...nodes.values()].reverse()) {
    const own = out.get(node.id) || 0;
    out.set(node.id, own);
    if (node.parent >= 0) out.set(node.parent, Math.max(out.get(node.parent) || 0, own + 1));
  }
  return out;
}

function chainFrom(first, children, height, bonus) {
  const lead = first.candidates.length ? first.candidates[0] : 0;
  const chain = { nodes: [], subs: [], first, end: first.depth };
  for (let node = first; node;) {
    chain.nodes.push(node);
    chain.end = node.depth;
    const below = [...(children.get(node.id) || [])].sort(
      (a, b) =>
        b.candidates.includes(lead) - a.candidates.includes(lead) || height.get(b.id) - height.get(a.id) || a.id - b.id,
    );
    const withBonus = bonus && bonus.parent === node.id;
    let next = below.shift() || null;
    for (const other of below) chain.subs.push(chainFrom(other, children, height, bonus));
    if (withBonus && next) chain.subs.push({ nodes: [bonus], subs: [], first: bonus, end: bonus.depth });
    else if (withBonus) next = bonus;
    node = next;
  }
  return chain;
}

/** Gives every chain below this one an `offset` in lanes; returns the boxes and stems that it uses, relative to this chain's lane. */
function place(chain, shown, outward = false) {
  const used = { boxes: [{ lane: 0, from: chain.first.depth - 0.5, to: chain.end + 0.5 }], stems: [] };
  // of those that leave together the accepted one is nearest
  const subs = chain.subs
    .filter((sub) => shown.has(sub))
    .sort((a, b) => b.first.depth - a.first.depth || b.needed - a.needed || a.end - b.end);
  const taken = { 1: 0, "-1": 0 };
  for (const sub of subs) {
    const own = place(sub, shown, true);
    const sides = outward ? [1] : taken[1] <= taken[-1] ? [1, -1] : [-1, 1];
    const stem = sub.first.depth - 0.5;
    let offset = 0;
    for (let distance = 1; !offset; distance += 1) {
      offset = sides.map((side) => side * distance).find((lane) => free(own, lane, stem, used)) || 0;
    }
    sub.side = Math.sign(offset);
    sub.offset = offset;
    taken[sub.side] += 1;
    const lane = laneFrom(offset);
    for (const box of own.boxes) used.boxes.push({ ...box, lane: lane(box.lane) });
    used.stems.push({ at: stem, from: 0, to: offset });
    for (const other of own.stems) used.stems.push({ at: other.at, from: lane(other.from), to: lane(other.to) });
  }
  return used;
}

/** Where a lane of a chain lies that stands `offset` lanes away: on the upper side it is mirrored. */
const laneFrom = (offset) => (lane) => offset + Math.sign(offset) * lane;

/** Whether a chain can stand there: no box on another one, no stem through a box. */
function free(own, offset, stem, used) {
  const lane = laneFrom(offset);
  for (const box of used.boxes) {
    if (crosses(stem, 0, offset, box, box.lane)) return false;
    for (const other of own.boxes)
      if (lane(other.lane) === box.lane && other.from <= box.to && box.from <= other.to) return false;
    for (const other of own.stems) if (crosses(other.at, lane(other.from), lane(other.to), box, box.lane)) return false;
  }
  for (const { at, from, to } of used.stems) {
    for (const box of own.boxes) if (crosses(at, from, to, box, lane(box.lane))) return false;
  }
  return true;
}

const crosses = (at, from, to, box, lane) => box.from < at && at < box.to && (lane - from) * (lane - to) < 0;

/** Turns offsets into lanes; a chain placed on the upper side carries everything below it mirrored. */
function settle(chain, lane, shown, lanes, chains, mirror = 1) {
  chain.lane = lane;
  chains.push(chain);
  for (const node of chain.nodes) lanes.set(node.id, lane);
  for (const sub of chain.subs)
    if (shown.has(sub)) settle(sub, lane + mirror * sub.offset, shown, lanes, chains, mirror * sub.side);
}

/** Columns that must be readable, the most important first: what is selected, the anchor, where the first draft went wrong,
 *  the target's token, then the accepted path. */
export function columnsThatMatter(step, selection) {
  const node = selection.shownNode;
  const selected = node === BONUS ? step.bonus : step.nodes.get(node);
  const path = step.accepted.map((id) => step.nodes.get(id).depth);
  const deepest = Math.max(0, ...path);
  const end = step.bonus ? step.bonus.depth : deepest;
  const own = selection.shown === step.index && selected ? [selected.depth] : [];
  const wrong = step.boundary === null || !step.draft ? [] : [step.boundary + 1, step.boundary];
  return [...own, 0, ...wrong.slice(0, 1), end, ...wrong.slice(1), 1, deepest, ...path, 2, 3];
}

/** Under one rejected node of every place where the target chose otherwise: what it wanted. The first draft's own token says
 *  it if there is one, else the likeliest. */
export function wantedTokens(step) {
  const best = new Map();
  const found = new Set(step.accepted.map((id) => step.nodes.get(id).parent));
  const rank = (node) => (node.candidates.includes(0) ? 2 : 0) + (node.drafterP || 0);
  for (const node of step.nodes.values()) {
    if (node.state !== "rejected" || !step.choices.has(node.parent)) continue;
    if (found.has(node.parent) && !node.candidates.includes(0)) continue; // what it wanted stands beside it
    const other = best.get(node.parent);
    if (!other || rank(node) > rank(other)) best.set(node.parent, node);
  }
  return new Map([...best.values()].map((node) => [node.id, visible(step.choices.get(node.parent).text, 12)]));
}

/** Whether a re-draft wrote this token of the first draft once more: it leaves the first draft later than where it began. */
export function sharedWithRedraft(step, node) {
  if (!step.draft || !node.candidates.includes(0)) return false;
  return node.candidates.some(
    (c) => c > 0 && !step.branches[c - 1].resampled && step.branches[c - 1].prefix < node.depth,
  );
}

/** The next node in a direction: up and down across lanes, sideways along the path. */
export function nextNode(step, layout, node, direction) {
  if (!step) return null;
  if (node === null || !layout.lanes.has(node)) return step.accepted.at(-1) ?? 0;
  const all = [
    ...[...step.nodes.values()].filter((n) => layout.lanes.has(n.id)),
    ...(layout.lanes.has(BONUS) ? [{ id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth }] : []),
  ];
  const here = all.find((n) => n.id === node);
  if (direction === "left") return here.parent >= 0 ? here.parent : node;
  if (direction === "right") {
    const next = all.filter((n) => n.parent === node);
    const path = next.find((n) => n.id === BONUS || n.state === "accepted");
    return (path || next.find((n) => layout.lanes.get(n.id) === layout.lanes.get(node)) || next[0] || here).id;
  }
  const side = direction === "up" ? -1 : 1;
  const lane = layout.lanes.get(node);
  const away = (n) => (layout.lanes.get(n.id) - lane) * side * 1000 + Math.abs(n.depth - here.depth);
  const beyond = all.filter((n) => (layout.lanes.get(n.id) - lane) * side > 0);
  return beyond.length ? beyond.reduce((a, b) => (away(b) < away(a) ? b : a)).id : node;
}

const COLUMN = { least: 54, read: 70, most: 108 }; // read: where they do not fit in any case
const FITTED = { wide: 46, slim: 8 };
export const WORDLESS = 24; // a column below this holds a shape without a word

/** How wide the columns of the tree are, and with them those of the strip. On a narrow screen the whole block is in view: the columns
 *  that tell the story are wide enough for their words, the others are slim. */
export class Columns {
  /** `across`: pixels to fill; `fitted`: whether everything is to be in view, else no column is narrower than COLUMN.least;
   *  `matters`: columns that stay readable as far as there is room, the most important first, before the others; `need(depth)`:
   *  pixels that the words of one take. */
  constructor(count, across, fitted, matters, need = () => FITTED.wide) {
    const even = across / count < COLUMN.least ? COLUMN.read : Math.min(COLUMN.most, across / count);
    this.slim = fitted && across / count < COLUMN.least; // whether columns are narrower than they may be
    this.widths = Array.from({ length: count }, () => even);
    if (this.slim) {
      const wide = new Map();
      let room = across - count * FITTED.slim;
      const widen = (at) => {
        const width = Math.min(FITTED.wide, Math.max(WORDLESS, need(at)));
        // a comma may still find room where a word does not
        if (wide.has(at) || (wide.size >= 2 && width - FITTED.slim > room)) return;
        wide.set(at, width);
        room -= width - FITTED.slim;
      };
      matters.filter((depth) => depth >= 0 && depth < count).forEach(widen);
      for (const [at, width] of wide) {
        const more = Math.max(0, Math.min(room, need(at) - width)); // where a word that matters is cut
        wide.set(at, width + more);
        room -= more;
      }
      for (const at of this.widths.keys()) widen(at);
      const slim = Math.min(WORDLESS - 1, FITTED.slim + Math.max(0, room) / Math.max(1, count - wide.size));
      const rest = wide.size === count ? Math.max(0, room) / count : 0;
      this.widths = this.widths.map((_, at) => (wide.get(at) ?? slim) + rest);
    }
    this.starts = [0];
    for (const width of this.widths) this.starts.push(this.starts[this.starts.length - 1] + width);
  }

  width(depth) {
    return this.widths[Math.min(this.widths.length - 1, Math.max(0, depth))];
  }

  /** Where a depth stands: whole numbers are the middles of columns, halves the borders behind them. */
  x(depth) {
    const at = depth + 0.5;
    const column = Math.min(this.widths.length - 1, Math.max(0, Math.floor(at)));
    return this.starts[column] + (at - column) * this.widths[column] - this.widths[0] / 2;
  }

  /** The depth that stands at a place: the inverse of `x`. */
  depth(x) {
    const place = x + this.widths[0] / 2;
    let column = this.starts.findLastIndex((start) => start <= place);
    column = Math.min(this.widths.length - 1, Math.max(0, column));
    return column + (place - this.starts[column]) / this.widths[column] - 0.5;
  }
}
