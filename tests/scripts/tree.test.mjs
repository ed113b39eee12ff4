// Lanes, rows and columns of the tree, and its picture.
import assert from "node:assert/strict";
import { test } from "node:test";
import { onLines, wrapped } from "../../assets/viewer/picture.js";
import { numbered } from "../../assets/viewer/strip.js";
import { chainLabel, clearOf, laneRows } from "../../assets/viewer/tree_labels.js";
import { Columns, brokenTokens, chainsOf, lanesOfMore, layoutTree, nextNode } from "../../assets/viewer/tree_layout.js";
import { BONUS } from "../../assets/viewer/step.js";
import { PILL, edgePath, fitLabel } from "../../assets/viewer/tree_shapes.js";

/** A step of [parent, candidates, probability, state] by id; the last accepted node carries the bonus token. */
function stepOf(rows) {
  const nodes = new Map();
  rows.forEach(([parent, candidates, drafterP = 0.5, state = "unreached"], id) => {
    nodes.set(id, { id, parent, candidates, drafterP, state, depth: parent < 0 ? 0 : nodes.get(parent).depth + 1 });
  });
  const last = [...nodes.values()].filter((n) => n.state === "accepted").pop() || nodes.get(0);
  return { nodes, bonus: { id: BONUS, parent: last.id, depth: last.depth + 1 } };
}

// A trunk of four tokens, an accepted re-draft from node 2, and another one from node 1.
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

/** The layout of a step with whole branches (`layoutOf`) or cut ones (`cutOf`), as far as it `fits`. */
const layoutOf = (step, fits = null) => layoutTree(chainsOf(step, false), fits);
const cutOf = (step, fits = null) => layoutTree(chainsOf(step, true), fits);
const counts = ({ more }) => [...more.values()].map(({ at, count }) => [at, count]);

test("the first draft and every re-draft have a lane each", () => {
  const { lanes, more } = layoutOf(STEP);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((id) => lanes.get(id)),
    [0, 0, 0, 0, 0],
  );
  assert.equal(lanes.get(5), lanes.get(6));
  assert.equal(lanes.get(7), lanes.get(8));
  assert.equal(new Set([lanes.get(0), lanes.get(5), lanes.get(7)]).size, 3);
  assert.equal(lanes.has(BONUS), true);
  assert.equal(more.size, 0);
});

/** A pseudo-random tree of `size` nodes. */
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
    const { lanes, chains } = layoutOf(step);
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

test("layoutTree leaves out the least likely branches first, and never the accepted path", () => {
  const layout = layoutOf(STEP, ({ lanes }) => lanes.size <= 8);
  assert.equal(layout.lanes.has(7) || layout.lanes.has(8), false);
  assert.equal(layout.lanes.has(5), true);
  assert.deepEqual(counts(layout), [[1, 2]]);
  const least = layoutOf(STEP, () => false);
  assert.equal(least.lanes.has(5) && least.lanes.has(BONUS), true);
});

test("chains and nodes agree on lanes if some chains are left out", () => {
  for (let most = 5; most < 40; most += 5) {
    const { lanes, chains } = layoutOf(randomStep(most, 40), ({ lanes: all }) => all.size <= most);
    for (const chain of chains) for (const node of chain.nodes) assert.equal(lanes.get(node.id), chain.lane);
  }
});

// A trunk of six tokens, one of them accepted; a re-draft leaves after the third.
const LONG = stepOf([
  [-1, [0, 1], 1, "root"],
  [0, [0, 1], 0.9, "accepted"],
  [1, [0, 1], 0.4, "rejected"],
  [2, [0, 1]],
  [3, [0]],
  [4, [0]],
  [5, [0]],
  [3, [1]],
  [7, [1]],
]);

