// Addresses: their fields, the history of the page, and traces from links.
import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { fetchTrace, keepAddress, traceAddress } from "../../app/runs/address.js";
import { queryOfHash, readAddress, withFields } from "../../assets/viewer/address.js";
import { localWords, otherText } from "../../assets/viewer/share.js";
import { missing } from "../../assets/viewer/standalone.js";

const missed = (address) => missing(address, [2, 5], 12);

test("a run or step that is missing in the file is named in a sentence", () => {
  assert.deepEqual(["", "run=5&step=12&chapter=5", "step=1"].map(missed), ["", "", ""]);
  assert.equal(missed("run=3&step=1"), "There is no run 3 in this file; run 2 is shown.");
  for (const step of ["13", "0", "-1", "1.5", "x"])
    assert.equal(missed(`step=${step}`), `There is no step ${step}: this run has 12 steps.`);
});

const fetched = [];
let answer = null;
globalThis.fetch = async (address, options) => {
  fetched.push([address.href, options]);
  if (!answer) throw new Error("network");
  return answer;
};
const HERE = "https://page.example:8443/app/?trace=x";
const of = (wanted, hosts = ["traces.example.org"]) => traceAddress(wanted, HERE, hosts);

test("trace addresses may name this host and listed hosts only, over http", () => {
  assert.equal(of("/runs/a.jsonl").address.href, "https://page.example:8443/runs/a.jsonl");
  assert.equal(of("https://traces.example.org/a.jsonl?x=1").address.host, "traces.example.org");
  for (const wanted of [
    "https://other.example/a",
    "//other.example/a",
    "https://page.example/a",
    "https://traces.example.org:81/a",
    "https://traces.example.org.evil.example/a",
    "https://evil.example\\@traces.example.org/a",
  ]) {
    assert.match(of(wanted).problem, /list/, wanted);
  }
  for (const wanted of [
    "javascript:alert(1)",
    "data:,x",
    "blob:https://page.example:8443/x",
    "file:///etc/passwd",
    "ftp://traces.example.org/a",
    "https://me:secret@traces.example.org/a",
  ]) {
    assert.match(of(wanted).problem, /http/, wanted);
  }
  assert.match(of("http://[").problem, /not contain a valid address/);
});

const stream = (...parts) => ({
  ok: true,
  status: 200,
  body: {
    getReader: () => ({
      read: async () => (parts.length ? { done: false, value: parts.shift() } : { done: true }),
      cancel: () => {},
    }),
  },
});

test("fetchTrace refuses redirects, files that are too large, and missing files", async () => {
  answer = stream(new Uint8Array([0x1f, 0x8b, 1]), new Uint8Array([2]));
  const file = await fetchTrace(new URL("https://traces.example.org/x/ru%0An<1>.jsonl.gz"), 96);
  assert.deepEqual([file.name, file.size], ["ru0An3C13E.jsonl.gz", 4]);
  assert.equal(fetched[0][1].redirect, "error");
  answer = stream({ length: 97e6 });
  await assert.rejects(fetchTrace(new URL(HERE), 96), /larger than 96 MB/);
  answer = { ok: false, status: 404 };
  await assert.rejects(fetchTrace(new URL(HERE), 96), /answers 404/);
  answer = null;
  await assert.rejects(fetchTrace(new URL(HERE), 96), /does not answer/);
});

test("a finished run whose text differs from that of the link gets a warning", () => {
  const run = {
    opening: [{ text: "h" }],
    committed: [[{ text: "el" }, { text: "" }], [{ text: "lo" }]],
    finished: { stop_reason: "end_token" },
    header: { config: { temperature: 0 } },
  };
  const drawn = { ...run, header: { config: { temperature: 0.5 } } };
  assert.equal(otherText(run, "4f9f2cab"), "");
  assert.equal(otherText({ ...run, opening: [], committed: [[{ text: "é🙂" }]] }, "279e480f"), "");
  assert.match(otherText(run, "00000000"), /near ties/);
  assert.match(otherText(drawn, "00000000"), /at temperature 0\.5 tokens are sampled/);
  for (const mark of ["", "x".repeat(8), "4f9f2ca", "00000000G"]) assert.equal(otherText(run, mark), "", mark);
  assert.equal(otherText({ ...run, finished: { stop_reason: "stopped" } }, "00000000"), "");
  assert.equal(otherText({ ...run, finished: null }, "00000000"), "");
});

const TABS = ["explore", "race", "learn"];
const tick = (ms) => mock.timers.tick(ms);

/** A stand-in for the page with tabs, the selection in Explore, and the history as [[address, state], …]. */
class Page extends EventTarget {
  constructor() {
    super();
    this.tab = "explore";
    this.runs = ["a", "b"].map((key) => ({ key, run: `run ${key}`, query: "" }));
    this.shown = "a";
    this.view = {
      dataset: { run: "run a", pinned: "", node: "" },
      dispatchEvent: ({ detail }) => this.pin(detail.step),
    };
    Object.defineProperty(this.view, "offsetParent", { get: () => (this.tab === "explore" ? this : null) });
    this.buttons = TABS.map((id) => ({
      dataset: { tabId: id },
      getAttribute: () => String(this.tab === id),
      click: () => this.open(id),
    }));
    this.window = new EventTarget();
    this.entries = [["/", null]];
    this.at = 0;
    this.asked = [];
    this.travels = 0;
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
    this.keep = keepAddress(
      () => this,
      ({ key }) => this.asked.push(key),
    );
    this.keep();
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
    this.keep();
  }

