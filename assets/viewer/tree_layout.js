// Which lane every node of a token tree gets. Depth is the other axis, so a lane is all there is to choose.

const BONUS = -1;

/**
 * Lanes for the nodes of a step (and its bonus token under the id BONUS).
 *
 * A chain is a run of nodes in one lane: a node goes on in its parent's lane when it continues the same candidate.
 * Chains that leave latest are placed first and nearest, so a stem never crosses a lane that is in use beside it.
 */
function layoutTree(step) {
  const children = new Map();
  let root = null;
  for (const node of step.nodes.values()) {
    if (node.parent < 0) root = node;
    else children.set(node.parent, [...(children.get(node.parent) || []), node]);
  }
  const lanes = new Map();
  if (!root) return { lanes, chains: [], low: 0, high: 0 };
  const bonus = step.bonus && step.nodes.has(step.bonus.parent) ? { id: BONUS, parent: step.bonus.parent, depth: step.bonus.depth, candidates: [] } : null;
  const main = chainFrom(root, children, heights(step.nodes), bonus);
  place(main);
  const chains = [];
  settle(main, 0, lanes, chains);
  let low = 0;
  let high = 0;
  for (const lane of lanes.values()) [low, high] = [Math.min(low, lane), Math.max(high, lane)];
  return { lanes, chains, low, high };
}

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

/** Gives every chain below this one an `offset` in lanes; returns the boxes taken, relative to this chain's lane. */
function place(chain, outward = false) {
  const boxes = [{ lane: 0, from: chain.start - 0.5, to: chain.end + 0.5 }];
  const subs = [...chain.subs].sort((a, b) => b.start - a.start || a.end - b.end);
  const taken = { 1: 0, "-1": 0 };
  for (const sub of subs) {
    const own = place(sub, true);
    const sides = outward ? [1] : taken[1] <= taken[-1] ? [1, -1] : [-1, 1];
    let choice = null;
    for (let distance = 1; !choice; distance += 1) {
      choice = sides.map((side) => ({ side, offset: side * distance })).find((c) => fits(own, c, boxes, sub.start - 0.5)) || null;
    }
    sub.side = choice.side;
    sub.offset = choice.offset;
    taken[choice.side] += 1;
    for (const box of own) boxes.push({ ...box, lane: choice.offset + choice.side * box.lane });
  }
  return boxes;
}

function fits(own, { side, offset }, boxes, stem) {
  return boxes.every((box) => {
    const between = box.lane * side > 0 && Math.abs(box.lane) < Math.abs(offset);
    if (between && box.from < stem && stem < box.to) return false;
    return own.every((o) => offset + side * o.lane !== box.lane || o.to < box.from || box.to < o.from);
  });
}

/** Turns offsets into lanes; a chain placed on the upper side carries everything below it mirrored. */
function settle(chain, lane, lanes, chains, mirror = 1) {
  chain.lane = lane;
  chains.push(chain);
  for (const node of chain.nodes) lanes.set(node.id, lane);
  for (const sub of chain.subs) settle(sub, lane + mirror * sub.offset, lanes, chains, mirror * sub.side);
}
