// Race, Calibrate and what-if: lanes, the clock, figures, lists behind a chart, files.
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load } = require("./load.cjs");

const WORDS = ["viewer/dom", "viewer/words"];
const frames = [];
const race = load([...WORDS, "race/lane", "race/player", "race/table"], ["readLane", "ordinal", "Player", "stagesOf"], {
  requestAnimationFrame: (draw) => frames.push(draw),
  performance: { now: () => 0 },
});
const calibrate = load([...WORDS, "calibrate/places", "calibrate/download"], ["cell", "positionsCsv", "surprises", "stepsBehind", "placesOf", "nameOf"]);
const figures = load(["viewer/figures"], ["frames"]);

test("a lane is read with its numbers bounded and its tokens counted", () => {
  const lane = race.readLane({ method: "d2sd", steps: [[0.5, [["a", "first"], ["b", "nobody"]]], ["x", null], [1e99, [["c", "second"]]]] });
  assert.equal(lane.total, 3);
  assert.deepEqual(lane.steps.map((s) => s.elapsed), [0.5, 0, 1e6]);
  assert.equal(lane.steps[0].tokens[1].proposer, "target");
  assert.deepEqual([1, 2, 3, 4].map(race.ordinal), ["1st", "2nd", "3rd", "4th"]);
});

test("the time between the stages is told as a rest, never below none", () => {
  const { rest, whole } = race.stagesOf({ row: { seconds: 2, stage_seconds: { verify: 1.5, tree: 0.25 } } });
  assert.deepEqual([rest, whole], [0.25, 2]);
  assert.equal(race.stagesOf({ row: { seconds: 1, stage_seconds: { verify: 1.5 } } }).rest, 0);
});

test("a short race is replayed slowly, and the clock stops at its end", () => {
  const player = new race.Player({ isConnected: true }, () => {});
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
  const player = new race.Player({ isConnected: true }, () => (drawn += 1));
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
  const { stepsBehind, placesOf, nameOf } = calibrate;
  assert.deepEqual(rows(stepsBehind(DATA, "matrix", [4])), [0]);
  assert.deepEqual(rows(stepsBehind(DATA, "matrix", [-1])), [1]);
  assert.deepEqual([placesOf(DATA, "matrix", 1), placesOf(DATA, "matrix", 2), placesOf(DATA, "positions", 0)], [[7, -1], [], [1, 2]]);
  assert.deepEqual([rows(stepsBehind(DATA, "ranks", [0])), rows(stepsBehind(DATA, "", [])), placesOf(DATA, "gone", 0)], [[0], [], []]);
  assert.deepEqual([nameOf(DATA, "matrix", [-1]), nameOf(DATA, "uniform", [8, 9]), nameOf(DATA, "gone", [1])], ["Whole first draft accepted", "Confidence 0.8–0.9 to 0.9–1", "Steps"]);
});

test("the most surprising position comes first: sure and wrong, or unsure and right", () => {
  assert.deepEqual(rows(calibrate.stepsBehind(DATA, "positions", [2])), [[0, 1], [2, 1], [1, 1]]);
  assert.deepEqual(rows(calibrate.surprises(DATA)), [[0, 1]]);
});

test("frames stand around a column, a row, or a cell", () => {
  const sides = (trace) => figures.frames([trace], new Set([5]), {}).map(({ x0, x1, y0, y1 }) => [x0, x1, y0, y1]);
  assert.deepEqual(sides({ type: "bar", x: [0, 2], y: [1, 1], customdata: [4, 5] }), [[1.5, 2.5, 0, 1]]);
  assert.deepEqual(sides({ type: "bar", orientation: "h", x: [9, 9], y: [0, 3], customdata: [4, 5] }), [[0, 1, 2.5, 3.5]]);
  assert.deepEqual(sides({ type: "heatmap", customdata: [[1, 2], [3, 5]] }), [[0.5, 1.5, 0.5, 1.5]]);
  assert.deepEqual(sides({ type: "scatter", x: [1], y: [1] }), []);
});

test("a table for spreadsheets starts no formula and keeps quotes and commas in their cells", () => {
  assert.equal(calibrate.cell('=1+"2"'), `"'=1+""2"""`);
  assert.equal(calibrate.cell(-1), "-1");
  const [head, first, second] = calibrate.positionsCsv(DATA).split("\r\n");
  assert.match(head, /^run,label,step,position,confidence,accepted,token,wanted/);
  assert.match(first, /^"r","'=1\+""2""",\d,1,0\.9,1,"a","",1,2,1,1/);
  assert.match(second, /,1,2,0\.8,0,"b","x,\ny",1,2,1,1,"repaired"$/);
});
