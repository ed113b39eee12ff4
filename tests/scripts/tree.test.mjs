// Lanes, rows and columns of the tree, and its picture.
import assert from "node:assert/strict";
import { test } from "node:test";
import { contributions, draftsName } from "../../assets/viewer/explain.js";
import { wrapped } from "../../assets/viewer/picture.js";
import { liftFlags } from "../../assets/viewer/strip.js";
import { chainLabel, clearOf, laneRows } from "../../assets/viewer/tree.js";
import { BONUS, Columns, layoutTree } from "../../assets/viewer/tree_layout.js";
import { PILL, edgePath } from "../../assets/viewer/tree_shapes.js";

/** A step of [parent, candidates, probability, state] by id; the last accepted node carries the bonus token. */
function stepOf(rows) {
  const nodes = new Map();
  rows.forEach(([parent, candidates, drafterP = 0.5, state = "unreached"], id) => {
    nodes.set(id, { id, parent, candidates, drafterP, state, depth: parent < 0 ? 0 : nodes.get(parent).depth + 1 });
  });
  const last = [...nodes.values()].filter((n) => n.state === "accepted").pop() || nodes.get(0);
  return { nodes, bonus: { parent: last.id, depth: last.depth + 1 } };
}

// A trunk of four, a re-draft from 2 that won, and one from 1 that did not.
const STEP = stepOf([
  [-1, [0, 1, 2], 1, "root"],
  [0, [0, 1, 2], 0.9, "accepted"],
  [1, [0, 1], 0.9, "accepted"],
  [2, [0], 0.4, "rejected"],
  [3, [0]],
  [2, [1], 0.8, "accepted"],
  [5, [1], 0.8],
  [1, [2], 0.1],
  [7, [2], 0.1],
]);

test("the first draft and every re-draft have a lane each", () => {
  const { lanes, hidden } = layoutTree(STEP, null, null);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((id) => lanes.get(id)),
    [0, 0, 0, 0, 0],
  );
  assert.equal(lanes.get(5), lanes.get(6));
  assert.equal(lanes.get(7), lanes.get(8));
  assert.equal(new Set([lanes.get(0), lanes.get(5), lanes.get(7)]).size, 3);
  assert.equal(lanes.has(BONUS), true);
  assert.equal(hidden, 0);
});

/** A tree of `size` nodes, another one for every seed. */
function randomStep(seed, size) {
  let state = seed * 2654435761 + 1;
  const draw = (n) => ((state = (state * 1103515245 + 12345) % 2147483648), Math.floor((state / 2147483648) * n));
  const rows = [[-1, [0], 1, "root"]];
  for (let id = 1; id < size; id += 1)
    rows.push([Math.max(0, id - 1 - (draw(3) ? 0 : draw(id))), [draw(3)], draw(10) / 10]);
  return stepOf(rows);
}

test("nodes of one depth have different lanes, and stems cross no used lane", () => {
  for (const step of [STEP, ...Array.from({ length: 60 }, (_, seed) => randomStep(seed, 40))]) {
    const { lanes, chains } = layoutTree(step, null, null);
    assert.equal(lanes.size, step.nodes.size + 1);
    const taken = [...lanes].map(
      ([id, lane]) => `${id === BONUS ? step.bonus.depth : step.nodes.get(id).depth} ${lane}`,
    );
    assert.equal(new Set(taken).size, taken.length);
    for (const chain of chains) {
      for (const sub of chain.subs) {
        const stem = sub.first.depth - 0.5;
        const between = (other) =>
          other.lane > Math.min(chain.lane, sub.lane) && other.lane < Math.max(chain.lane, sub.lane);
        assert.equal(
          chains.some((other) => between(other) && other.first.depth - 0.5 < stem && stem < other.end + 0.5),
          false,
        );
      }
    }
  }
});

test("layoutTree folds the least likely nodes first, and never the accepted path", () => {
  const { lanes, hidden, folded } = layoutTree(STEP, null, (layout) => layout.lanes.size <= 8);
  assert.equal(lanes.has(7) || lanes.has(8), false);
  assert.equal(lanes.has(5), true);
  assert.equal(hidden, 2);
  assert.deepEqual([...folded], [[1, 2]]);
  const least = layoutTree(STEP, null, () => false);
  assert.equal(least.lanes.has(5) && least.lanes.has(BONUS), true);
});

