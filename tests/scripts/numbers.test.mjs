// Tokens, costs and speedups of a run, on this machine and on others.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  clockOf,
  cycleOf,
  gist,
  machineOf,
  numbersView,
  timesWords,
  totalsOf,
  verdictOf,
  wasFixed,
} from "../../assets/viewer/numbers.js";

const NO_TIMES = { first_draft: 0, second_draft: 0, tree: 0, verify: 0, commit: 0 };

test("gist has the totals, and says why a run was slow where times are known and undisturbed", () => {
  const run = { header: { method: "d2sd", hardware: { device: "cpu" } }, sums: { tokens: 39 }, length: 10 };
  const slow = { cost: 5.4, gain: 0.722 };
  assert.equal(gist(run, { cost: 1.8, gain: 2.17 }), "39 tokens in 10 passes");
  assert.equal(gist({ ...run, live: true }, null), "39 tokens in 10 passes so far");
  assert.equal(
    gist(run, slow, 1.2, 2.75),
    "39 tokens in 10 passes · On this CPU, a step costs 5.4 one-token passes" +
      " · “Quickest here”: 1.2 times as fast as one by one in an earlier run · An 8B model on an H200: about 2.8 times as fast",
  );
  assert.equal(gist(run, { ...slow, disturbed: true }), "39 tokens in 10 passes");
  assert.match(gist({ ...run, header: { method: "autoregressive" } }, null), /written one by one/);
  assert.equal(gist({ ...run, length: 0 }, null), "");
});

test("verdictOf says whose run it is, and a speed only where times are known and undisturbed", () => {
  const run = { header: { models: { preset: "tiny" }, method: "d2sd" }, length: 10, recorded: true };
  const slow = { gain: 0.29 };
  const words = (...given) => verdictOf(...given).join("");
  assert.equal(
    words(run, slow, true),
    "tiny, recorded. A step chosen to explain. The whole run was 3.4 times slower than one by one.",
  );
  assert.deepEqual(verdictOf(run, { gain: 1.82 }, false).slice(1), ["1.8 times as fast", " as one by one."]);
  assert.equal(words({ ...run, own: true }, { gain: 1 }), "tiny, run here. The whole run was as fast as one by one.");
  assert.equal(
    words({ ...run, recorded: false, live: true }, slow),
    "tiny, run here. The run so far is 3.4 times slower than one by one.",
  );
  assert.deepEqual(verdictOf(run, { ...slow, disturbed: true }), [
    "tiny, recorded. Its time was not measured cleanly: other work kept the machine busy.",
  ]);
  assert.equal(
    words({ ...run, opened: "log.jsonl", header: { models: {} } }, null, true).slice(0, 23),
    "opened from log.jsonl. ",
  );
  assert.deepEqual(verdictOf({ ...run, length: 0 }, null), []);
});

test("timesWords never says 1.0 times, nor a ratio below 1", () => {
  assert.deepEqual(
    [0.5, 0.98, 1.02, 1.26].map((gain) => timesWords(gain)),
    [
      "2.0 times slower than one by one",
      "as fast as one by one",
      "as fast as one by one",
      "1.3 times as fast as one by one",
    ],
  );
});

test("clockOf compares a step with plain decoding of its tokens if both times are known", () => {
  const step = { seconds: { ...NO_TIMES, first_draft: 0.005, verify: 0.01 }, committed: Array(9).fill({}) };
  const run = { baseline: 300, disturbed: false };
  const { own, plain, pass } = clockOf(run, step);
  assert.deepEqual([own.toFixed(4), plain.toFixed(4), pass.toFixed(2)], ["0.0150", "0.0300", "3.00"]);
  assert.equal(clockOf({ ...run, disturbed: true }, step), null);
  assert.equal(clockOf({ ...run, baseline: null }, step), null);
  assert.equal(clockOf(run, { ...step, seconds: NO_TIMES }), null);
  assert.equal(clockOf(run, null), null);
});

test("cycleOf gives the cost of a mean step by stage, and its tokens", () => {
  const cycle = cycleOf({
    ...RUN,
    baseline: 100,
    unwatched: 82,
    sums: { tokens: 92, steps: 20, seconds: { ...NO_TIMES, verify: 0.3, first_draft: 0.1 } },
  });
  assert.deepEqual(
    [cycle.cost, cycle.brought, cycle.gain].map((value) => value.toFixed(2)),
    ["5.61", "4.60", "0.82"],
  );
  assert.ok(wasFixed(cycle, false));
  assert.deepEqual(
    [
      wasFixed(cycle, true),
      wasFixed(cycle, undefined),
      wasFixed({ gain: 1.1 }, false),
      wasFixed({ ...cycle, disturbed: true }, false),
      wasFixed(null, false),
    ],
    [false, false, false, false, false],
  );
  assert.deepEqual(
    Object.values(cycle.parts).map((cost) => cost.toFixed(2)),
    ["1.40", "0.00", "4.21", "0.00"],
  );
  assert.equal(cycleOf({ ...RUN, baseline: null }), null);
});

