// Race, Calibrate and what-if: lanes, the clock, figures, lists behind a chart, files.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cell, nameOf, placesOf, positionsCsv, stepsBehind, surprises } from "../../app/calibrate/main.js";
import { ordinal, readLane } from "../../app/race/lane.js";
import { Player } from "../../app/race/player.js";
import { mapPoints, retimed, stagesOf, timeTicks, whyWords } from "../../app/race/results.js";
import { cycleOf, cycleWords, savingWords } from "../../assets/viewer/numbers.js";
import { frames as framesAround } from "../../assets/viewer/figures.js";
import { stepCost } from "../../assets/viewer/machine.js";
import { MACHINES } from "../../assets/viewer/constants.js";

const frames = [];
globalThis.requestAnimationFrame = (draw) => frames.push(draw);
test.mock.method(performance, "now", () => 0);

test("a lane is read with its numbers bounded and its tokens counted", () => {
  const lane = readLane({ method: "d2sd", steps: [[0.5, [["a", "first"], ["b", "nobody"]]], ["x", null], [1e99, [["c", "second"]]]] });
  assert.equal(lane.total, 3);
  assert.deepEqual(lane.steps.map((s) => s.elapsed), [0.5, 0, 1e6]);
  assert.equal(lane.steps[0].tokens[1].proposer, "target");
  assert.deepEqual([1, 2, 3, 4].map(ordinal), ["1st", "2nd", "3rd", "4th"]);
});

test("the time between the stages is told as a rest, never below none", () => {
  const { rest, whole } = stagesOf({ row: { seconds: 2, stage_seconds: { verify: 1.5, tree: 0.25 } } });
  assert.deepEqual([rest, whole], [0.25, 2]);
  assert.equal(stagesOf({ row: { seconds: 1, stage_seconds: { verify: 1.5 } } }).rest, 0);
});

test("a short race is replayed slowly, and the clock stops at its end", () => {
  const player = new Player({ isConnected: true }, () => {});
  player.load(20);
  assert.equal(player.speed, 1);
  player.load(2);
  assert.equal(player.speed, 0.25);
  player.play();
  frames.pop()(4000);
  assert.deepEqual([player.time, player.playing], [1, true]);
  frames.pop()(9000);
  assert.deepEqual([player.time, player.playing], [2, false]);
  player.seek(99);
  assert.equal(player.time, 2);
});

test("one frame at a time is asked for, however often a race is stopped and started", () => {
  let drawn = 0;
  const player = new Player({ isConnected: true }, () => (drawn += 1));
  player.load(20);
  player.play();
  player.restart();
  player.toggle();
  player.toggle();
  player.seek(5);
  player.play();
  assert.equal(frames.length, 1);
  drawn = 0;
  frames.pop()(1000);
  assert.deepEqual([player.time, drawn, frames.length], [6, 1, 1]);
  player.pause();
  frames.pop()(2000);
  assert.deepEqual([player.time, frames.length], [6, 0]);
  player.play();
  assert.equal(frames.length, 1);
});

// Three steps: the first ends at 1 as predicted, the second is wholly accepted, of the third the end was not seen.
const DATA = {
  report: { matrix: { counts: [[0, 0, 0], [0, 1, 0], [0, 1, 0]] } },
  panels: [{ id: "uniform", names: { 8: "Confidence 0.8–0.9", 9: "Confidence 0.9–1" } }, { id: "matrix", names: { "-1": "Whole first draft accepted" } }],
  runs: [{ run: "r", label: '=1+"2"', domain: "sums" }],
  places: {
    positions: { uniform: [[9, 8], [6, 7], [5, 4]], positions: [[1, 2], [1, 2], [1, 2]] },
    steps: { matrix: [[4], [7, -1], []], ranks: [[0], [], []] },
  },
  steps: {
    run: [0, 0, 0], step: [0, 1, 2], matched: [1, 2, 2], drafted: [2, 2, 2], predicted: [1, 1, 1], happened: [1, 2, -1], rank: [1, 0, 0],
    confidence: [[0.9, 0.8], [0.6, 0.7], [0.5, 0.4]], depths: [[1, 2], [1, 2], [1, 2]],
    tokens: [["a", "b"], ["c", "d"], ["e", "f"]], wanted: ["x,\ny", "", ""], outcome: ["repaired", "all", ""],
  },
};
const rows = (items) => items.map(({ row, at }) => (at === null ? row : [row, at]));

test("a mark lists its steps, and a step knows its marks", () => {
  assert.deepEqual(rows(stepsBehind(DATA, "matrix", [4])), [0]);
  assert.deepEqual(rows(stepsBehind(DATA, "matrix", [-1])), [1]);
  assert.deepEqual([placesOf(DATA, "matrix", 1), placesOf(DATA, "matrix", 2), placesOf(DATA, "positions", 0)], [[7, -1], [], [1, 2]]);
  assert.deepEqual([rows(stepsBehind(DATA, "ranks", [0])), rows(stepsBehind(DATA, "", [])), placesOf(DATA, "gone", 0)], [[0], [], []]);
  assert.deepEqual([nameOf(DATA, "matrix", [-1]), nameOf(DATA, "uniform", [8, 9]), nameOf(DATA, "gone", [1])], ["Whole first draft accepted", "Confidence 0.8–0.9 to 0.9–1", "Steps"]);
});

