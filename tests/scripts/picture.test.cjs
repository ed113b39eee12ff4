// The title of an exported picture.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load } = require("./load.cjs");

const pen = { measureText: (words) => ({ width: 10 * [...words].length }) };
const { wrapped } = load(["viewer/dom", "viewer/tree_shapes", "viewer/picture"], ["wrapped"], {
  document: { createElement: () => ({ setAttribute: () => {}, getContext: () => pen }) },
});

test("a title is broken between words where it is wider than its picture", () => {
  assert.deepEqual(wrapped("one two three", 130, ""), ["one two three"]);
  assert.deepEqual(wrapped("one two three", 70, ""), ["one two ", "three"]);
  assert.deepEqual(wrapped("one two three", 69, ""), ["one ", "two ", "three"]);
});

test("a word that fits in no line is cut between characters, and nothing of it is lost", () => {
  assert.deepEqual(wrapped("a 😀😀😀😀😀", 30, ""), ["a 😀", "😀😀😀", "😀"]);
  assert.deepEqual(wrapped("ab", 1, ""), ["a", "b"]);
});