test("a branch that was not accepted ends after two tokens, with all that leaves it", () => {
  const layout = cutOf(LONG);
  assert.deepEqual([...layout.lanes.keys()].sort(), [BONUS, 0, 1, 2, 3].sort());
  assert.deepEqual(counts(layout), [[3, 5]]);
  const three = stepOf([[-1, [0], 1, "root"], ...[0, 1, 2].map((parent) => [parent, [0]])]);
  for (const step of [STEP, three]) assert.equal(cutOf(step).lanes.size, step.nodes.size + 1); // not cut if only one token would be hidden
});

test("every node is either shown, or counted once after a shown node", () => {
  for (const cut of [layoutOf, cutOf]) {
    for (let seed = 0; seed < 60; seed += 1) {
      const step = randomStep(seed, 40);
      const { lanes, more } = cut(step, ({ lanes: all }) => all.size <= 12 + (seed % 20));
      const opened = [...more.values()].flatMap((branch) => {
        const ids = [...lanesOfMore(branch).keys()].filter((id) => !lanes.has(id));
        assert.equal(ids.length, branch.count);
        assert.ok(lanes.has(branch.at));
        const parents = new Set([...step.nodes.values()].map(({ parent }) => parent));
        assert.equal(ids.filter((id) => !parents.has(id)).length, branch.branches);
        return ids;
      });
      assert.deepEqual([...lanes.keys(), ...opened].sort(), [BONUS, ...step.nodes.keys()].sort());
    }
  }
});

test("an opened branch continues in its lane, and its subs have other lanes", () => {
  const lanes = lanesOfMore(cutOf(LONG).more.get(3));
  assert.deepEqual(
    [2, 3, 6].map((id) => lanes.get(id)),
    [0, 0, 0],
  );
  assert.deepEqual(
    [7, 8].map((id) => lanes.get(id)),
    [1, 1],
  );
});

test("arrow keys lead into a cut branch and back", () => {
  const step = { ...LONG, accepted: [1] };
  const { lanes } = cutOf(LONG);
  assert.equal(nextNode(step, lanes, 3, "right"), 4);
  assert.equal(nextNode(step, new Map([...lanes, [4, 0]]), 4, "left"), 3);
  assert.equal(nextNode(step, lanes, 1, "right"), BONUS);
});

test("brokenTokens gives the chosen token for the first draft's rejected token only", () => {
  const accepted = [1, 2, 5];
  const choices = new Map([2, 5].map((id) => [id, { text: " shells" }]));
  const behind = { ...STEP, nodes: new Map(STEP.nodes), accepted, choices };
  assert.deepEqual([...brokenTokens(behind)], [[3, "shells"]]);
  behind.nodes.set(7, { ...STEP.nodes.get(7), parent: 2, candidates: [1], state: "rejected", drafterP: 0.9 });
  assert.deepEqual([...brokenTokens({ ...behind, accepted: [1, 2] }).keys()], [3]); // the first draft’s token is preferred
  behind.nodes.delete(7);
  behind.nodes.set(6, { ...STEP.nodes.get(6), state: "rejected" });
  assert.deepEqual(
    [...brokenTokens(behind)],
    [
      [6, ""],
      [3, "shells"],
    ],
  );
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
  const loose = laneRows({ low: -1, high: 1 }, [pill(-1, 0), pill(0, 0), pill(1, 100)], 500);
  assert.ok(loose.y.get(1) > near.y.get(1) + 10 && loose.bottom - loose.top <= 500);
});

test("edgePath is straight within a lane and turns between two lanes", () => {
  assert.equal(edgePath(0, 5, 40, 5, 20), "M0 5H40");
  assert.match(edgePath(0, 0, 40, 30, 20), /^M0 0H13Q20 0 20 7V23Q20 30 27 30H40$/);
});

/** The names of a step's lanes, from the middle outwards. */
function labels(step, pitch = 90, lines = []) {
  const tree = {
    step: { levels: [], ...step },
    columns: { x: (depth) => pitch * depth },
    small: (words) => 6 * words.length,
    widths: new Map([...step.nodes.keys()].map((id) => [id, 40])),
  };
  const { chains } = layoutOf(step);
  return chains
    .sort((a, b) => Math.abs(a.lane) - Math.abs(b.lane))
    .map((chain) => chainLabel(tree, chain, lines)?.words)
    .filter(Boolean);
}

