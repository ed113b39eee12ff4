// “When does it pay?”: costs of steps, points of the chart, and other K and γ.
import assert from "node:assert/strict";
import { test } from "node:test";
import { savedWords } from "../../assets/viewer/bars.js";
import { MEASURED, PAPER } from "../../assets/viewer/constants.js";
import { costParts, h200, meanCost, passCost, readWork } from "../../assets/viewer/machine.js";
import { noPoints, pointsOf } from "../../assets/viewer/pays.js";
import { bestWords, pointAt, readReplays, whyNone } from "../../assets/viewer/replays.js";

const near = (value, wanted, off = 1e-4) => assert.ok(Math.abs(value - wanted) < off, `${value} is not ${wanted}`);
const stepCost = (machine, method, work) => meanCost(machine, method, [work]);

test("steps have the published costs on the paper's machine", () => {
  near(stepCost(PAPER, "dflash", { first: 16, again: [], nodes: 16 }), 5.31 / 4.16);
  near(stepCost(PAPER, "d2sd", { first: 16, again: [64], nodes: 80 }), 7.05 / 4.98);
  near(stepCost(PAPER, "eagle3", { first: 7, again: [], nodes: 60 }), 5.91 / 3.8);
  assert.equal(costParts(PAPER, "draft_model", { first: 16, again: [], nodes: 16 }), null);
  near(stepCost(PAPER, "autoregressive", { first: 0, again: [], nodes: 1 }), 1);
});

test("the H200 has measured costs, or published ones if a drafter was not measured", () => {
  assert.deepEqual(
    ["d2sd", "dflash", "autoregressive", "eagle3"].map((method) => h200(method) === MEASURED),
    [true, true, true, false],
  );
  const work = { first: 16, again: [64], nodes: 33 };
  assert.equal(costParts(MEASURED, "d2sd", work).verify, passCost(MEASURED, 33)); // curve and bar have one cost
  assert.equal(passCost(MEASURED, 1), 1);
  near(passCost(MEASURED, MEASURED.verify.at(-1)[0]), MEASURED.verify.at(-1)[1] + MEASURED.other);
});

test("meanCost is null if work or drafter times are unknown", () => {
  assert.equal(meanCost(PAPER, "dflash", [readWork([16, [], 16]), readWork(null)]), null);
  assert.equal(meanCost(PAPER, "draft_model", [readWork([16, [], 16])]), null);
  assert.equal(meanCost(PAPER, "dflash", []), null);
});

test("savedWords is the difference of the numbers that are shown", () => {
  assert.deepEqual(
    [
      [9, 5.86],
      [7.86, 4.24], // 7.9 and 4.2
      [5, 7.44],
      [3, 2.02],
      [1, 1.04],
    ].map(([brought, cost]) => savedWords(brought, cost)),
    ["3.1 saved", "3.7 saved", "2.4 lost", "1.0 saved", "breaks even"],
  );
});

const SECONDS = { first_draft: 0.01, second_draft: 0, tree: 0, verify: 0.04, commit: 0 };
const RUN = {
  header: { method: "d2sd", config: { temperature: 0, cost_aware: false } },
  seen: { draft: true },
  finished: {},
  live: false,
  disturbed: false,
  baseline: 50,
  sums: { seconds: SECONDS },
  summaries: [{ nodes: 17 }, { nodes: 9 }],
  secondsOf: (at) => ({ ...SECONDS, verify: [0.04, 0.03][at] }),
};

test("the passes of a run are points where their times are known and undisturbed, else a sentence says why not", () => {
  assert.deepEqual(pointsOf(RUN), [
    { at: 0, nodes: 17, cost: 2 },
    { at: 1, nodes: 9, cost: 1.5 },
  ]);
  const without = { disturbed: /busy/, live: /after its end/ };
  for (const [name, words] of Object.entries(without)) {
    assert.match(noPoints({ ...RUN, [name]: true }), words);
    assert.deepEqual(pointsOf({ ...RUN, [name]: true }), []);
  }
  assert.match(noPoints({ ...RUN, baseline: null }), /was timed/);
  assert.match(noPoints({ ...RUN, header: { ...RUN.header, missing: ["tokens"] } }), /This log/);
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
  milliseconds: 10,
};
const LINE = {
  own: [4, 8],
  here: HERE,
  points: [
    [0, 8, [2, 2, 2, 2], Array(4).fill([8, [], 1])],
    [1, 8, [4, 4], Array(2).fill([8, [8], 9])],
    [4, 8, [4, 4], Array(2).fill([8, [32], 41])],
    [0, 4, [2, 1, 2, 1, 2], Array(5).fill([4, [], 1])],
  ],
};

test("readReplays adds up the costs of steps, without re-draft costs for K = 0", () => {
  const { points, k, gamma } = readReplays(LINE, "d2sd");
  assert.deepEqual(
    [k, gamma],
    [
      [0, 1, 4],
      [4, 8],
    ],
  );
  const times = points.map(({ seconds }) => (1000 * seconds).toFixed(3));
  assert.deepEqual(times, ["6.000", "4.500", "9.250", "7.500"]); // (cost of a step ÷ tokens a step) · 10 ms
  assert.equal(points[0].method, "dflash");
  assert.ok(readReplays({ ...LINE, here: null }, "d2sd").points.every(({ seconds }) => seconds === null));
});

test("pointAt gives the largest K that a block allows", () => {
  const replays = readReplays(LINE, "d2sd");
  assert.equal(pointAt(replays, { k: 4, gamma: 4 }).k, 0);
  assert.equal(pointAt(replays, { k: 2, gamma: 8 }).k, 1);
});

test("bestWords names the fewest steps and the least time, and why a larger K does not pay", () => {
  const replays = readReplays(LINE, "d2sd");
  assert.equal(
    bestWords(replays, 8),
    "With γ = 8, K = 1 needs the fewest steps (2) and the least time (4.50 ms a token). K = 4 needs 2 steps, and each costs 3.7 one-token passes instead of 1.8.",
  );
  assert.match(bestWords(replays, 4), /Of all K and γ, K = 1 with γ = 8 needs the least time: 4\.50 ms a token\.$/);
  assert.equal(
    bestWords(readReplays({ ...LINE, here: null }, "d2sd"), 8),
    "With γ = 8, K = 1 needs the fewest steps (2).",
  );
});

test("whyNone says why a run has no replays", () => {
  const none = (changes, server = null, told = false) => whyNone({ ...RUN, ...changes }, server, told);
  const config = (changes) => ({ header: { ...RUN.header, config: { ...RUN.header.config, ...changes } } });
  assert.equal(
    none({}, () => {}),
    "",
  );
  for (const [changes, words] of [
    [{}, /^This file has no replays/],
    [{ header: { ...RUN.header, missing: [] } }, /this log has no drafts/],
    [{ seen: { draft: false } }, /neither K nor γ/],
    [config({ temperature: 0.7 }), /was sampled/],
    [config({ cost_aware: true }), /Quickest here/],
    [{ live: true }, /after the end/],
    [{ finished: null }, /has no end/],
  ])
    assert.match(none(changes), words);
  assert.match(none({}, null, true), /in Explore/);
});
