// The text of two runs: its pieces, and the steps at a place.
import assert from "node:assert/strict";
import { test } from "node:test";
import { firstDifference, piecesOf, readSide, stepAt, tellingPlace } from "../../app/race/texts.js";

const words = (text, proposer) => text.split("|").map((token) => [token, proposer]);
const ONE = readSide({
  lead: words("He", "target"),
  steps: [
    [0.01, words(" saw| a", "first"), "all", 2],
    [0.03, words(" red", "target"), "", -1],
    [0.05, words(" fox|.", "first"), "", -1],
  ],
});
const OTHER = readSide({
  lead: words("He", "target"),
  steps: [
    [0.04, words(" saw| a| red", "second"), "repaired", 1],
    [0.05, words(" fox|.", "first")],
  ],
});

test("readSide places steps in the text", () => {
  assert.equal(ONE.words, "He saw a red fox.");
  assert.deepEqual(
    ONE.steps.map(({ from, to, seconds }) => [from, to, seconds.toFixed(2)]),
    [
      [2, 8, "0.01"],
      [8, 12, "0.02"],
      [12, 17, "0.02"],
    ],
  );
  const log = readSide({ textless: true, steps: [[0.1, words("|", "first")]] });
  assert.equal(log.words, "▯▯");
});

test("pieces cut the text wherever a token of a side begins", () => {
  const pieces = piecesOf([ONE, OTHER], 0, 17);
  const cut = pieces.map(({ from, to, tokens }) => [ONE.words.slice(from, to), ...tokens.map(({ step }) => step)]);
  assert.deepEqual(cut, [
    ["He", -1, -1],
    [" saw", 0, 0],
    [" a", 0, 0],
    [" red", 1, 0],
    [" fox", 2, 1],
    [".", 2, 1],
  ]);
  assert.deepEqual(
    pieces.filter(({ tokens }) => tokens[1].starts).map(({ from }) => from),
    [0, 2, 12],
  );
  assert.deepEqual(piecesOf([ONE, OTHER], 0, 8), pieces.slice(0, 3)); // nothing where the shared text ends
  const rest = piecesOf([null, OTHER], 10, 17); // the rest after the first difference begins within a token
  assert.deepEqual(
    rest.map(({ from, tokens }) => [from, tokens[0], tokens[1].step]),
    [
      [10, null, 0],
      [12, null, 1],
      [16, null, 1],
    ],
  );
});

test("the frame is the longer step at a place, with the other side's steps that end within it", () => {
  const { side, step, others, from, to } = stepAt([ONE, OTHER], 9, null, 17);
  assert.deepEqual([side, step, others, from, to], [1, 0, [0, 1], 2, 12]);
  const last = { side: 1, step: 1, others: [2], from: 12, to: 17 }; // both have a step that begins there
  assert.deepEqual(stepAt([ONE, OTHER], 12, null, 17), last);
  const alone = { side: 0, step: 1, others: [], from: 8, to: 12 }; // only one text is there
  assert.deepEqual(stepAt([ONE, OTHER], 9, 0, 17), alone);
  assert.deepEqual(stepAt([ONE, OTHER], 9, null, 8).others, [0]); // beyond the difference, steps are not comparable
  assert.equal(stepAt([ONE, OTHER], 1, null, 17), null); // written by the pass over the prompt
  assert.equal(tellingPlace([ONE, OTHER]), 2);
  const run = (...steps) => readSide({ steps: steps.map((step) => [0, words(step, "first")]) });
  const slow = run("a", "b", "c", "d", ""); // its last step only ends the text
  assert.equal(tellingPlace([slow, run("a", "b|c", "d")]), 1);
  assert.equal(piecesOf([slow, null], 0, 4).length, 4); // an empty token has no piece
  const [piece] = piecesOf([readSide({ steps: [[0, words("|ab", "first")]] }), null], 0, 2);
  assert.ok(piece.tokens[0].starts); // but the step starts at its first text
  assert.equal(tellingPlace([run("a|b", "c|d"), run("a", "b", "c", "d")]), 0); // the first of several
});

test("firstDifference is the length of the common beginning", () => {
  const cases = [
    ["", "", null],
    ["ab", "abc", 2],
    ["", "a", 0],
    ["ax", "ay", 1],
  ];
  for (const [one, other, at] of cases) assert.equal(firstDifference(one, other), at);
});
