// Learn's exercise: what settings cost in time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { secondsOf, stepsOnGpu } from "../../app/static/learn/live.js";
import { PAPER_NODE } from "../../assets/viewer/cost.js";

const COSTS = { plain: 0.01, draft: 0.002, redraft: 0.003, rest: 0.001, node: 0.0005 };

test("the time of a text is its steps times their parts; without re-drafts there is none to pay", () => {
  const four = { k: 4, committed: [5, 5], nodes: 41 };
  const none = { k: 0, committed: [2, 3, 3, 2], nodes: 16 };
  assert.equal(secondsOf(four, COSTS).toFixed(6), (2 * (0.016 + 0.02)).toFixed(6));
  assert.equal(secondsOf(none, COSTS).toFixed(6), (4 * (0.013 + 0.0075)).toFixed(6));
  assert.equal(stepsOnGpu(four).toFixed(6), (2 * (1 + 40 * PAPER_NODE)).toFixed(6));
});
