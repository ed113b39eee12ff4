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
const calibrate = load(
  [...WORDS, "calibrate/chart", "calibrate/columns", "calibrate/members", "calibrate/download", ...["matrix", "positions", "ranks", "reliability", "second", "promise", "groups"].map((name) => `calibrate/charts/${name}`)],
  ["share", "short", "figureWords", "cell", "positionsCsv", "surprises", "MatrixChart", "PositionChart", "RankChart", "ReliabilityChart", "SecondChart", "PromiseChart", "GroupsView"],
);
const whatif = load([...WORDS, "whatif/series", "whatif/chart"], ["ticks", "looksOf", "readSweep"]);

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

test("a share that is not quite none or all gets another digit", () => {
  assert.deepEqual([0, 0.004, 0.5, 0.996, 1, null].map(calibrate.share), ["0%", "0.4%", "50%", "99.6%", "100%", "—"]);
  assert.deepEqual([9999, 12345, 3.2e6].map(calibrate.short), ["9999", "12k", "3.2M"]);
  assert.equal(calibrate.figureWords({ value: 0.5, low: 0.4, high: 0.6 }, calibrate.share), "50% (40%–60%)");
  assert.equal(calibrate.figureWords({ value: 0.5, low: null, high: null }, calibrate.share), "50%");
});

// Three steps: the first ends at 1 as predicted, the second is wholly accepted, of the third the end was not seen.
const DATA = {
  report: { matrix: { counts: [[0, 0, 0], [0, 1, 0], [0, 1, 0]] }, second: { gains: [{ left: 0, right: 0.05 }, { left: 2, right: 1e9 }] }, domains: [{ name: "sums" }, { name: "code" }] },
  kinds: ["word", "number"],
  runs: [{ run: "r", label: '=1+"2"', domain: "sums" }],
  steps: {
    run: [0, 0, 0], step: [0, 1, 2], matched: [1, 2, 2], drafted: [2, 2, 2], predicted: [1, 1, 1], happened: [1, 2, -1], rank: [1, 0, 0],
    confidence: [[0.9, 0.8], [0.6, 0.7], [0.5, 0.4]], depths: [[1, 2], [1, 2], [1, 2]], kind: [[0, 1], [0, 0], [1, 0]], second: [[3], [], [3, 9]], promise: [[1], [], [0]], uniform: [[9, 8], [6, 7], [5, 4]], equal_mass: [[1, 1], [0, 1], [0, 0]],
    tokens: [["a", "b"], ["c", "d"], ["e", "f"]], wanted: ["x,\ny", "", ""], won: [[0], [0], []], outcome: ["repaired", "all", ""],
  },
};
const chart = (Kind, fields = {}) => Object.assign(Object.create(Kind.prototype), fields);
const rows = (items) => items.map(({ row, at }) => (at === null ? row : [row, at]));

test("a chart lists the steps of a place, and knows the places of a step", () => {
  const { MatrixChart, PositionChart, RankChart, ReliabilityChart } = calibrate;
  const matrix = chart(MatrixChart);
  assert.deepEqual(rows(matrix.members(DATA, [1 * 3 + 1])), [0]);
  assert.deepEqual(rows(matrix.members(DATA, [-1])), [1]);
  assert.deepEqual(matrix.placesOf(DATA, 1), [2 * 3 + 1, -1]);
  assert.deepEqual(matrix.placesOf(DATA, 2), []);
  assert.equal(matrix.named(DATA, [7]), "Predicted 1, actual all");
  assert.equal(matrix.named(DATA, [-1]), "Whole first draft accepted");
  assert.deepEqual(rows(chart(RankChart).members(DATA, [0])), [0]);
  assert.deepEqual(chart(RankChart).placesOf(DATA, 1), []);
  assert.deepEqual(chart(PositionChart).placesOf(DATA, 0), [1, 2]);
  assert.deepEqual(rows(chart(ReliabilityChart, { id: "equal_mass" }).members(DATA, [1])), [[0, 1], [1, 1], [0, 0]]);
});

test("the charts of the second drafter and of groups know their steps", () => {
  const { SecondChart, PromiseChart, GroupsView } = calibrate;
  assert.deepEqual([rows(chart(SecondChart).members(DATA, [3])), chart(SecondChart).placesOf(DATA, 2), chart(SecondChart).named(DATA, [9])], [[0, 2], [3, 9], "Second drafter says 0.9–1.0"]);
  assert.deepEqual([rows(chart(PromiseChart).members(DATA, [1])), chart(PromiseChart).named(DATA, [1])], [[0], "Re-drafts that promised 2 or more tokens"]);
  const groups = chart(GroupsView);
  groups.use("domain");
  assert.deepEqual([rows(groups.members(DATA, [0])), rows(groups.members(DATA, [1])), groups.named(DATA, [1])], [[0, 1, 2], [], "Prompts of code"]);
  groups.use("kind");
  assert.deepEqual([rows(groups.members(DATA, [1])), groups.named(DATA, [1])], [[[0, 1], [2, 0]], "Kind of token: number"]);
});

test("the most surprising position comes first: sure and wrong, or unsure and right", () => {
  assert.deepEqual(rows(chart(calibrate.PositionChart).members(DATA, [2])), [[0, 1], [2, 1], [1, 1]]);
  assert.deepEqual(rows(calibrate.surprises(DATA)), [[0, 1]]);
});

test("a table for spreadsheets starts no formula and keeps quotes and commas in their cells", () => {
  assert.equal(calibrate.cell('=1+"2"'), `"'=1+""2"""`);
  assert.equal(calibrate.cell(-1), "-1");
  const [head, first, second] = calibrate.positionsCsv(DATA).split("\r\n");
  assert.match(head, /^run,label,step,position,confidence,accepted,token,wanted/);
  assert.match(first, /^"r","'=1\+""2""",\d,1,0\.9,1,"a","",1,2,1,1/);
  assert.match(second, /,1,2,0\.8,0,"b","x,\ny",1,2,1,1,"repaired"$/);
});

test("ticks are round, start at the bottom and reach the top", () => {
  assert.deepEqual(whatif.ticks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  const fine = whatif.ticks(1, 1.9, 4);
  assert.ok(fine[0] === 1 && fine[fine.length - 1] >= 1.9 - 1e-9 && fine.length <= 6);
  assert.ok(whatif.ticks(1, 1, 4).length < 6);
});

test("a method looks the same in every sweep, and hostile sweeps are bounded", () => {
  const raw = (methods) => whatif.readSweep({ values: [1, 2], own: 9, lines: methods.map((method) => ({ method, points: [[7, -3, "x"]] })) });
  const looks = whatif.looksOf([raw(["a", "b"]), raw(["b", "c"])]);
  assert.equal(new Set([...looks.values()].map((look) => look.colour)).size, 3);
  const many = [...whatif.looksOf([raw(Array.from({ length: 15 }, (_, at) => `lane ${at}`))]).values()];
  assert.equal(new Set(many.map((look) => JSON.stringify(look))).size, 15);
  assert.deepEqual(raw(["a"]).lines[0].points, [{ at: 1, alpha: 0, nodes: 0, low: null, high: null, less: null, more: null }]);
  assert.equal(raw(["a"]).own, 1);
});
