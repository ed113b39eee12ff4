// What is said of a token in a list of top choices, and of columns too narrow for a word.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load } = require("./load.cjs");

const { markOf } = load(["viewer/dom", "viewer/words", "viewer/details"], ["markOf"]);
const { Columns } = load(["viewer/columns"], ["Columns"]);

const token = (own, wanted) => ({ own, wanted });
const marks = (ofTarget, sampled) => [[true, true], [true, false], [false, true], [false, false]].map(([own, wanted]) => markOf(token(own, wanted), ofTarget, sampled));

test("a drafter's list says which token was drafted and which the target chose", () => {
  assert.deepEqual(marks(false, false), ["target’s too", "drafted", "target’s", ""]);
  assert.deepEqual(marks(false, true), ["drawn too", "drafted", "drawn", ""]);
});

test("the target's own list says which token was drafted, and which drawn where chance decides", () => {
  assert.deepEqual(marks(true, false), ["drafted", "drafted", "", ""]);
  assert.deepEqual(marks(true, true), ["drafted, drawn", "drafted", "drawn", ""]);
});

test("columns are wordless where one of them is too narrow for a word", () => {
  assert.equal(new Columns(5, 240, true, [0]).wordless, false);
  assert.equal(new Columns(16, 390, true, [0]).wordless, true);
  assert.equal(new Columns(16, 390, false, [0]).wordless, false);
});
