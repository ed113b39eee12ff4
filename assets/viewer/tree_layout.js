// Which lane every node of a token tree gets. Depth is the other axis, so a lane is all there is to choose.

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
  const children = new Map();
  let root = null;
  for (const node of step.nodes.values()) {
    if (node.parent < 0) root = node;
    else children.set(node.parent, [...(children.get(node.parent) || []), node]);
  }
  if (!root) return { lanes: new Map(), chains: [], folded: new Map(), hidden: 0, low: 0, high: 0 };
  const bonus = step.bonus && step.nodes.has(step.bonus.parent) ? { id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth, candidates: [] } : null;
  const main = chainFrom(root, children, heights(step.nodes), bonus);
  const order = byWorth(main, step, selected);
  let most = order.length;
  let layout = most <= MOST_CHAINS || !fits ? arrange(main, order, most) : null;
  if (fits && !(layout && fits(layout))) {
    // the largest number of chains that fits, by halving
    let least = order.filter((chain) => chain.needed).length;
    most = Math.max(least, Math.min(most, MOST_CHAINS));
    while (least < most) {
      const middle = Math.ceil((least + most) / 2);
      if (fits(arrange(main, order, middle))) least = middle;
      else most = middle - 1;
    }
    layout = arrange(main, order, least);
  }
  return layout;
}

/** The chains below the main one, what must be shown first, then by the probability that the drafters gave them. */
function byWorth(main, step, selected) {
  const reach = new Map();
  for (const node of step.nodes.values()) reach.set(node.id, node.parent < 0 ? 1 : reach.get(node.parent) * (node.drafterP || 0));
  const order = [];
  const collect = (chain, most) => {
    chain.needed = chain.first.id === BONUS || chain.first.state === "accepted" || chain.nodes.some((node) => node.id === selected);
    // never more than the chain that it leaves, so that it does not come before that one
    chain.worth = Math.min(most, chain.nodes.reduce((sum, node) => sum + (reach.get(node.id) || 0), 0));
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
  const kept = new Set([main, ...order.slice(0, most)]);
  const lanes = new Map();
  const chains = [];
  const folded = new Map();
  place(main, kept);
  settle(main, 0, kept, lanes, chains);
  let hidden = 0;
  for (const chain of chains) {
    for (const sub of chain.subs) {
      if (kept.has(sub)) continue;
      const size = sizeOf(sub);
      hidden += size;
      folded.set(sub.first.parent, (folded.get(sub.first.parent) || 0) + size);
    }
  }
  let low = 0;
  let high = 0;
  for (const lane of lanes.values()) [low, high] = [Math.min(low, lane), Math.max(high, lane)];
  return { lanes, chains, folded, hidden, low, high };
}

const sizeOf = (chain) => chain.nodes.length + chain.subs.reduce((sum, sub) => sum + sizeOf(sub), 0);

/** Length of the longest path below every node. */
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
  const chain = { nodes: [], subs: [], first, start: first.depth, end: first.depth };
  for (let node = first; node; ) {
    chain.nodes.push(node);
    chain.end = node.depth;
    const below = [...(children.get(node.id) || [])].sort(
      (a, b) => b.candidates.includes(lead) - a.candidates.includes(lead) || height.get(b.id) - height.get(a.id) || a.id - b.id,
    );
    const withBonus = bonus && bonus.parent === node.id;
    let next = below.shift() || null;
    for (const other of below) chain.subs.push(chainFrom(other, children, height, bonus));
    if (withBonus && next) chain.subs.push({ nodes: [bonus], subs: [], first: bonus, start: bonus.depth, end: bonus.depth });
    else if (withBonus) next = bonus;
    node = next;
  }
  return chain;
}

/** Gives every chain below this one an `offset` in lanes; returns the boxes and stems drawn, relative to this chain's lane. */
function place(chain, kept, outward = false) {
  const drawn = { boxes: [{ lane: 0, from: chain.start - 0.5, to: chain.end + 0.5 }], stems: [] };
  // of those that leave together the accepted one is nearest
  const subs = chain.subs.filter((sub) => kept.has(sub)).sort((a, b) => b.start - a.start || b.needed - a.needed || a.end - b.end);
  const taken = { 1: 0, "-1": 0 };
  for (const sub of subs) {
    const own = place(sub, kept, true);
    const sides = outward ? [1] : taken[1] <= taken[-1] ? [1, -1] : [-1, 1];
    const stem = sub.start - 0.5;
    let offset = 0;
    for (let distance = 1; !offset; distance += 1) {
      offset = sides.map((side) => side * distance).find((lane) => free(own, lane, stem, drawn)) || 0;
    }
    sub.side = Math.sign(offset);
    sub.offset = offset;
    taken[sub.side] += 1;
    const lane = laneFrom(offset);
    for (const box of own.boxes) drawn.boxes.push({ ...box, lane: lane(box.lane) });
    drawn.stems.push({ at: stem, from: 0, to: offset });
    for (const other of own.stems) drawn.stems.push({ at: other.at, from: lane(other.from), to: lane(other.to) });
  }
  return drawn;
}

/** Where a lane of a chain lies that stands `offset` lanes away: on the upper side it is mirrored. */
const laneFrom = (offset) => (lane) => offset + Math.sign(offset) * lane;

/** Whether a chain can stand there: no box on another one, no stem through a box. */
function free(own, offset, stem, drawn) {
  const lane = laneFrom(offset);
  for (const box of drawn.boxes) {
    if (crosses(stem, 0, offset, box, box.lane)) return false;
    for (const other of own.boxes) if (lane(other.lane) === box.lane && other.from <= box.to && box.from <= other.to) return false;
    for (const other of own.stems) if (crosses(other.at, lane(other.from), lane(other.to), box, box.lane)) return false;
  }
  for (const { at, from, to } of drawn.stems) {
    for (const box of own.boxes) if (crosses(at, from, to, box, lane(box.lane))) return false;
  }
  return true;
}

const crosses = (at, from, to, box, lane) => box.from < at && at < box.to && (lane - from) * (lane - to) < 0;

/** Turns offsets into lanes; a chain placed on the upper side carries everything below it mirrored. */
function settle(chain, lane, kept, lanes, chains, mirror = 1) {
  chain.lane = lane;
  chains.push(chain);
  for (const node of chain.nodes) lanes.set(node.id, lane);
  for (const sub of chain.subs) if (kept.has(sub)) settle(sub, lane + mirror * sub.offset, kept, lanes, chains, mirror * sub.side);
}
