// Race: lanes, the player, results.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Player, clockWords, ordinal, readLane } from "../../app/race/replay.js";
import {
  aloneWords,
  costRows,
  elsewhereWords,
  resultWords,
  timeTicks,
  timedWords,
  timesOf,
} from "../../app/race/results.js";

const frames = [];
globalThis.requestAnimationFrame = (draw) => frames.push(draw);
test.mock.method(performance, "now", () => 0);

test("readLane counts tokens and finds the end of the lane", () => {
  const lane = readLane({
    method: "d2sd",
    steps: [
      [
        0.5,
        [
          ["a", "first"],
          ["b", "target"],
        ],
      ],
      [0.7, [["c", "second"]]],
    ],
  });
  assert.deepEqual([lane.total, lane.end, lane.steps[1].seconds.toFixed(2)], [3, 0.7, "0.20"]);
  assert.deepEqual([readLane({ state: "waiting" }).total, readLane({ state: "waiting" }).end], [0, 0]);
  assert.deepEqual([1, 2, 3, 4].map(ordinal), ["1st", "2nd", "3rd", "4th"]);
});

test("timesOf gives the time outside stages, at least 0", () => {
  const { rest, whole } = timesOf({ row: { seconds: 2, stage_seconds: { verify: 1.5, tree: 0.25 } } });
  assert.deepEqual([rest, whole], [0.25, 2]);
  assert.equal(timesOf({ row: { seconds: 1, stage_seconds: { verify: 1.5 } } }).rest, 0);
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

const NO_TIMES = { first_draft: 0, second_draft: 0, tree: 0, verify: 0, commit: 0 };
const ROW = { seconds: 0, stage_seconds: NO_TIMES, tokens_per_second: 0, disturbed: false };
const PLAIN = readLane({
  method: "autoregressive",
  name: "One by one",
  row: { ...ROW, speedup: 1, mean_acceptance_length: 1, there: 1 },
  steps: [[0.01, [["a", "target"]]]],
});
const DRAFTED = readLane({
  method: "d2sd",
  name: "D²SD",
  row: { ...ROW, speedup: 0.5, mean_acceptance_length: 2, there: 1.4 },
  steps: [
    [
      0.04,
      [
        ["a", "first"],
        ["b", "target"],
      ],
    ],
  ],
});
const CHAIN = readLane({
  method: "draft_model",
  row: { ...ROW, speedup: null, mean_acceptance_length: 1, there: null },
  steps: [[0.04, [["a", "first"]]]],
});

test("costRows has the cost of a step by stage, and what it brings, of every timed lane that drafts", () => {
  const stage_seconds = { ...NO_TIMES, first_draft: 0.005, verify: 0.03, tree: 0.001 };
  const timed = { ...DRAFTED, row: { ...DRAFTED.row, seconds: 0.04, stage_seconds } };
  const [row, ...others] = costRows([PLAIN, timed, CHAIN]);
  assert.deepEqual(others, []);
  assert.deepEqual(
    Object.entries(row.parts).map(([stage, cost]) => [stage, cost.toFixed(2)]),
    [
      ["first_draft", "0.50"],
      ["second_draft", "0.00"],
      ["verify", "3.00"],
      ["rest", "0.50"],
    ],
  );
  assert.deepEqual([row.name, row.brought, row.total], ["D²SD", 2, "4.0"]);
  assert.deepEqual(row.words, ["2.0 lost", "on an H200: 1.4"]);
});

test("clockWords states a short race in milliseconds", () => {
  assert.equal(clockWords({ time: 0.5, duration: 0.994 }), "0.500 of 0.994 s");
  assert.equal(clockWords({ time: 6.25, duration: 62 }), "6.3 of 62.0 s");
});

test("the axis of a race has a few round times", () => {
  assert.deepEqual(
    timeTicks(0.33).map((t) => t.toFixed(1)),
    ["0.0", "0.1", "0.2", "0.3"],
  );
  assert.ok(timeTicks(7).length <= 7);
});

test("resultWords names the fastest here and on the paper's machine, or says that none was", () => {
  const lane = (name, speedup, there) => ({ ...DRAFTED, name, row: { ...DRAFTED.row, speedup, there } });
  assert.deepEqual(
    resultWords([
      PLAIN,
      lane("DFlash", 1.2, 1.25),
      lane("D²SD", 1.1, 1),
      { ...lane("D²SD, “quickest here”", 1.3, 1), method: "d2sd cost-aware" },
    ]),
    {
      title: "D²SD, “quickest here” was fastest: 1.3 times as fast as one by one.",
      more: "It also needed the fewest steps, 1.",
    },
  );
  const lanes = [PLAIN, lane("DFlash", 1.2, 1.25), lane("D²SD", 1.1, 1)];
  assert.match(elsewhereWords(lanes), /^With an 8B model on an H200, D²SD would be about 2.0 times as fast/);
  const quickest = { ...lane("D²SD, “quickest here”", 1.3, 0.5), method: "d2sd cost-aware" };
  assert.match(elsewhereWords([...lanes, quickest]), /, D²SD would be/);
  assert.equal(elsewhereWords([PLAIN, lane("EAGLE-3", 1.1, null), lane("DFlash", 1.2, 3)]), ""); // unknown, or slower
  assert.equal(elsewhereWords([PLAIN]), "");
  const placed = ({ row, ...lane }, place) => ({ ...lane, row: { ...row, place } });
  const [first, second] = [placed(lane("D²SD", 1.1, null), 1), placed(lane("DFlash", 1.2, null), 2)];
  assert.match(resultWords([PLAIN, second, first]).title, /^D²SD was fastest/); // as its lane says
  // with texts of other lengths, the first by time may write fewer tokens per second
  assert.equal(resultWords([placed(PLAIN, 1), second]).title, "One by one was fastest.");
  assert.equal(resultWords([PLAIN, placed(lane("D²SD", 0.5, null), 1)]).title, "D²SD was fastest.");
  const long = { ...first, end: 0.06, steps: [...first.steps, ...first.steps] };
  assert.equal(
    resultWords([PLAIN, long, second, { steps: [] }]).more, // the last lane waits
    "DFlash needed the fewest steps, 1, but each took 40.0 ms instead of 30.0.",
  );
  assert.deepEqual(resultWords([lane("DFlash", null, 1)]), { title: "", more: "" }); // without plain decoding
  assert.deepEqual(resultWords([PLAIN, lane("DFlash", 0.5, null)]), {
    title: "One by one was fastest; closest was DFlash: 2.0 times slower than one by one.",
    more: "DFlash needed the fewest steps, 1.",
  });
  assert.deepEqual(resultWords([PLAIN]), { title: "", more: "" });
  const busy = { ...DRAFTED, row: { ...DRAFTED.row, disturbed: true } };
  assert.equal(resultWords([PLAIN, busy]).title, "Not measured cleanly.");
});

test("aloneWords advises to tick a second method only if one was ticked", () => {
  assert.equal(aloneWords(1), "Tick a second method in ⋯ to compare.");
  assert.equal(aloneWords(6), "Too few methods ran to compare.");
});

test("a disturbed lane is compared with nothing", () => {
  const busy = { ...DRAFTED, row: { ...DRAFTED.row, tokens_per_second: 50, disturbed: true } };
  assert.deepEqual(costRows([PLAIN, busy]), []);
  const shown = (lane) => timedWords(lane).map(([, words]) => words);
  assert.deepEqual(shown(busy), ["50.0", "—", "—"]);
  const clean = { ...busy, row: { ...busy.row, disturbed: false } };
  assert.deepEqual(shown(clean), ["50.0", "0.50×", "4.0"]);
  assert.equal(costRows([PLAIN, clean]).length, 1);
  assert.deepEqual(shown(DRAFTED), ["—", "0.50×", "4.0"]); // its speed is unknown
});