test("the most surprising position comes first: sure and wrong, or unsure and right", () => {
  assert.deepEqual(rows(stepsBehind(DATA, "positions", [2])), [[0, 1], [2, 1], [1, 1]]);
  assert.deepEqual(rows(surprises(DATA)), [[0, 1]]);
});

test("frames stand around a column, a row, or a cell", () => {
  const sides = (trace) => framesAround([trace], new Set([5]), {}).map(({ x0, x1, y0, y1 }) => [x0, x1, y0, y1]);
  assert.deepEqual(sides({ type: "bar", x: [0, 2], y: [1, 1], customdata: [4, 5] }), [[1.5, 2.5, 0, 1]]);
  assert.deepEqual(sides({ type: "bar", orientation: "h", x: [9, 9], y: [0, 3], customdata: [4, 5] }), [[0, 1, 2.5, 3.5]]);
  assert.deepEqual(sides({ type: "heatmap", customdata: [[1, 2], [3, 5]] }), [[0.5, 1.5, 0.5, 1.5]]);
  assert.deepEqual(sides({ type: "scatter", x: [1], y: [1] }), []);
});

test("a table for spreadsheets starts no formula and keeps quotes and commas in their cells", () => {
  assert.equal(cell('=1+"2"'), `"'=1+""2"""`);
  assert.equal(cell(-1), "-1");
  const [head, first, second] = positionsCsv(DATA).split("\r\n");
  assert.match(head, /^run,label,step,position,confidence,accepted,token,wanted/);
  assert.match(first, /^"r","'=1\+""2""",\d,1,0\.9,1,"a","",1,2,1,1/);
  assert.match(second, /,1,2,0\.8,0,"b","x,\ny",1,2,1,1,"repaired"$/);
});

// Plain decoding: 2 steps of 10 ms. Another: one step of 40 ms that drafts 8 rows, re-drafts 32 and verifies 41 nodes.
const PLAIN = readLane({ method: "autoregressive", row: { speedup: 1, mean_acceptance_length: 1 }, steps: [[0.0, [["a", "target"]], null], [0.01, [["a", "target"]], [0, [], 1]], [0.02, [["b", "target"]], [0, [], 1]]] });
const DRAFTED = readLane({ method: "d2sd", row: { speedup: 0.5, mean_acceptance_length: 2 }, steps: [[0.04, [["a", "first"], ["b", "target"]], [8, [32], 41]]] });
const CHAIN = readLane({ method: "draft_model", row: {}, steps: [[0.04, [["a", "first"]], [8, [], 8]]] });

test("a race is timed again on another machine: what it measures or calculates for every step, in its own unit", () => {
  const [paper, ...others] = MACHINES;
  assert.deepEqual(retimed(PLAIN, paper), [0, 1, 2]); // plain steps; prefill's token costs none
  const cost = stepCost(paper, "d2sd", { first: 8, again: [32], nodes: 41 });
  assert.deepEqual(retimed(DRAFTED, paper), [cost]);
  assert.equal(retimed(CHAIN, paper), null);
  const card = others.find(({ id }) => id === "h100");
  assert.ok(Math.abs(retimed(PLAIN, card)[2] - (2 * card.milliseconds) / 1000) < 1e-12);
  assert.deepEqual(mapPoints([PLAIN, DRAFTED], paper), [{ name: "D²SD", alpha: 2, here: 4, there: cost }]);
});

test("what a step costs and brings says why drafting is faster or slower", () => {
  const cycle = cycleOf({ tokens: 92, steps: 20, speed: 82, plain: 100, seconds: { verify: 0.3, first_draft: 0.1 } });
  assert.equal(cycleWords(cycle), "A step cost 5.6 plain steps and brought 4.6 tokens, so it is 0.82× as fast as plain decoding.");
  assert.match(savingWords(cycle, false), /“cost-aware”/);
  assert.deepEqual([savingWords(cycle, true), savingWords(cycle, undefined), savingWords({ gain: 1.1 }, false)], ["", "", ""]);
  assert.deepEqual(cycle.parts.filter((part) => part.cost).map((part) => part.cost.toFixed(2)), ["1.40", "4.21"]);
  assert.equal(cycleOf({ tokens: 1, steps: 1, speed: 5, plain: null, seconds: {} }), null);
  assert.match(whyWords([PLAIN, DRAFTED]), /^D²SD: A step cost 4\.0 plain steps and brought 2\.0 tokens, so it is 0\.50× as fast as plain decoding\.$/);
});

test("the axis of a race has a few round times", () => {
  assert.deepEqual(timeTicks(0.33).map((t) => t.toFixed(1)), ["0.0", "0.1", "0.2", "0.3"]);
  assert.ok(timeTicks(7).length <= 7);
});
