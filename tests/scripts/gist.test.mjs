// The run in a sentence, and what a point of the break-even map says.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pointWords } from "../../assets/viewer/machine.js";
import { gist } from "../../assets/viewer/numbers.js";

const words = (given) => gist(given).map(({ text }) => text).join("");
const MACHINE = { name: "a card" };

test("the sentence names α, its price and where it would pay; without a price it does not guess one", () => {
  const run = { method: "d2sd", step: 7, tokens: 39, steps: 10, machine: MACHINE, there: 1.416, missing: "" };
  assert.equal(words({ ...run, cycle: { cost: 5.4, gain: 0.722 } }), "7 tokens in this step. The run: α = 3.90 for the price of 5.4 plain steps: 0.72× as fast. It breaks even at 5.4 here, at 1.42 on a card.");
  assert.equal(words({ ...run, step: null, cycle: null, missing: " so far" }), "The run: α = 3.90 tokens a step so far; it breaks even at 1.42 on a card.");
  assert.equal(words({ ...run, step: 1, cycle: null, there: null }), "1 token in this step. The run: α = 3.90 tokens a step.");
  assert.match(words({ ...run, method: "autoregressive", cycle: null }), /plain decoding/);
  assert.equal(words({ ...run, steps: 0, cycle: null }), "");
});

test("a point of the map says its speed and the α that would break even", () => {
  assert.equal(pointWords("D²SD", 3.9, 1.3), "D²SD: 3.90 tokens for the price of 1.30, 3.00× as fast as plain decoding; at this price 1.30 tokens would break even");
  assert.match(pointWords("x", 2, 2), /as fast as plain decoding/);
});
