// Values kept in the browser's storage.
import assert from "node:assert/strict";
import { test } from "node:test";
import { remember, remembered } from "../../assets/viewer/dom.js";

const store = (storage) => Object.defineProperty(globalThis, "localStorage", { configurable: true, get: storage });

test("remember and remembered do not throw if the browser refuses its storage", () => {
  store(() => {
    throw new Error("SecurityError");
  });
  assert.deepEqual([remember("a", "b"), remembered("a")], [false, null]);
});

test("remembered returns the stored value", () => {
  const kept = new Map();
  store(() => ({ getItem: (name) => kept.get(name) ?? null, setItem: (name, words) => kept.set(name, words) }));
  assert.deepEqual([remembered("a"), remember("a", "b"), remembered("a")], [null, true, "b"]);
});
