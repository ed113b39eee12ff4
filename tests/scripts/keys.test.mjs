// Which keys are the view's, where the focus is outside it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { keyNames, ours } from "../../assets/viewer/help.js";

const body = { closest: () => null };
globalThis.document = { body };
const view = { contains: () => false };
const inside = (...selectors) => ({ closest: (wanted) => selectors.some((s) => wanted.includes(s)) || null });

test("after a click on a button elsewhere the keys still work", () => {
  assert.equal(ours(view, body), true);
  assert.equal(ours(view, inside("button")), true);
  assert.equal(ours({ contains: () => true }, inside()), true);
});

test("what has a use for the arrow keys keeps them", () => {
  assert.equal(ours(view, inside("button", "[role='tablist']")), false);
  assert.equal(ours(view, inside()), false);
});

test("Shift with a digit is a stage, also where the digit needs Shift", () => {
  const pressed = (key, code, shiftKey = false) => keyNames({ key, code, shiftKey });
  assert.deepEqual(pressed("#", "Digit3", true), ["Stage3", "#"]);
  assert.deepEqual(pressed("3", "Digit3", true), ["Stage3", "3"]);
  assert.deepEqual([pressed("3", "Digit3"), pressed("T", "KeyT", true), pressed("ArrowLeft", "ArrowLeft", true)], [["3"], ["t"], ["ShiftArrowLeft"]]);
});
