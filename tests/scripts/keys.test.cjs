// Which keys are the view's, where the focus is outside it.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load } = require("./load.cjs");

const body = { closest: () => null };
const { ours } = load(["viewer/keyboard"], ["ours"], { document: { body, addEventListener: () => {} }, Element: class {} });
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