  /** The answer to all requests so far. */
  answer(key) {
    this.travels = this.asked.length;
    this.run(key);
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

test("Back returns to the step that was pinned just before the tab changed", () => {
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

test("Back returns to the step that was pinned just before another run was shown", () => {
  page.pin(4);
  tick(100);
  page.run("b");
  tick(1000);
  assert.deepEqual(page.places, ["explore a 5", "explore b"]);
});

test("the opened address stays unchanged while no step is pinned", () => {
  page.open("race");
  tick(1000);
  assert.deepEqual(
    page.entries.map(([address]) => address),
    ["/", "/?tab=race&run=a"],
  );
});

test("the first pinned step is written immediately, later ones share its entry and are written on pagehide", () => {
  for (let step = 1; step < 9; step += 1) {
    page.pin(step);
    tick(100);
  }
  assert.deepEqual(page.places, ["explore a 2"]);
  page.window.dispatchEvent(new Event("pagehide"));
  assert.deepEqual(page.places, ["explore a 9"]);
});

test("a run that plays in a hidden tab does not delay the address of the open tab", () => {
  page.open("race");
  for (let step = 1; step < 9; step += 1) {
    tick(100);
    page.pin(step);
  }
  assert.equal(page.places[1].slice(0, 6), "race a");
});

test("the address waits for the answer to Back, whatever is opened meanwhile", () => {
  const moves = [
    [() => page.answer("a"), ["explore a", "explore b 2"]],
    [() => page.open("learn") || page.answer("a"), ["explore a", "learn"]],
    [() => page.answer("c"), ["explore a", "explore c"]],
  ];
  for (const [go, there] of moves) {
    page = new Page();
    page.runs.push({ key: "c", run: "run c", query: "" });
    page.run("b");
    tick(1000);
    page.pin(1);
    page.pin(2); // belongs to the entry that Back leaves
    page.travel(-1);
    tick(60_000); // however late its run arrives
    assert.deepEqual([page.asked, page.places], [["a"], ["explore a", "explore b 2"]]);
    go();
    tick(300);
    assert.deepEqual(page.places, there);
  }
});

test("Back to a removed run keeps the shown run and the entries", () => {
  page.run("b");
  tick(1000);
  page.open("race");
  tick(1000);
  page.runs.shift();
  page.travel(-2);
  tick(1000);
  assert.deepEqual([page.tab, page.shown, ...page.places], ["explore", "b", "explore b", "explore b", "race b"]);
  page.travel(2);
  tick(1000);
  assert.deepEqual([page.tab, page.asked], ["race", []]);
});

test("Forward before the run of Back arrives requests its own run and adds no entry", () => {
  page.run("b");
  tick(1000);
  page.travel(-1);
  tick(1000);
  page.travel(1);
  assert.deepEqual(page.asked, ["a", "b"]);
  tick(1000);
  page.run("a"); // the answer to Back, which came before Forward reached the server
  page.travels = 1;
  tick(1000);
  page.answer("b");
  tick(1000);
  assert.deepEqual([page.places, page.at], [["explore a", "explore b"], 1]);
  page.run("a"); // opened by the user
  tick(1000);
  assert.deepEqual(page.places, ["explore a", "explore b", "explore a"]);
});

test("readAddress reads valid fields and ignores invalid ones", () => {
  assert.deepEqual(
    readAddress(
      "run=2&step=10&node=bonus&stage=doubt&present=1&chapter=4&quiz=1&beat=1.5&embed=1&theme=dark&trace=/a.jsonl",
    ),
    {
      run: 2,
      step: 10,
      node: "bonus",
      stage: "doubt",
      present: true,
      chapter: 4,
      game: "quiz",
      beat: 1.5,
      play: false,
      embed: true,
      theme: "dark",
      trace: "/a.jsonl",
    },
  );
  const nothing = {
    run: null,
    step: null,
    node: null,
    stage: "",
    present: false,
    chapter: null,
    game: "",
    beat: null,
    play: false,
    embed: false,
    theme: "",
    trace: "",
  };
  assert.deepEqual(readAddress(""), nothing);
  assert.deepEqual(readAddress("?run=0&step=-1&node=%3Cb%3E&chapter=1e1&quiz=2&beat=x&embed=yes"), nothing);
});

test("links of older versions to a stop lead to the chapter that replaced it", () => {
  const chapters = Array.from({ length: 12 }, (_, stop) => readAddress(`stop=${stop}`).chapter);
  assert.deepEqual(chapters, [1, 1, 2, 3, 3, 4, 6, 6, 9, 10, 8, null]);
  assert.equal(readAddress("stop=5&chapter=2").chapter, 2);
});

test("withFields changes the given fields only", () => {
  assert.equal(withFields("run=2&step=3&node=4", { step: 5, node: "", quiz: 1 }), "run=2&step=5&quiz=1");
});

test("fields after # move into the query and remove the fields that they replace", () => {
  assert.equal(queryOfHash("section", "?step=1"), null);
  assert.equal(queryOfHash("step=4&theme=dark", "?tab=learn&stop=2&model=tiny"), "model=tiny&step=4&__theme=dark");
  assert.equal(queryOfHash("step=4", "?step=2&stage=doubt&present=1"), "step=4&present=1");
  assert.equal(queryOfHash("draft=1", "?quiz=1&beat=2&step=3"), "step=3&draft=1");
  assert.equal(queryOfHash("chapter=5", "?tab=explore&step=2&stop=3"), "step=2&chapter=5");
});

test("a link to this computer warns that it works nowhere else", () => {
  for (const local of ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
    assert.match(localWords(local), /this computer only/);
  for (const shared of ["192.168.0.7", "user-d2sd.hf.space", "127.0.0.1.example.org", "localhost.example.org"])
    assert.equal(localWords(shared), "");
});
