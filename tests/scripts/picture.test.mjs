// The title of an exported picture.
import assert from "node:assert/strict";
import { test } from "node:test";
import { wrapped } from "../../assets/viewer/picture.js";

const pen = { measureText: (words) => ({ width: 10 * [...words].length }) };
globalThis.document = { createElement: () => ({ setAttribute: () => {}, getContext: () => pen }) };

test("a title is broken between words where it is wider than its picture", () => {
  assert.deepEqual(wrapped("one two three", 130, ""), ["one two three"]);
  assert.deepEqual(wrapped("one two three", 70, ""), ["one two ", "three"]);
  assert.deepEqual(wrapped("one two three", 69, ""), ["one ", "two ", "three"]);
});

test("a word that fits in no line is cut between characters, and nothing of it is lost", () => {
  assert.deepEqual(wrapped("a 😀😀😀😀😀", 30, ""), ["a 😀", "😀😀😀", "😀"]);
  assert.deepEqual(wrapped("ab", 1, ""), ["a", "b"]);
});