test("chains and nodes agree on lanes after folding", () => {
  for (let most = 5; most < 40; most += 5) {
    const { lanes, chains } = layoutTree(randomStep(most, 40), null, (layout) => layout.lanes.size <= most);
    for (const chain of chains) for (const node of chain.nodes) assert.equal(lanes.get(node.id), chain.lane);
  }
});

test("a selected node is never folded", () => {
  assert.equal(layoutTree(STEP, 8, () => false).lanes.has(8), true);
});

test("laneRows places rows around the trunk without overlapping labels", () => {
  const pill = (lane, left) => ({ lane, left, right: left + 40, top: -PILL / 2, bottom: PILL / 2 });
  const near = laneRows({ low: -1, high: 1 }, [pill(-1, 0), pill(0, 0), pill(1, 100)]);
  assert.equal(near.y.get(0), 0);
  assert.ok(near.y.get(1) >= PILL && near.y.get(-1) <= -PILL);
  const label = { lane: 0, left: 0, right: 300, top: 13, bottom: 60 };
  const far = laneRows({ low: -1, high: 1 }, [pill(-1, 0), pill(0, 0), label, pill(1, 100)]);
  assert.equal(far.y.get(1), 60 + PILL / 2 + 2); // the pill begins 2 after the label ends
  assert.equal(far.y.get(-1), near.y.get(-1));
});

test("edgePath is straight within a lane and turns between two lanes", () => {
  assert.equal(edgePath(0, 5, 40, 5, 20), "M0 5H40");
  assert.match(edgePath(0, 0, 40, 30, 20), /^M0 0H13Q20 0 20 7V23Q20 30 27 30H40$/);
});

/** The labels of all lanes, that of the anchor first. */
function labels(step, slim = false) {
  const tree = {
    step,
    columns: { slim, x: (depth) => 60 * depth },
    small: (words) => 6 * words.length,
    widths: new Map([...step.nodes.keys()].map((id) => [id, 40])),
  };
  const { chains, lanes } = layoutTree(step, null, null);
  return chains.sort((a, b) => Math.abs(a.lane) - Math.abs(b.lane)).map((chain) => chainLabel(tree, chain, lanes));
}

const mainLabel = (step, slim = false) => labels(step, slim)[0];

test("the label of the main lane names the draft that the lane holds", () => {
  const branches = [
    { drafter: "second", prefix: 2, base: 0 },
    { drafter: "second", prefix: 0, base: 0 },
  ];
  const of = (rows) => ({ ...stepOf(rows), draft: {}, branches, sampled: false, columns: 5 });
  const whole = mainLabel(
    of([
      [-1, [0, 1, 2], 1, "root"],
      [0, [0, 1, 2], 0.9, "accepted"],
      [1, [0, 1], 0.9, "accepted"],
      [2, [0], 0.4, "rejected"],
    ]),
  );
  assert.deepEqual([whole.words, whole.won], ["first draft · 2 right", 2]);
  // a node budget kept the re-draft from 0 and nothing of the first draft
  const left = mainLabel(
    of([
      [-1, [2], 1, "root"],
      [0, [2], 0.9, "accepted"],
      [1, [2], 0.8],
    ]),
  );
  assert.deepEqual([left.words, left.won], ["re-draft from 0 · added 1", 1]);
  assert.equal(
    mainLabel(
      of([
        [-1, [2], 1, "root"],
        [0, [2], 0.9, "accepted"],
      ]),
      true,
    ).words,
    "from 0 · +1",
  ); // across no stems
  assert.equal(mainLabel(of([[-1, [0, 1, 2], 1, "root"]])), null);
});

test("a lane label without room above its lane stands beside it", () => {
  // a trunk of three, of which two are right; the re-draft from 2 is the last column, over which its name would end behind the block
  const rows = [
    [-1, [0, 1], 1, "root"],
    [0, [0, 1], 0.9, "accepted"],
    [1, [0, 1], 0.9, "accepted"],
    [2, [0], 0.4, "rejected"],
    [2, [1], 0.8, "accepted"],
  ];
  const step = {
    ...stepOf(rows),
    draft: {},
    branches: [{ drafter: "second", prefix: 2, base: 0 }],
    sampled: false,
    columns: 4,
    boundary: 2,
  };
  const [trunk, redraft] = labels(step, true);
  assert.deepEqual([trunk.beside, redraft.beside], [false, true]);
});

