// What the pointer and a walk wait for, and what may come in between.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { WalkView } from "../../app/learn/stage.js";
import { oneWait } from "../../assets/viewer/dom.js";
import { TextView } from "../../assets/viewer/text.js";

const tick = (ms) => mock.timers.tick(ms);

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
});

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
  const element = () => ({
    append() {},
    replaceChildren() {},
    setAttribute() {},
    addEventListener() {},
    classList: { remove() {} },
  });
  globalThis.document = { createElement: element };
  globalThis.IntersectionObserver = class {
    observe() {}
  };
  const text = new TextView(
    { ...element(), addEventListener: (kind, act) => (heard[kind] = act) },
    {},
    { preview: (step) => previewed.push(step) },
  );
  const over = () => heard.pointerover({ target: { closest: () => ({ dataset: { step: "7" } }) } });
  over();
  tick(60);
  over();
  text.reset();
  tick(60);
  assert.deepEqual(previewed, [7]);
});

test("WalkView restarts at the anchor of a new step, ends with its stop, and moves by itself only where motion is wanted", () => {
  const classes = new Map();
  const classList = { toggle: (name, on) => classes.set(name, on), remove: (name) => classes.delete(name) };
  const element = () => ({ append() {}, setAttribute() {}, addEventListener() {}, classList });
  globalThis.document = { createElement: element, createTextNode: element };
  globalThis.matchMedia = () => ({ matches: false });
  const moved = [];
  const walk = new WalkView((at) => moved.push(at));
  const visits = Array.from({ length: 3 }, () => ({ text: "a", probability: null, child: null }));
  walk.load(visits);
  tick(900);
  tick(500);
  walk.load(visits);
  assert.deepEqual(moved.splice(0), [0, 1, 0]);
  tick(500);
  assert.deepEqual(moved, []); // nothing goes on of the walk before
  assert.equal(classes.get("walking"), true);
  walk.leave(); // taken out of the page already
  assert.equal(classes.has("walking"), false); // else the figures of the next stops would stay hidden
  tick(5000);
  assert.deepEqual(moved, [null]);
  globalThis.matchMedia = () => ({ matches: true });
  new WalkView((at) => moved.push(at)).load(visits);
  tick(60000);
  assert.deepEqual(moved, [null, 0]); // where motion is not wanted, a walk waits to be led
});
