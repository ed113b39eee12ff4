// Layout of a token tree: the lane of every node, the widths of columns, and the next node in a direction.

import { BONUS, nodeOf } from "./step.js";
import { best, clamp, sum } from "./dom.js";
import { visible } from "./words.js";

const MOST_CHAINS = 64; // more never fit on a screen
const SHOWN = 2; // tokens shown of a branch that was not accepted

/**
 * The chain of the anchor; all other chains of the step are its `subs`, recursively. The bonus token has the id BONUS.
 *
 * A chain is a row of nodes in one lane: a node stays in its parent's lane if it continues the same candidate. With `cut`, branches off
 * the accepted path end after two tokens: `more` of such a chain holds its hidden nodes and their chains.
 */
export function chainsOf(step, cut) {
  const [root, ...others] = step.nodes.values();
  const children = new Map();
  for (const node of others) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const main = chainFrom(root, children, heights(step.nodes), step.bonus);
  if (cut) cutChain(main);
  return main;
}

const onPath = ({ id, state }) => id === BONUS || state === "accepted" || state === "root";

function cutChain(chain) {
  const path = chain.nodes.filter(onPath);
  const branch = chain.nodes.slice(path.length);
  const last = path.at(-1)?.depth ?? -1;
  const [stay, go] = [[], []];
  for (const sub of chain.subs) (sub.first.depth <= last + 1 ? stay : go).push(sub);
  const whole = { first: branch[0], nodes: branch, subs: go, end: chain.end };
  const count = sizeOf(whole) - SHOWN;
  if (branch.length && count > 1) {
    chain.nodes = [...path, ...branch.slice(0, SHOWN)];
    chain.end = chain.nodes.at(-1).depth;
    const branches = endsOf(whole) - (branch.length > SHOWN ? 0 : 1); // the end of the branch itself is shown if short
    chain.more = { at: chain.nodes.at(-1).id, count, branches, chain: whole };
    chain.subs = stay;
  }
  chain.subs.forEach(cutChain);
}

/** All nodes of a chain and its subs. */
export const nodesOf = (chain) => [...chain.nodes, ...chain.subs.flatMap(nodesOf)];

/**
 * Assigns lanes to chains. The chains that branch off deepest are placed first and nearest, so that no stem crosses a lane in use.
 *
 * If a layout does not `fit`, the chains with the least drafter probability are left out, but never the accepted path. `more` of the result
 * lists the hidden nodes by the node before them: the rest of a cut chain, or whole chains. `reach(more)`: depth up to which a cut chain
 * needs its lane, for the words “+ n more”. `above`: nodes in a lane of their own, above all others.
 */
export function layoutTree(main, fits = null, reach = () => 0, above = []) {
  const order = byWorth(main);
  const arranged = (most) => arrange(main, order, most, above);
  const widen = (chain) => {
    if (chain.more) chain.end = Math.max(chain.end, reach(chain.more));
    chain.subs.forEach(widen);
  };
  widen(main);
  if (!fits) return arranged(order.length);
  let least = order.filter((chain) => chain.needed).length;
  let most = clamp(order.length, least, MOST_CHAINS);
  const whole = arranged(most);
  if (fits(whole)) return whole;
  // binary search for the largest number of chains that fits
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (fits(arranged(middle))) least = middle;
    else most = middle - 1;
  }
  return arranged(least); // again, because chains store the lane of the latest layout
}

/** All chains except the main one: first those that must be shown, then by drafter probability. */
function byWorth(main) {
  const reach = new Map();
  const order = [];
  const collect = (chain, most) => {
    for (const { id, parent, drafterP } of chain.nodes)
      reach.set(id, parent < 0 ? 1 : (reach.get(parent) ?? 0) * (drafterP || 0));
    chain.needed = onPath(chain.first);
    // at most the worth of its parent chain, so that a chain is ordered after its parent
    chain.worth = Math.min(most, sum(chain.nodes.map(({ id }) => reach.get(id))));
    if (chain !== main) order.push(chain);
    for (const sub of chain.subs) collect(sub, chain === main ? Infinity : chain.worth);
  };
  collect(main, Infinity);
  return order.sort((a, b) => b.needed - a.needed || b.worth - a.worth);
}

/** The layout with the first `most` chains of `order`, and the nodes `above` them. */
function arrange(main, order, most, above) {
  const shown = new Set([main, ...order.slice(0, most)]);
  const lanes = new Map();
  const chains = [];
  const more = new Map();
  place(main, shown);
  // the accepted path always leaves the first draft upwards, however many chains are left out
  const path = main.subs.find(({ first }) => onPath(first));
  settle(main, 0, shown, lanes, chains, path && path.offset > 0 ? -1 : 1);
  for (const chain of chains) {
    if (chain.more) more.set(chain.more.at, chain.more);
    for (const sub of chain.subs) {
      if (shown.has(sub)) continue;
      const at = sub.first.parent;
      const first = chain.nodes.find(({ id }) => id === at);
      const {
        count,
        branches,
        chain: left,
      } = more.get(at) ?? {
        count: 0,
        branches: 0,
        chain: { first, nodes: [first], subs: [], end: first.depth },
      };
      left.subs.push(sub);
      more.set(at, { at, count: count + sizeOf(sub), branches: branches + endsOf(sub), chain: left });
    }
  }
  const high = Math.max(...lanes.values());
  const top = Math.min(...lanes.values()) - 1;
  for (const { id } of above) lanes.set(id, top);
  return { lanes, chains, more, low: Math.min(...lanes.values()), high };
}

