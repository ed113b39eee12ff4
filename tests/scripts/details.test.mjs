// What is said of a token in a list of top choices, and columns for words.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Columns } from "../../assets/viewer/tree_layout.js";
import { markOf } from "../../assets/viewer/details.js";

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

test("columns that matter are as wide as their words, as far as there is room", () => {
  const { widths, slim } = new Columns(16, 360, true, [0, 3, 99, 5], (at) => (at === 3 ? 18 : 40));
  assert.equal(slim, true);
  assert.deepEqual([widths[0], widths[3], widths[5]], [40, 24, 40]); // a comma takes no more than a column needs at least
  assert.ok(Math.min(...widths) >= 8 && widths.filter((width) => width >= 24).length > 5);
  assert.ok(Math.abs(widths.reduce((a, b) => a + b) - 360) < 16);
  const few = new Columns(5, 240, true, [0]);
  assert.ok(few.slim && Math.abs(few.widths.reduce((a, b) => a + b) - 240) < 1e-9);
  assert.equal(new Columns(16, 390, false, [0]).widths[15], 62);
});
