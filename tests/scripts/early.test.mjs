// early.js, which runs before Gradio builds the page.
import assert from "node:assert/strict";
import { test } from "node:test";

const [frames, later, places, marks] = [[], [], [], []];
const location = new URL("http://page.example/?step=2#step=4&theme=dark");
location.replace = (address) => places.push(address);
Object.assign(globalThis, {
  location,
  history: { state: null, replaceState: (_, __, address) => places.push(address) },
  window: { requestAnimationFrame: (work) => frames.push(work) },
  addEventListener() {},
  document: { documentElement: { classList: { toggle: (...mark) => marks.push(mark) } } },
  localStorage: { getItem: (name) => (name === "d2sd-theme" ? "dark" : "yes") },
  setTimeout: (work, wait) => later.push([work, wait]),
});
await import("../../app/static/early.js");

test("fields after # move into the query, and the chosen theme is passed to Gradio", () => {
  assert.deepEqual(places, ["http://page.example/?step=4&__theme=dark", "/?step=2&__theme=dark#step=4&theme=dark"]);
});

test("a page whose tour was taken is marked", () => {
  assert.deepEqual(marks, [["toured", true]]);
});

test("Gradio's clocks tick five times a second and return no frame id; other frames are not changed", () => {
  const clock = new Function("return (()=>{F(Pe,(performance.now()-w(de))/1e3),W&&ze()})")();
  const other = () => performance.now();
  const next = globalThis.window.requestAnimationFrame;
  assert.deepEqual([next(clock), next(other)], [0, 1]);
  assert.deepEqual([frames, later], [[other], [[clock, 200]]]);
});
