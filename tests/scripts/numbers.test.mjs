// Tokens, costs and speedups of a run, on this machine and on others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { passCost, passWords } from "../../app/learn/appendices.js";
import { apart, costOf } from "../../app/learn/settings.js";
import { MEASURED, PAPER } from "../../assets/viewer/constants.js";
import { freeBox, meanCost, originWords, readWork, stepCost } from "../../assets/viewer/machine.js";
import {
  NumbersView,
  clockOf,
  cycleOf,
  cycleWords,
  elsewhereWords,
  figuresOf,
  gist,
  timesWords,
  wasFixed,
} from "../../assets/viewer/numbers.js";

const words = (given) =>
  gist(given)
    .map(({ text }) => text)
    .join("");

const NO_TIMES = { first_draft: 0, second_draft: 0, tree: 0, verify: 0, commit: 0 };

test("gist compares with plain decoding, and states a speed only where times are known and undisturbed", () => {
  const run = { method: "d2sd", tokens: 39, steps: 10, live: false };
  const slow = { cost: 5.4, gain: 0.722 };
  assert.equal(
    words({ ...run, cycle: { cost: 1.8, gain: 2.17 } }),
    "39 tokens in 10 passes · 2.2 times as fast as one by one",
  );
  assert.equal(words({ ...run, cycle: null, live: true }), "39 tokens in 10 passes so far");
  assert.equal(
    words({ ...run, cycle: slow, place: "this CPU", quickest: 1.2, elsewhere: 2.75 }),
    "39 tokens in 10 passes · 1.4 times slower than one by one on this CPU, where a step costs 5.4 passes" +
      " · “Quickest here”: 1.2 times as fast as one by one in an earlier run · An 8B model on an H200: about 2.8 times as fast",
  );
  assert.deepEqual(
    gist({ ...run, cycle: { ...slow, disturbed: true } }).map(({ kind }) => kind),
    [undefined], // no bold number
  );
  assert.match(words({ ...run, cycle: { ...slow, disturbed: true } }), / · not measured cleanly: /);
  assert.match(words({ ...run, method: "autoregressive", cycle: null }), /plain decoding/);
  assert.equal(words({ ...run, steps: 0, cycle: null }), "");
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

test("cycleWords explains the speedup by cost and tokens of a step", () => {
  const cycle = cycleOf({
    ...RUN,
    baseline: 100,
    unwatched: 82,
    sums: { tokens: 92, steps: 20, seconds: { ...NO_TIMES, verify: 0.3, first_draft: 0.1 } },
  });
  assert.equal(
    cycleWords(cycle),
    "A step took as long as 5.6 plain steps and brought 4.6 tokens, so drafting was 0.82× as fast as plain decoding.",
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
    cycle.parts.filter((part) => part.cost).map((part) => part.cost.toFixed(2)),
    ["1.40", "4.21"],
  );
  assert.equal(cycleOf({ ...RUN, baseline: null }), null);
});

const near = (value, wanted, off = 1e-4) => assert.ok(Math.abs(value - wanted) < off, `${value} is not ${wanted}`);

test("stepCost equals the published costs of each method", () => {
  near(stepCost(PAPER, "dflash", { first: 16, again: [], nodes: 16 }), 5.31 / 4.16);
  near(stepCost(PAPER, "d2sd", { first: 16, again: [64], nodes: 80 }), 7.05 / 4.98);
  near(stepCost(PAPER, "eagle3", { first: 7, again: [], nodes: 60 }), 5.91 / 3.8);
  assert.equal(stepCost(PAPER, "draft_model", { first: 16, again: [], nodes: 16 }), null);
  near(meanCost(PAPER, "autoregressive", [{ first: 0, again: [], nodes: 1 }]), 1);
});

test("originWords names the source of a price", () => {
  assert.equal(originWords("d2sd", 7.05 / 4.98), "as published for D²SD");
  assert.equal(originWords("eagle3", 5.91 / 3.8), "as published for EAGLE-3");
  const calculated = "calculated from the costs in the paper: DFlash 1.28, D²SD 1.42 and EAGLE-3 1.56";
  for (const [method, cost] of [
    ["d2sd", 1.41],
    ["d2sd_tree", 7.05 / 4.98],
    ["dflash", 1.2],
  ])
    assert.equal(originWords(method, cost), calculated);
  assert.match(
    elsewhereWords("d2sd", 1.4, 7),
    /cost 1\.40 plain steps \(calculated from the costs in the paper: DFlash/,
  );
});

test("freeBox chooses the label position that covers least", () => {
  const box = (left, top, width = 10) => ({ left, top, width, height: 10 });
  const frame = { left: 0, top: 0, width: 100, height: 100 };
  assert.equal(freeBox([box(0, 0), box(95, 0), box(50, 50)], [box(5, 5)], frame), 2); // covers a point, out of the frame, free
  assert.equal(freeBox([box(0, 0), box(20, 20)], [box(0, 0), box(28, 20)], frame), 1); // no free box: the least overlap
});

test("apart keeps labels at a distance and in order", () => {
  assert.deepEqual(apart([20, 22, 80, 40], 13), [9, 22, 80, 40]);
  assert.deepEqual(apart([50, 50, 51], 10), [41, 31, 51]);
});

test("meanCost is null if work or drafter times are unknown", () => {
  assert.equal(meanCost(PAPER, "dflash", [readWork([16, [], 16]), readWork(null)]), null);
  assert.equal(meanCost(PAPER, "draft_model", [readWork([16, [], 16])]), null);
  assert.equal(meanCost(PAPER, "dflash", []), null);
});

const HERE = {
  first_draft: [[8, 0.2]],
  second_draft: [
    [8, 0.2],
    [32, 0.5],
  ],
  verify: [
    [1, 0.9],
    [41, 2.9],
  ],
  other: 0.1,
  drafts: {},
};

test("costOf adds up the costs of steps, without re-draft costs for K = 0", () => {
  const four = {
    k: 4,
    works: [
      { first: 8, again: [32], nodes: 41 },
      { first: 8, again: [32], nodes: 21 },
    ],
  };
  const none = { k: 0, works: Array(4).fill({ first: 8, again: [], nodes: 1 }) };
  assert.equal(costOf(four, HERE, "d2sd").toFixed(6), (2 * (0.2 + 0.5 + 0.1) + 2.9 + 1.9).toFixed(6));
  assert.equal(costOf(none, HERE, "d2sd").toFixed(6), (4 * 1.2).toFixed(6));
});

test("passCost returns the measured cost of a pass, in plain steps", () => {
  assert.equal(passCost(1), 1);
  near(passCost(MEASURED.verify.at(-1)[0]), MEASURED.verify.at(-1)[1] + MEASURED.other);
  assert.equal(
    passWords(1),
    "With an 8B model on H200 (measured) a pass over 1 token costs no more than a pass over one.",
  );
  assert.equal(
    passWords(70),
    "With an 8B model on H200 (measured) a pass over 70 tokens costs 1.3 times as much as a pass over one.",
  );
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
  sums: { tokens: 18, nodes: 36, gained: 6, redrafts: 12, outcomes: { repaired: 2, found: 1, missed: 1, all: 2 } },
};
const values = (run, here) =>
  Object.fromEntries(Object.entries(figuresOf(run, here)).map(([id, [value, note]]) => [id, `${value} | ${note}`]));

test("figuresOf returns the totals of a run, each with a note", () => {
  assert.deepEqual(values(RUN), {
    alpha: "3.00 | breaks even at 1.2",
    speed: "50.0 | with drawing",
    speedup: "2.50× | without drawing 62.5, plain 25.0",
    nodes: "6.0 | ",
    repaired: "50% | 2 of 4",
    gain: "0.50 | 6 by 12",
  });
  assert.equal(values({ ...RUN, unwatched: null }).speedup, "2.00× | 50.0 vs 25.0 plain"); // older runs were not timed again
  assert.deepEqual(values(RUN, RUN.summaries[0]).repaired, "50% | this step: ● rescued");
  assert.equal(values(RUN, RUN.summaries[0]).gain, "0.50 | this step: 1 by 2");
});

test("figuresOf explains a speedup below 1 and shows a dash for unmeasured values", () => {
  assert.equal(values({ ...RUN, baseline: 80, unwatched: null }).speedup, "0.62× | a step = 4.8 plain steps");
  const bare = {
    ...RUN,
    baseline: null,
    unwatched: null,
    summaries: RUN.summaries.map((step) => ({ ...step, elapsed: 0 })),
  };
  assert.deepEqual([values(bare).speed, values(bare).speedup], ["— | no times in this run", "— | not measured"]);
  const nothing = {
    ...RUN,
    length: 0,
    summaries: [],
    baseline: null,
    unwatched: null,
    sums: { tokens: 0, nodes: 0, gained: 0, redrafts: 0, outcomes: { repaired: 0, found: 0, missed: 0, all: 0 } },
  };
  assert.deepEqual(values(nothing), {
    alpha: "— | ",
    speed: "— | ",
    speedup: "— | not measured",
    nodes: "— | ",
    repaired: "— | no prediction yet",
    gain: "— | no re-drafts",
  });
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
    createElement: element,
    createElementNS: element,
    createTextNode: (data) => ({ nodeType: 3, data }),
    addEventListener() {},
  };
  const asked = [];
  const offer = (changes, ways = { quickest: () => asked.push("quickest"), turn() {} }) => {
    const store = {
      ...RUN,
      baseline: 80,
      unwatched: null,
      recorded: true,
      own: true,
      header: { method: "d2sd", config: { cost_aware: false }, models: { target: "t" } },
      sums: { ...RUN.sums, steps: 6, seconds: NO_TIMES },
      ...changes,
    };
    new NumbersView(element(), store, {}, ways, () => "").show({ at: 0, secret: false, why: false });
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