test("chainLabel names lanes with accepted tokens only, and counts these", () => {
  const branches = [
    { drafter: "second", prefix: 2, base: 0 },
    { drafter: "second", prefix: 1, base: 0 },
  ];
  const step = { ...STEP, draft: {}, branches, sampled: false, columns: 6 };
  assert.deepEqual(labels(step), ["first draft, 2 accepted", "second draft from here, 1 accepted"]);
  assert.deepEqual(labels({ ...step, sampled: true })[0], "first draft, 2 accepted");
  assert.deepEqual(
    labels({ ...step, branches: [{ ...branches[0], prefix: 1 }] })[1],
    "second draft started earlier, 1 accepted",
  );
  assert.deepEqual(
    labels({ ...step, branches: [{ ...branches[0], resampled: true }] })[1],
    "another draft from here, 1 accepted",
  );
  const grown = {
    ...step,
    draft: null,
    levels: [1],
    nodes: new Map([...STEP.nodes].map(([id, n]) => [id, { ...n, candidates: [] }])),
  };
  assert.deepEqual(labels(grown), ["first draft, 2 accepted", "another guess, 1 accepted"]);
  // the node budget kept a re-draft from the anchor and pruned the whole first draft
  const left = stepOf([
    [-1, [2], 1, "root"],
    [0, [2], 0.9, "accepted"],
    [1, [2], 0.8],
  ]);
  assert.deepEqual(labels({ ...step, ...left, branches: [branches[0], { ...branches[1], prefix: 0 }] }), [
    "second draft from here, 1 accepted",
  ]);
  assert.deepEqual(labels({ ...step, ...stepOf([[-1, [0, 1, 2], 1, "root"]]) }), []);
});

test("chainLabel shortens a name that would cross a line", () => {
  const step = { ...STEP, draft: {}, branches: [{ prefix: 2, base: 0 }], sampled: false, columns: 9 };
  const from = 3 * 90 - 20;
  assert.equal(labels(step, 90, [from + 150])[1], "second draft, 1 accepted");
  assert.equal(labels(step, 90, [from + 60])[1], "1 accepted");
  assert.equal(labels(step, 90, [from + 20])[1], undefined);
});

test("numbered gives the likeliest places a number, without overlaps", () => {
  assert.deepEqual(numbered([100, 120, 60, 180, 216]), [true, false, true, true, true]);
  assert.deepEqual(numbered([100, 120, 140]), [true, false, true]); // the second has no number that the third could overlap
});

test("clearOf moves labels off the boundary line and stems", () => {
  const room = [0, 300];
  assert.equal(clearOf([100], 120, 50, room), 120); // already clear
  assert.equal(clearOf([100], 80, 50, room), 106);
  assert.equal(clearOf([100], 80, 50, room, true), 44);
  assert.equal(clearOf([310], 280, 50, room), 254); // no room to the right of the line
  assert.equal(clearOf([30], 10, 50, room, true), 36);
  assert.equal(clearOf([30], 10, 50, [0, 20]), null); // no room at all
  assert.equal(clearOf([30, 60, 200], 20, 50, room), 66); // several lines
});

test("the accepted path leaves the first draft upwards where branches are left out", () => {
  for (let most = 5; most <= STEP.nodes.size + 1; most += 1) {
    assert.ok(layoutOf(STEP, ({ lanes }) => lanes.size <= most).lanes.get(5) < 0);
  }
});

test("the nodes above have a lane of their own, and move no other", () => {
  const [own, other] = [[{ id: "you 1" }, { id: "you 2" }], layoutOf(STEP)];
  const { lanes, low, high } = layoutTree(chainsOf(STEP, false), null, undefined, own);
  assert.deepEqual([lanes.get("you 1"), lanes.get("you 2")], [other.low - 1, other.low - 1]);
  assert.deepEqual([low, high], [other.low - 1, other.high]);
  for (const [id, lane] of other.lanes) assert.equal(lanes.get(id), lane);
});

