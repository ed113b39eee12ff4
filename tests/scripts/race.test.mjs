// Race: lanes, the clock, figures, other machines.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ordinal, readLane, spanWords } from "../../app/race/lane.js";
import { Player, clockWords } from "../../app/race/player.js";
import { mapPoints, retimed, stagesOf, timeTicks, whyWords } from "../../app/race/results.js";
import { MACHINES } from "../../assets/viewer/constants.js";
import { stepCost } from "../../assets/viewer/machine.js";

const frames = [];
globalThis.requestAnimationFrame = (draw) => frames.push(draw);
test.mock.method(performance, "now", () => 0);

test("readLane bounds numbers and counts tokens", () => {
  const lane = readLane({ method: "d2sd", steps: [[0.5, [["a", "first"], ["b", "target"]]], ["x", null], [1e99, [["c", "second"]]]] });
  assert.equal(lane.total, 3);
  assert.deepEqual(lane.steps.map((s) => s.elapsed), [0.5, 0, 1e6]);
  assert.deepEqual([1, 2, 3, 4].map(ordinal), ["1st", "2nd", "3rd", "4th"]);
});

test("stagesOf gives the time outside stages, at least 0", () => {
  const { rest, whole } = stagesOf({ row: { seconds: 2, stage_seconds: { verify: 1.5, tree: 0.25 } } });
  assert.deepEqual([rest, whole], [0.25, 2]);
  assert.equal(stagesOf({ row: { seconds: 1, stage_seconds: { verify: 1.5 } } }).rest, 0);
});

test("the player slows down short races and stops at the end", () => {
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

test("the player requests one frame at a time", () => {
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
  player.toggle();
  frames.pop()(2000);
  assert.deepEqual([player.time, frames.length], [6, 0]);
  player.play();
  assert.equal(frames.length, 1);
});

// Plain decoding: 2 steps of 10 ms. Another: one step of 40 ms that drafts 8 rows, re-drafts 32 and verifies 41 nodes.
const PLAIN = readLane({ method: "autoregressive", row: { speedup: 1, mean_acceptance_length: 1 }, steps: [[0.0, [["a", "target"]], null], [0.01, [["a", "target"]], [0, [], 1]], [0.02, [["b", "target"]], [0, [], 1]]] });
const DRAFTED = readLane({ method: "d2sd", row: { speedup: 0.5, mean_acceptance_length: 2 }, steps: [[0.04, [["a", "first"], ["b", "target"]], [8, [32], 41]]] });
const CHAIN = readLane({ method: "draft_model", row: {}, steps: [[0.04, [["a", "first"]], [8, [], 8]]] });

test("retimed gives a lane the step costs of another machine in its unit", () => {
  const [paper, ...others] = MACHINES;
  assert.deepEqual(retimed(PLAIN, paper), [0, 1, 2]); // plain steps; prefill's token costs none
  const cost = stepCost(paper, "d2sd", { first: 8, again: [32], nodes: 41 });
  assert.deepEqual(retimed(DRAFTED, paper), [cost]);
  assert.equal(retimed(CHAIN, paper), null);
  const card = others.find(({ id }) => id === "h100");
  assert.ok(Math.abs(retimed(PLAIN, card)[2] - (2 * card.milliseconds) / 1000) < 1e-12);
  assert.deepEqual(mapPoints([PLAIN, DRAFTED], paper), [{ name: "D²SD", alpha: 2, here: 4, there: cost }]);
});

test("clockWords and spanWords use the unit of the race", () => {
  assert.equal(clockWords({ time: 0.5, duration: 0.994, unit: "s" }), "0.500 of 0.994 s");
  assert.equal(clockWords({ time: 62, duration: 62, unit: "plain steps" }), "62.0 of 62.0 plain steps");
  assert.deepEqual([spanWords(0.01, "s"), spanWords(1, "plain steps")], ["10.0 ms", "1.0 plain steps"]);
  const player = new Player({ isConnected: true }, () => {});
  player.load(62, "plain steps");
  assert.deepEqual([player.speed, player.pace], [1, 10]); // six seconds, not a minute
});

test("the axis of a race has a few round times", () => {
  assert.deepEqual(timeTicks(0.33).map((t) => t.toFixed(1)), ["0.0", "0.1", "0.2", "0.3"]);
  assert.ok(timeTicks(7).length <= 7);
});

test("whyWords explains the order of the lanes", () => {
  assert.match(whyWords([PLAIN, DRAFTED]), /^D²SD: A step cost 4\.0 plain steps and brought 2\.0 tokens, so it is 0\.50× as fast as plain decoding\.$/);
});
