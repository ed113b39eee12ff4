// Calibrate: the steps behind a mark of a figure, and the frame around the mark.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  headingOf,
  nameOf,
  placesOf,
  predictedBy,
  stepsBehind,
  surprises,
  verdictWords,
  worthSeeing,
} from "../../app/calibrate/main.js";
import { frames as framesAround } from "../../assets/viewer/figures.js";

const DATA = {
  report: {
    matrix: {
      counts: [
        [0, 0, 0],
        [0, 1, 0],
        [0, 1, 0],
      ],
    },
  },
  panels: [
    { id: "uniform", names: { 8: "Confidence 0.8–0.9", 9: "Confidence 0.9–1" } },
    { id: "gains", names: { "-1": "Lower ranks added tokens" } },
  ],
  runs: [{ run: "r", label: '=1+"2"', domain: "sums" }],
  places: {
    positions: {
      uniform: [
        [9, 8],
        [6, 7],
        [5, 4],
      ],
      positions: [
        [1, 2],
        [1, 2],
        [1, 2],
      ],
    },
    steps: { gains: [[4], [7, -1], []], ranks: [[0], [], []] },
  },
  steps: {
    run: [0, 0, 0],
    step: [0, 1, 2],
    matched: [1, 2, 2],
    predicted: [1, 1, 1],
    happened: [1, 2, -1],
    rank: [1, 0, 0],
    confidence: [
      [0.9, 0.8],
      [0.6, 0.7],
      [0.5, 0.4],
    ],
    depths: [
      [1, 2],
      [1, 2],
      [1, 2],
    ],
    tokens: [
      ["a", "b"],
      ["c", "d"],
      ["e", "f"],
    ],
    wanted: ["x,\ny", "", ""],
    outcome: ["repaired", "all", ""],
  },
};
const rows = (items) => items.map(({ row, at }) => (at === null ? row : [row, at]));

test("stepsBehind lists the steps of a mark, and placesOf the marks of a step", () => {
  assert.deepEqual(rows(stepsBehind(DATA, "gains", [4])), [0]);
  assert.deepEqual(rows(stepsBehind(DATA, "gains", [-1])), [1]);
  assert.deepEqual(
    [placesOf(DATA, "gains", 1), placesOf(DATA, "gains", 2), placesOf(DATA, "positions", 0)],
    [[7, -1], [], [1, 2]],
  );
  assert.deepEqual(
    [rows(stepsBehind(DATA, "ranks", [0])), rows(stepsBehind(DATA, "", [])), placesOf(DATA, "gone", 0)],
    [[0], [], []],
  );
  assert.deepEqual(
    [nameOf(DATA, "gains", [-1]), nameOf(DATA, "uniform", [8, 9]), nameOf(DATA, "gone", [1])],
    ["Lower ranks added tokens", "Confidence 0.8–0.9 to 0.9–1", "Steps"],
  );
});

test("positions are listed with the most surprising confidence first", () => {
  assert.deepEqual(rows(stepsBehind(DATA, "positions", [2])), [
    [0, 1],
    [2, 1],
    [1, 1],
  ]);
  assert.deepEqual(rows(surprises(DATA)), [[0, 1]]);
});

test("steps behind a mark of the confidence head are sorted and described by its predictions", () => {
  const head = { confidence: [[], [0.2, 0.9], [0.8, 0.1]], predicted: [0, 2, 2], rank: [0, 0, 0] };
  const positions = { ...DATA.places.positions, "head-positions": [[], [1, 2], [1, 2]] };
  const data = { ...DATA, head, places: { ...DATA.places, positions } };
  const seen = predictedBy(data, "head-positions");
  assert.deepEqual(rows(stepsBehind(seen, "head-positions", [1])), [
    [1, 0],
    [2, 0],
  ]);
  assert.deepEqual([seen.steps.predicted, seen.steps.matched], [head.predicted, DATA.steps.matched]);
  assert.equal(predictedBy(data, "positions"), data);
});

test("frames enclose the marked bar or heatmap cell", () => {
  const sides = (trace) => framesAround([trace], [5], {}).map(({ x0, x1, y0, y1 }) => [x0, x1, y0, y1]);
  assert.deepEqual(sides({ type: "bar", x: [0, 2], y: [1, 1], customdata: [4, 5] }), [[1.5, 2.5, 0, 1]]);
  assert.deepEqual(sides({ type: "bar", orientation: "h", x: [9, 9], y: [0, 3], customdata: [4, 5] }), [
    [0, 1, 2.5, 3.5],
  ]);
  assert.deepEqual(
    sides({
      type: "heatmap",
      customdata: [
        [1, 2],
        [3, 5],
      ],
    }),
    [[0.5, 1.5, 0.5, 1.5]],
  );
  assert.deepEqual(sides({ type: "scatter", x: [1], y: [1] }), []);
});

test("worthSeeing lists steps by kind and by group of prompts", () => {
  assert.deepEqual(worthSeeing(DATA, "surest", ""), surprises(DATA));
  assert.deepEqual(worthSeeing(DATA, "repaired", ""), [{ row: 0, at: null }]);
  assert.deepEqual(worthSeeing(DATA, "repaired", "sums"), [{ row: 0, at: null }]);
  assert.deepEqual(worthSeeing(DATA, "repaired", "other"), []);
  assert.deepEqual(worthSeeing(DATA, "first", ""), []);
  const sure = {
    ...DATA,
    steps: { ...DATA.steps, matched: [0, 2, 2], confidence: [[0.95, 0.8], ...DATA.steps.confidence.slice(1)] },
  };
  assert.deepEqual(worthSeeing(sure, "first", ""), [{ row: 0, at: 0 }]);
  const later = { ...sure, steps: { ...sure.steps, matched: [1, 2, 2] } }; // it broke after a sure first token
  assert.deepEqual(worthSeeing(later, "first", ""), []);
});

test("verdictWords splits a verdict into title, reason and precision", () => {
  assert.deepEqual(verdictWords("It can be trusted: mean confidence 84%; ECE 0.02 (9 positions)."), [
    "It can be trusted.",
    "Mean confidence 84%.",
    "ECE 0.02 (9 positions).",
  ]);
  assert.deepEqual(verdictWords("Nothing to score: there are no steps."), [
    "Nothing to score.",
    "There are no steps.",
    "",
  ]);
  assert.deepEqual(verdictWords("No block was drafted."), ["No block was drafted.", "", ""]);
});

test("headingOf gives no verdict before the first prompt is finished", () => {
  const reading = [{ text: "Nothing to score: there are no steps." }];
  const heading = (running, done) => headingOf({ progress: { running, done }, reading })[0];
  assert.equal(heading(true, 0), "Measuring the first prompt …");
  assert.equal(heading(true, 1), "Nothing to score.");
  assert.equal(heading(false, 0), "Nothing to score.");
});
