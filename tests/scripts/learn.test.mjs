// Learn: what settings cost in time, and what a pass costs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { costOf, passCost, passWords } from "../../app/learn/live.js";
import { MACHINES } from "../../assets/viewer/constants.js";

const HERE = { first_draft: [[8, 0.2]], second_draft: [[8, 0.2], [32, 0.5]], verify: [[1, 0.9], [41, 2.9]], other: 0.1, drafts: {} };

test("the price of a text is that of its steps; without re-drafts there is none to pay", () => {
  const four = { k: 4, works: [{ first: 8, again: [32], nodes: 41 }, { first: 8, again: [32], nodes: 21 }] };
  const none = { k: 0, works: Array(4).fill({ first: 8, again: [], nodes: 1 }) };
  assert.equal(costOf(four, HERE, "d2sd").toFixed(6), (2 * (0.2 + 0.5 + 0.1) + 2.9 + 1.9).toFixed(6));
  assert.equal(costOf(none, HERE, "d2sd").toFixed(6), (4 * 1.2).toFixed(6));
});

test("a pass over 24 tokens costs as much as one where it waits for the weights, and more where it computes", () => {
  const [card, laptop] = ["h100", "laptop-cpu"].map((name) => MACHINES.find(({ id }) => id === name));
  assert.equal(passCost(card, 24), 1);
  assert.ok(passCost(laptop, 24) > 3);
  assert.equal(passWords(card, 1, 24), "With an 8B model on H100 SXM a pass over 24 tokens costs no more than one.");
});
