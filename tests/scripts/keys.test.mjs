// Keys that the view handles, depending on the focus.
import assert from "node:assert/strict";
import { test } from "node:test";
import { keyNames, handlesKeysOf } from "../../assets/viewer/help.js";

const body = { closest: () => null };
globalThis.document = { body };
const view = { contains: () => false };
const inside = (...selectors) => ({ closest: (wanted) => selectors.some((s) => wanted.includes(s)) || null });

test("keys reach the view while a button outside it has the focus", () => {
  assert.equal(handlesKeysOf(view, body), true);
  assert.equal(handlesKeysOf(view, inside("button")), true);
  assert.equal(handlesKeysOf({ contains: () => true }, inside()), true);
});

test("elements that use arrow keys keep them", () => {
  assert.equal(handlesKeysOf(view, inside("button", "[role='tablist']")), false);
  assert.equal(handlesKeysOf(view, inside()), false);
});

test("Shift with a digit selects a stage on any keyboard layout", () => {
  const pressed = (key, code, shiftKey = false) => keyNames({ key, code, shiftKey });
  assert.deepEqual(pressed("#", "Digit3", true), ["Stage3", "#"]);
  assert.deepEqual(pressed("3", "Digit3", true), ["Stage3", "3"]);
  assert.deepEqual(
    [pressed("3", "Digit3"), pressed("T", "KeyT", true), pressed("ArrowLeft", "ArrowLeft", true)],
    [["3"], ["t"], ["ShiftArrowLeft"]],
  );
});
