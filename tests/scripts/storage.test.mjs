// What a browser remembers, if it does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { remember, remembered } from "../../assets/viewer/dom.js";

const store = (storage) => Object.defineProperty(globalThis, "localStorage", { configurable: true, get: storage });

test("a browser that refuses its storage remembers nothing, and nothing fails", () => {
  store(() => {
    throw new Error("SecurityError");
  });
  assert.deepEqual([remember("a", "b"), remembered("a")], [false, null]);
});

test("what was remembered is there again", () => {
  const kept = new Map();
  store(() => ({ getItem: (name) => kept.get(name) ?? null, setItem: (name, words) => kept.set(name, words) }));
  assert.deepEqual([remembered("a"), remember("a", "b"), remembered("a")], [null, true, "b"]);
});