/** The lanes of the hidden nodes after a node, by node, relative to the lane of that node. */
export function lanesOfMore({ chain }) {
  const all = { has: () => true };
  const lanes = new Map();
  place(chain, all, true);
  settle(chain, 0, all, lanes, []);
  return lanes;
}

/** The number of branches in which a chain and its subs end. */
const endsOf = ({ subs, more }) => sum(subs.map(endsOf)) + (more ? endsOf(more.chain) : 1);
const sizeOf = (chain) => nodesOf(chain).length + sum(withMore(chain).map(({ more }) => more.count));
const withMore = (chain) => [...(chain.more ? [chain] : []), ...chain.subs.flatMap(withMore)];

function heights(nodes) {
  const out = new Map();
  for (const node of [...nodes.values()].reverse()) {
    const height = out.get(node.id) || 0;
    out.set(node.id, height);
    if (node.parent >= 0) out.set(node.parent, Math.max(out.get(node.parent) || 0, height + 1));
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

/** Gives every sub of a chain an `offset` in lanes; returns the used boxes and stems, relative to the lane of the chain. */
function place(chain, shown, outward = false) {
  const used = { boxes: [{ lane: 0, from: chain.first.depth - 0.5, to: chain.end + 0.5 }], stems: [] };
  // of subs that leave at the same depth, the accepted one is nearest
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

/** Converts lanes of a sub to lanes of its parent chain, `offset` lanes away: the upper side is mirrored. */
const laneFrom = (offset) => (lane) => offset + Math.sign(offset) * lane;

/** Whether a sub can have this offset: its boxes overlap no other box, and no stem crosses a box. */
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

/** Turns offsets into lanes; all subs of a chain on the upper side are mirrored. */
function settle(chain, lane, shown, lanes, chains, mirror = 1) {
  chain.lane = lane;
  chains.push(chain);
  for (const node of chain.nodes) lanes.set(node.id, lane);
  for (const sub of chain.subs)
    if (shown.has(sub)) settle(sub, lane + mirror * sub.offset, shown, lanes, chains, mirror * sub.side);
}

/** Columns that must be readable, the most important first: the selected node, the anchor, the first rejected token, the bonus token,
 *  then the accepted path. */
export function columnsThatMatter(step, node) {
  const selected = nodeOf(step, node);
  const path = step.accepted.map((id) => step.nodes.get(id).depth);
  const deepest = Math.max(0, ...path);
  const end = step.bonus ? step.bonus.depth : deepest;
  const chosen = selected ? [selected.depth] : [];
  const wrong = step.boundary === null || !step.draft ? [] : [step.boundary + 1, step.boundary];
  return [...chosen, 0, ...wrong.slice(0, 1), end, ...wrong.slice(1), 1, deepest, ...path, 2, 3];
}

/** The token that the target chose, for a label. */
export const chosenWords = (text) => visible(text.replace(/^ (?=\S)/, ""), 12);

/** The important rejected tokens, by node: the first draft's token at the boundary, with the token that the target chose there; and the
 *  rejected token after the accepted path, with "" because the bonus token stands beside it. */
export function brokenTokens(step) {
  const last = step.accepted.at(-1) ?? 0;
  const path = step.nodes.get(last).candidates;
  const rejected = [...step.nodes.values()].filter(
    ({ state, parent }) => state === "rejected" && step.choices.has(parent),
  );
  const rank = ({ candidates, drafterP }) => (candidates.some((c) => path.includes(c)) ? 1 : 0) + (drafterP || 0);
  const behind = best(
    rejected.filter(({ parent }) => parent === last),
    rank,
  );
  const ofFirstDraft = rejected.find(({ candidates }) => candidates.includes(0));
  const broken = new Map(behind && (!ofFirstDraft || ofFirstDraft.parent !== last) ? [[behind.id, ""]] : []);
  if (!ofFirstDraft) return broken;
  return broken.set(ofFirstDraft.id, chosenWords(step.choices.get(ofFirstDraft.parent).text));
}

/** The next node in a direction: up and down across lanes, left and right along the path. `lanes`: lanes of the drawn nodes. */
export function nextNode(step, lanes, node, direction) {
  if (!step) return null;
  if (node === null || !lanes.has(node)) return step.accepted.at(-1) ?? 0;
  const all = [...step.nodes.values(), ...(step.bonus ? [step.bonus] : [])];
  const here = all.find((n) => n.id === node);
  if (direction === "left") return here.parent >= 0 ? here.parent : node;
  if (direction === "right") {
    const next = all.filter((n) => n.parent === node);
    return (next.find(onPath) || next.find((n) => lanes.get(n.id) === lanes.get(node)) || next[0] || here).id;
  }
  const side = direction === "up" ? -1 : 1;
  const lane = lanes.get(node);
  const away = (n) => (lanes.get(n.id) - lane) * side * 1000 + Math.abs(n.depth - here.depth);
  const beyond = all.filter((n) => (lanes.get(n.id) - lane) * side > 0);
  return best(beyond, (n) => -away(n))?.id ?? node;
}

const COLUMN = { least: 46, read: 76, most: 108 }; // pixels; read: least width if not all columns fit into view
const FITTED = { wide: 60, slim: 7 }; // pixels
export const WORDLESS = 20; // pixels: narrower columns hold a shape without a word

/** Widths that fill `across` as evenly as possible: none below its need, none widened above `most`. If the needs are too large, the
 *  widest columns are cut to the same width. */
function spread(needs, across, most) {
  const enough = sum(needs) <= across;
  const width = enough ? (level) => (need) => Math.max(need, level) : (level) => (need) => Math.min(need, level);
  let [low, high] = [0, enough ? most : Math.max(...needs)];
  for (let n = 0; n < 24; n += 1) {
    const level = (low + high) / 2;
    if (sum(needs.map(width(level))) <= across) low = level;
    else high = level;
  }
  return needs.map(width(low));
}

/** Widths of the columns of tree and strip. On a narrow screen the whole block is in view: important columns are wide enough for their
 *  words, the others are slim. */
export class Columns {
  /**
   * count: number of columns
   * across: pixels to fill
   * fitted: whether all columns must be in view; else none is narrower than COLUMN.least
   * matters: columns that stay readable as far as possible, the most important first
   * need(depth): pixels for the words of a column, 0 without words
   * wish(depth): pixels if there is room: for the words of hidden nodes too, or in larger type on a narrow screen
   * lead: width of the first column if the others leave it; where it is a small part of the view, at least 90% of it, or all of it if `fitted`
   */
  constructor(count, across, fitted, matters, need = () => COLUMN.read, wish = need, lead = 0) {
    const [needs, wishes] = [need, wish].map((of) => [...Array(count).keys()].map(of));
    const filled = (widths) => widths.map((width) => width || COLUMN.least / 2);
    const wanted = filled(sum(filled(wishes)) <= across ? wishes : needs);
    const kept = 6 * lead < across ? (fitted ? lead : 0.9 * lead) : 0;
    const first = clamp(Math.floor(across - sum(wanted.slice(1))), kept, lead);
    const head = first > wanted[0] ? [first] : [];
    for (const widths of [needs, wishes]) widths.splice(0, head.length);
    const room = across - sum(head);
    const least = sum(filled(needs).map((width) => Math.min(COLUMN.least, width)));
    this.slim = fitted && least > room; // whether columns are narrower than COLUMN.least
    const important = matters.map((depth) => depth - head.length);
    const widths = this.slim
      ? slimWidths(needs, wishes, room, important)
      : least > room
        ? needs.map((width) => Math.max(COLUMN.read, width))
        : spread(filled(sum(filled(wishes)) <= room ? wishes : needs), room, COLUMN.most);
    this.widths = [...head, ...widths];
    this.starts = [0];
    for (const width of this.widths) this.starts.push(this.starts.at(-1) + width);
  }

  width(depth) {
    return this.widths[clamp(depth, 0, this.widths.length - 1)];
  }

  /** x of a depth: whole numbers are the middles of columns, halves the borders between them. */
  x(depth) {
    const at = depth + 0.5;
    const column = clamp(Math.floor(at), 0, this.widths.length - 1);
    return this.starts[column] + (at - column) * this.widths[column] - this.widths[0] / 2;
  }

  /** The depth at a place; the inverse of `x`. */
  depth(x) {
    const place = x + this.widths[0] / 2;
    const column = clamp(
      this.starts.findLastIndex((start) => start <= place),
      0,
      this.widths.length - 1,
    );
    return column + (place - this.starts[column]) / this.widths[column] - 0.5;
  }
}

function slimWidths(needs, wishes, across, matters) {
  const wide = new Map();
  let room = across - needs.length * FITTED.slim;
  const widen = (at) => {
    const width = clamp(needs[at], WORDLESS, FITTED.wide);
    // go on after a word that does not fit: a shorter one may still fit
    if (!needs[at] || wide.has(at) || (wide.size >= 2 && width - FITTED.slim > room)) return;
    wide.set(at, width);
    room -= width - FITTED.slim;
  };
  matters.filter((depth) => depth >= 0 && depth < needs.length).forEach(widen);
  for (const at of needs.keys()) widen(at);
  for (const full of [needs, wishes])
    for (const [at, width] of wide) {
      const more = clamp(full[at] - width, 0, room); // first words that are cut, then words in small type
      wide.set(at, width + more);
      room -= more;
    }
  const slim = Math.min(WORDLESS - 1, FITTED.slim + Math.max(0, room) / Math.max(1, needs.length - wide.size));
  const rest = wide.size === needs.length ? Math.max(0, room) / needs.length : 0;
  return needs.map((_, at) => (wide.get(at) ?? slim) + rest);
}