/** The store's totals of a run of six steps with three tokens each; two of its four partly rejected drafts were repaired. */
const RUN = {
  header: { method: "d2sd" },
  length: 6,
  live: false,
  baseline: 25,
  unwatched: 62.5,
  seen: { selected: true },
  summaries: Array.from({ length: 6 }, (_, at) => ({
    elapsed: 0.06 * (at + 1),
    total: 3,
    nodes: 6,
    verdict: at ? "found" : "repaired",
    gained: 1,
    redrafts: 2,
  })),
  sums: {
    tokens: 18,
    steps: 6,
    nodes: 36,
    gained: 6,
    redrafts: 12,
    outcomes: { repaired: 2, found: 1, missed: 1, all: 2 },
    seconds: { ...NO_TIMES, first_draft: 0.1, verify: 0.3 },
  },
};

test("totalsOf returns the totals of a run, and says which are not known", () => {
  assert.deepEqual(totalsOf(RUN), [
    ["tokens a step, α", "3.00"],
    ["tokens a second", "62.5, 50.0 with drawing, 25.0 one by one"],
    ["tokens read a step", "6.0"],
    ["rescued drafts", "2 of 4 partly rejected (50%)"],
    ["tokens per re-draft", "0.50 (6 by 12)"],
    ["time by stage", "draft 25% · verify 75%"],
  ]);
  const bare = {
    ...RUN,
    baseline: null,
    unwatched: null,
    summaries: RUN.summaries.map((step) => ({ ...step, elapsed: 0 })),
    sums: { ...RUN.sums, redrafts: 0, outcomes: { repaired: 0, found: 0, missed: 0, all: 2 }, seconds: NO_TIMES },
  };
  assert.deepEqual(
    totalsOf(bare).map(([, value]) => value),
    ["3.00", "no times", "6.0", "none predicted", "no re-drafts", "no times"],
  );
});

test("a slow run with full trees that was made here offers to run quickest here", () => {
  const made = [];
  const element = () => {
    const node = {
      nodeType: 1,
      style: {},
      dataset: {},
      classList: { toggle() {} },
      append() {},
      replaceChildren() {},
      querySelector() {},
    };
    made.push(node);
    return Object.assign(node, {
      setAttribute: (name, value) => (node[name] = value),
      addEventListener: (kind, act) => (node[kind] = act),
    });
  };
  globalThis.document = {
    createElementNS: element,
    addEventListener() {},
  };
  const asked = [];
  const offer = (changes, server = (event) => asked.push(event)) => {
    const store = {
      ...RUN,
      baseline: 80,
      unwatched: null,
      recorded: true,
      own: true,
      header: { method: "d2sd", config: { cost_aware: false }, models: { target: "t" } },
      sums: { ...RUN.sums, seconds: NO_TIMES },
      ...changes,
    };
    numbersView(element(), store, {}, server).show({ why: false });
    return made.findLast(({ id }) => id === "quickest");
  };
  assert.equal(offer({}).hidden, false);
  offer({}).click();
  assert.deepEqual(asked, ["quickest"]);
  const faster = { baseline: 25 };
  const aware = { header: { method: "d2sd", config: { cost_aware: true }, models: { target: "t" } } };
  const disturbed = { disturbed: true };
  assert.deepEqual(
    [offer(faster), offer(aware), offer(disturbed), offer({ own: false }), offer({}, null)].map(({ hidden }) => hidden),
    [true, true, true, true, true],
  );
});

test("machineOf names the machine of a run: a recording was made on another one", () => {
  const run = (device, changes) =>
    machineOf({ header: { hardware: { device, threads: 2 } }, recorded: true, ...changes });
  assert.deepEqual(run("cpu", { own: true }), { name: "this machine", note: "CPU, 2 threads" });
  assert.deepEqual(run("cpu", { recorded: false }), { name: "this machine", note: "CPU, 2 threads" });
  assert.deepEqual(run("cpu"), { name: "a CPU", note: "2 threads, recorded" });
  assert.equal(run("cuda").name, "a GPU");
  assert.deepEqual(machineOf({ header: {}, recorded: true }), { name: "its machine", note: "recorded" });
});