test("contributions and lane labels count the same added tokens per re-draft", () => {
  const branches = [
    { drafter: "second", prefix: 1, base: 0 },
    { drafter: "second", prefix: 0, base: 0 },
  ];
  // both re-drafts write the same two tokens, then the one from 0 alone is right
  const rows = [
    [-1, [0, 1, 2], 1, "root"],
    [0, [0, 1, 2], 0.9, "accepted"],
    [1, [0], 0.4, "rejected"],
    [1, [1, 2], 0.5, "accepted"],
    [3, [1, 2], 0.5, "accepted"],
    [4, [1], 0.4, "rejected"],
    [4, [2], 0.4, "accepted"],
  ];
  const step = { ...stepOf(rows), draft: { prefix: 0 }, branches, sampled: false, columns: 6, accepted: [1, 3, 4, 6] };
  const said = contributions(step).parts.map(({ drafts, added }) => `${draftsName(drafts)} · added ${added}`);
  assert.deepEqual(said, ["re-drafts from 0 and 1 · added 2", "re-draft from 0 · added 1"]);
  assert.deepEqual(
    labels(step)
      .slice(1)
      .map(({ words }) => words.replace(/, differs after \d/, "")),
    said,
  );
});

test("liftFlags keeps the numbers of likelier flags visible", () => {
  const flags = [
    [50, 100],
    [55, 110],
    [45, 96],
    [50, 98],
    [90, 100],
  ];
  const lifts = liftFlags(flags);
  assert.equal(lifts[0], 0);
  assert.equal(lifts[4], 0); // out of reach
  const cloths = flags.map(([x, y], n) => [x, y - lifts[n]]);
  cloths.forEach(([x, y], n) =>
    cloths.slice(0, n).forEach(([a, b]) => assert.ok(Math.abs(a - x) >= 16 || Math.abs(b - y) >= 12)),
  );
});

test("clearOf moves labels off the boundary line and stems", () => {
  const room = [0, 300];
  assert.equal(clearOf([100], 120, 50, room), 120); // clear of it
  assert.equal(clearOf([100], 80, 50, room), 105);
  assert.equal(clearOf([100], 80, 50, room, true), 45);
  assert.equal(clearOf([310], 280, 50, room), 255); // no room behind it
  assert.equal(clearOf([30], 10, 50, room, true), 35);
  assert.equal(clearOf([30], 10, 50, [0, 20]), 10); // no room at all
  assert.equal(clearOf([30, 60, 200], 20, 50, room), 65); // nor across a stem
});

test("the accepted path leaves the first draft upwards after folding", () => {
  for (let most = 5; most <= STEP.nodes.size + 1; most += 1) {
    const { lanes } = layoutTree(STEP, null, (layout) => layout.lanes.size <= most);
    assert.ok(lanes.get(5) < 0);
  }
});

test("Columns gives selected columns the width of their words, within the total width", () => {
  const { widths, slim } = new Columns(16, 360, true, [0, 3, 99, 5], (at) => (at === 3 ? 18 : 40));
  assert.equal(slim, true);
  assert.deepEqual([widths[0], widths[3], widths[5]], [40, 24, 40]); // a comma takes no more than a column needs at least
  assert.ok(Math.min(...widths) >= 8 && widths.filter((width) => width >= 24).length > 5);
  assert.ok(Math.abs(widths.reduce((a, b) => a + b) - 360) < 16);
  const few = new Columns(5, 240, true, [0]);
  assert.ok(few.slim && Math.abs(few.widths.reduce((a, b) => a + b) - 240) < 1e-9);
  assert.equal(new Columns(16, 390, false, [0]).widths[15], 70);
});

const pen = { measureText: (words) => ({ width: 10 * [...words].length }) };
globalThis.document = { createElement: () => ({ setAttribute: () => {}, getContext: () => pen }) };

test("wrapped breaks long titles between words", () => {
  assert.deepEqual(wrapped("one two three", 130, ""), ["one two three"]);
  assert.deepEqual(wrapped("one two three", 70, ""), ["one two ", "three"]);
  assert.deepEqual(wrapped("one two three", 69, ""), ["one ", "two ", "three"]);
});

test("wrapped cuts words longer than a line between characters", () => {
  assert.deepEqual(wrapped("a 😀😀😀😀😀", 30, ""), ["a 😀", "😀😀😀", "😀"]);
  assert.deepEqual(wrapped("ab", 1, ""), ["a", "b"]);
});
