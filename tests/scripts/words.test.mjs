// The format of tokens and numbers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { number, whole } from "../../assets/viewer/dom.js";
import { GLOSSARY, wordsIn } from "../../assets/viewer/glossary.js";
import { count, fixed, joined, milliseconds, probability, quoted, visible } from "../../assets/viewer/words.js";

test("visible shows whitespace and hidden characters", () => {
  assert.equal(visible(" a\n\t"), "␣a↵⇥");
  assert.equal(visible("a\u202eb\u200bc"), "a◌b◌c");
  assert.equal(visible("a\ufeffb\ufffec\uffffd\ufffd"), "a◌b◌c◌d\ufffd");
  assert.equal(visible(""), "∅");
});

test("visible cuts long tokens between characters and replaces lone surrogates", () => {
  assert.equal(visible("😀".repeat(5), 4), "😀😀😀…");
  assert.equal(visible("abcd", 4), "abcd");
  assert.equal(visible("a\ud83d"), "a\ufffd");
});

test("quoted shows the spaces at the ends of a token", () => assert.equal(quoted(" a b"), "“␣a b”"));

test("probability marks values that are too small or unknown", () => {
  assert.deepEqual(
    [0, 0.004, 0.5, 0.999, 1, null].map((p) => probability(p)),
    [".00", "<.01", ".50", "1.00", "1.00", "—"],
  );
  assert.equal(probability(0.0123, 3), ".012");
});

test("milliseconds have three significant digits", () => {
  assert.deepEqual([0.1234, 0.01234, 0.001234].map(milliseconds), ["123 ms", "12.3 ms", "1.23 ms"]);
});

test("lists and counts read as words", () => {
  assert.deepEqual([[], ["a"], ["a", "b", "c"]].map(joined), ["", "a", "a, b and c"]);
  assert.deepEqual(
    [0, 1, 2].map((n) => count(n, "step")),
    ["0 steps", "1 step", "2 steps"],
  );
});

test("number and whole replace non-finite values and clamp others", () => {
  assert.deepEqual(
    ["x", "", null, Infinity, NaN, {}].map((v) => number(v, 0, 9, 5)),
    Array(6).fill(5),
  );
  assert.deepEqual(
    [-1, 3.6, "7", 10].map((v) => whole(v, 0, 9, null)),
    [0, 4, 7, 9],
  );
});

test("fixed rounds half to even, like Python", () => {
  assert.deepEqual(
    [0.625, 0.375, 0.125, 4.6, 1.005, 2.5].map((v) => fixed(v, 2)),
    ["0.62", "0.38", "0.12", "4.60", "1.00", "2.50"],
  );
  assert.deepEqual(
    [0.5, 1.5, 62.5].map((v) => fixed(v, 0)),
    ["0", "2", "62"],
  );
});

test("wordsIn explains a glossary word once, and only as a whole word", () => {
  const seen = new Set();
  assert.deepEqual(wordsIn("The anchor, then γ − 1 tokens from the anchor.", seen), [
    "The ",
    ["anchor"],
    ", then ",
    ["γ"],
    " − 1 tokens from the ",
    "anchor",
    ".",
  ]);
  assert.deepEqual(wordsIn("γ again, γ₂, OK and anchors; r(i).", seen), [
    "",
    "γ",
    " again, γ₂, OK and anchors; ",
    ["r(i)"],
    ".",
  ]);
  for (const word of ["anchor", "bonus", "α", "γ", "K", "r(i)"]) assert.ok(GLOSSARY[word]);
});
