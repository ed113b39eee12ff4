// Delayed actions, and events that cancel them.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { oneWait } from "../../assets/viewer/dom.js";
import { textView } from "../../assets/viewer/text.js";

const tick = (ms) => mock.timers.tick(ms);

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
});

function element() {
  const classes = new Set();
  const toggle = (name, on) => (on ? classes.add(name) : classes.delete(name));
  return {
    append() {},
    replaceChildren() {},
    setAttribute() {},
    addEventListener() {},
    dataset: {},
    classList: { remove: (name) => classes.delete(name), toggle, contains: (name) => classes.has(name) },
  };
}
globalThis.document = { createElementNS: element };
globalThis.IntersectionObserver = class {
  observe() {}
};

test("oneWait keeps only the latest wait and reports a timeout", () => {
  let [there, done] = [false, []];
  const wait = oneWait(50);
  const ask = (name) =>
    wait(
      () => there && name,
      (found) => done.push(found),
      () => done.push("late"),
    );
  ask("first");
  ask("second");
  there = true;
  tick(100);
  assert.deepEqual(done, ["second"]);
  there = false;
  const now = mock.method(performance, "now", () => 0);
  ask("third");
  now.mock.mockImplementation(() => 60);
  tick(40);
  assert.deepEqual(done, ["second", "late"]);
  now.mock.restore();
});

test("a delayed preview is cancelled when the text is reset", () => {
  const previewed = [];
  const heard = {};
  const text = textView(
    { ...element(), addEventListener: (kind, act) => (heard[kind] = act) },
    {},
    { preview: (step) => previewed.push(step), following: false },
  );
  const over = () => heard.pointermove({ target: { closest: () => ({ dataset: { step: "7" } }) } });
  over();
  tick(60);
  over();
  text.reset();
  tick(60);
  assert.deepEqual(previewed, [7]);
});

test("steps that arrive after others were hidden are hidden too", () => {
  const committed = Array.from({ length: 6 }, (_, at) => [{ text: ` ${at}`, proposer: "first" }]);
  const store = { prompt: "", header: { config: {} }, opening: [], committed, length: 4 };
  const text = textView(element(), store, {});
  const shown = () => text.tokens.flatMap(([token], at) => (token.classList.contains("unasked") ? [] : at));
  text.show({ at: null, hidden: 2 });
  store.length = 6;
  text.show({ at: null, hidden: 2 });
  assert.deepEqual(shown(), [0, 1]);
  text.reset();
  text.show({ at: null, hidden: null });
  assert.deepEqual(shown(), [0, 1, 2, 3, 4, 5]);
});
