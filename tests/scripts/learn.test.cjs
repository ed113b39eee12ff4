// Learn's exercise: what settings cost in time.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load } = require("./load.cjs");

const { secondsOf, stepsOnGpu, PAPER_NODE } = load(["viewer/dom", "viewer/words", "viewer/cost", "learn/live"], ["secondsOf", "stepsOnGpu", "PAPER_NODE"]);
const COSTS = { plain: 0.01, draft: 0.002, redraft: 0.003, rest: 0.001, node: 0.0005 };

test("the time of a text is its steps times their parts; without re-drafts there is none to pay", () => {
  const four = { k: 4, committed: [5, 5], nodes: 41 };
  const none = { k: 0, committed: [2, 3, 3, 2], nodes: 16 };
  assert.equal(secondsOf(four, COSTS).toFixed(6), (2 * (0.016 + 0.02)).toFixed(6));
  assert.equal(secondsOf(none, COSTS).toFixed(6), (4 * (0.013 + 0.0075)).toFixed(6));
  assert.equal(stepsOnGpu(four).toFixed(6), (2 * (1 + 40 * PAPER_NODE)).toFixed(6));
});
