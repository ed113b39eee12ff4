// What waits a moment, and what may come in between: another tab, another run, Back, the end of the page.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { WalkView } from "../../app/learn/stage.js";
import { Address } from "../../app/runs/address.js";
import { oneWait } from "../../assets/viewer/dom.js";
import { Selection } from "../../assets/viewer/selection.js";
import { TextView } from "../../assets/viewer/text.js";

const TABS = ["explore", "race", "learn"];
const tick = (ms) => mock.timers.tick(ms);

/** A page of which only tabs and the selection in Explore are there, and its history: [[address, state], …]. */
class Page extends EventTarget {
  constructor() {
    super();
    this.tab = "explore";
    this.runs = ["a", "b"].map((key) => ({ key, run: `run ${key}`, query: "" }));
    this.shown = "a";
    this.view = { dataset: { run: "run a", pinned: "", node: "" }, dispatchEvent: ({ detail }) => this.pin(detail.step) };
    Object.defineProperty(this.view, "offsetParent", { get: () => (this.tab === "explore" ? this : null) });
    this.buttons = TABS.map((id) => ({ dataset: { tabId: id }, getAttribute: () => String(this.tab === id), click: () => this.open(id) }));
    this.window = new EventTarget();
    this.entries = [["/", null]];
    this.at = 0;
    this.asked = [];
    Object.assign(globalThis, { document: this, window: this.window, location: { pathname: "/", href: "/" } });
    globalThis.MutationObserver = class {
      constructor(act) {
        globalThis.document.tabChanged = act;
      }
      observe() {}
    };
    globalThis.history = {
      replaceState: (state, _, address) => (this.entries[this.at] = [address, state]),
      pushState: (state, _, address) => (this.entries = [...this.entries.slice(0, ++this.at), [address, state]]),
    };
    this.address = new Address(
      () => this,
      (key) => this.asked.push(key),
    );
    this.address.soon();
    tick(1000);
  }

  querySelector(wanted) {
    if (wanted.startsWith("#explorer")) return this.view;
    return wanted.includes("aria-selected") ? this.buttons.find(({ dataset }) => dataset.tabId === this.tab) : null;
  }

  querySelectorAll() {
    return this.buttons;
  }

  open(tab) {
    this.tab = tab;
    this.tabChanged();
  }

  pin(step) {
    this.view.dataset.pinned = String(step);
    this.dispatchEvent(new Event("explorer:selected"));
  }

  run(key) {
    this.shown = key;
    this.view.dataset.run = `run ${key}`;
    this.view.dataset.pinned = "";
    this.address.soon();
  }

  travel(by) {
    this.at += by;
    this.window.dispatchEvent(Object.assign(new Event("popstate"), { state: this.entries[this.at][1] }));
  }

  get places() {
    return this.entries.map(([, { tab, run, step }]) => [tab, run, step].join(" ").trim());
  }
}

let page;
beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  page = new Page();
});

test("a step that is pinned just before the tab changes is what Back comes to", () => {
  page.pin(1);
  tick(1000);
  page.pin(4);
  tick(100);
  page.open("race");
  assert.equal(page.entries.length, 1); // not written yet
  tick(1000);
  assert.deepEqual(page.places, ["explore a 5", "race a 5"]);
  assert.equal(page.entries[0][0], "/?tab=explore&run=a&step=5");
  page.pin(2);
  page.travel(-1);
  assert.equal(page.view.dataset.pinned, "4");
  tick(1000);
  assert.deepEqual([page.tab, ...page.places], ["explore", "explore a 5", "race a 5"]);
});

test("so it is when another run is shown", () => {
  page.pin(4);
  tick(100);
  page.run("b");
  tick(1000);
  assert.deepEqual(page.places, ["explore a 5", "explore b"]);
});

test("an address that was opened stays as it is while nothing is pinned", () => {
  page.open("race");
  tick(1000);
  assert.deepEqual(page.entries.map(([address]) => address), ["/", "/?tab=race&run=a"]);
});

test("moving through steps leaves one entry, and leaving the page writes what is due", () => {
  for (let step = 1; step < 9; step += 1) {
    page.pin(step);
    tick(100);
  }
  assert.deepEqual(page.places, ["explore a"]);
  page.window.dispatchEvent(new Event("pagehide"));
  assert.deepEqual(page.places, ["explore a 9"]);
});

test("a run that plays on in a hidden tab does not keep the tab out of the address", () => {
  page.open("race");
  for (let step = 1; step < 9; step += 1) {
    tick(100);
    page.pin(step);
  }
  assert.equal(page.places[1].slice(0, 6), "race a");
});

test("Back waits for its run, but not where another tab or run is opened meanwhile", () => {
  const elsewhere = [
    [() => page.open("learn"), "learn"],
    [() => page.run("c"), "explore c"],
  ];
  for (const [go, there] of elsewhere) {
    page = new Page();
    page.runs.push({ key: "c", run: "run c", query: "" });
    page.run("b");
    tick(1000);
    page.pin(2); // of the entry that is left, not of the one that Back comes to
    page.travel(-1);
    tick(1000);
    assert.deepEqual([page.asked, page.places], [["a"], ["explore a", "explore b"]]);
    go();
    tick(300);
    assert.deepEqual(page.places, ["explore a", there]);
  }
});

test("of two waits the later one counts, and one that finds nothing says so", () => {
  let [there, done] = [false, []];
  const wait = oneWait(50);
  const ask = (name) => wait(() => there && name, (found) => done.push(found), () => done.push("late"));
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

test("playing ends where another step is asked for", () => {
  const store = { length: 9, summaries: Array.from({ length: 9 }, (_, at) => ({ elapsed: at })) };
  const selection = new Selection(store, () => {});
  selection.pin(1);
  selection.toggle();
  tick(1400);
  assert.deepEqual([selection.pinned, selection.playing], [2, true]);
  selection.pin(6);
  tick(9000);
  assert.deepEqual([selection.pinned, selection.playing], [6, false]);
});

test("the pointer's rest on a text ends with the text", () => {
  const previewed = [];
  const heard = {};
  const element = () => ({ append() {}, replaceChildren() {}, setAttribute() {}, addEventListener() {}, classList: { remove() {} } });
  globalThis.document = { createElement: element };
  globalThis.IntersectionObserver = class {
    observe() {}
  };
  const text = new TextView({ ...element(), addEventListener: (kind, act) => (heard[kind] = act) }, {}, { preview: (step) => previewed.push(step) });
  const over = () => heard.pointerover({ target: { closest: () => ({ dataset: { step: "7" } }) } });
  over();
  tick(60);
  over();
  text.reset();
  tick(60);
  assert.deepEqual(previewed, [7]);
});

test("a walk through another step begins at its anchor, and ends with its stop", () => {
  const element = () => ({ append() {}, setAttribute() {}, addEventListener() {} });
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
  walk.leave();
  tick(5000);
  assert.deepEqual(moved, [null]);
});