test("slim columns: important ones are as wide as their words, within the total width", () => {
  const { widths, slim } = new Columns(16, 360, true, [0, 3, 99, 5], (at) => (at === 3 ? 18 : at > 11 ? 0 : 40));
  assert.equal(slim, true);
  assert.deepEqual([widths[0], widths[3], widths[5]], [40, 20, 40]); // a comma takes the least width of a column with a word
  assert.ok(Math.min(...widths) >= 7 && widths[12] < 20 && widths.filter((width) => width >= 20).length > 5);
  assert.ok(Math.abs(widths.reduce((a, b) => a + b) - 360) < 16);
  const few = new Columns(5, 200, true, [0]);
  assert.ok(few.slim && Math.abs(few.widths.reduce((a, b) => a + b) - 200) < 1e-9);
  assert.equal(new Columns(16, 390, false, [0]).widths[15], 76);
});

test("columns fill the width evenly, but for words that need more", () => {
  const total = (widths) => Math.round(widths.reduce((a, b) => a + b));
  const even = new Columns(10, 800, false, [], () => 50).widths;
  assert.deepEqual(even.map(Math.round), Array(10).fill(80));
  const led = (need) => new Columns(10, 800, false, [], () => need, undefined, 128).widths.map(Math.round);
  assert.deepEqual([led(50)[0], led(75)[0], led(80)[0]], [128, 125, 115]); // as far as the others leave it
  const fitted = new Columns(10, 800, true, [], () => 78, undefined, 128).widths;
  assert.deepEqual([fitted[0], total(fitted)], [128, 800]);
  const long = new Columns(10, 800, false, [], (at) => (at === 4 ? 170 : 50)).widths;
  assert.deepEqual([total(long), Math.round(long[4]), Math.round(long[0])], [800, 170, 70]);
  const tight = new Columns(10, 800, false, [], (at) => (at < 2 ? 300 : 50)).widths; // too little room
  assert.deepEqual([total(tight), Math.round(tight[0]), Math.round(tight[5])], [800, 200, 50]);
  const wished = new Columns(
    10,
    800,
    false,
    [],
    () => 50,
    (at) => (at === 9 ? 200 : 50),
  ).widths;
  assert.equal(Math.round(wished[9]), 200); // room for the words of branches that may be opened
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

test("fitLabel omits the space before a word, shows lone spaces, and replaces bytes by a dot", () => {
  const drawn = (value, room = 999) => fitLabel(value, room, false, "").words;
  assert.deepEqual(
    [" shells", " ", "\n", "  x"].map((value) => drawn(value)),
    ["shells", "␣", "↵", "␣␣x"],
  );
  assert.deepEqual(
    ["", "\ufffd", " \ufffd", "âĢ", "ðŁĺ"].map((value) => drawn(value)),
    Array(5).fill("·"),
  );
  assert.deepEqual(
    ["à", "çı", "pół", "naïve"].map((value) => drawn(value)),
    ["à", "çı", "pół", "naïve"],
  );
  assert.equal(drawn(" approximately"), "approximately");
  assert.equal(drawn(" approximately", 60), "appro…");
});

test("fitLabel tries smaller type before it cuts a word, if allowed", () => {
  pen.measureText = (words) => ({ width: (Number.parseInt(pen.font.slice(4), 10) / 2) * [...words].length });
  const { words, size, width } = fitLabel("shells", 40, false, "x", true);
  assert.deepEqual([words, size, width], ["shells", 13, 39]);
  assert.deepEqual(fitLabel("shells", 40, false, "x").size, 16);
});

test("onLines keeps the colour of every piece across lines", () => {
  const pieces = [{ text: "4 from the draft", kind: "first" }, { text: " and more" }];
  assert.deepEqual(onLines(pieces, ["4 from ", "the draft and ", "more"]), [
    [{ text: "4 from ", kind: "first" }],
    [{ text: "the draft", kind: "first" }, { text: " and " }],
    [{ text: "more" }],
  ]);
});
