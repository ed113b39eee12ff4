// Reading a run line by line, and the selection in it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { boundaryWords, stepSentence } from "../../assets/viewer/explain.js";
import { State } from "../../assets/viewer/state.js";
import { Resend, Store, judged, openLine } from "../../assets/viewer/store.js";
import { foundBy } from "../../assets/viewer/timeline.js";
import { FINISHED, HEADER, segment, settled, stepLine, storeOf, outcomeLine } from "./fixtures.mjs";

test("a run is read as it arrives, and its totals add up", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, outcomeLine("found"), stepLine(4, 2, [2], 0.5)));
  await settled(store);
  assert.equal(store.live, true);
  store.feed(
    segment(
      "k",
      3,
      outcomeLine("all"),
      stepLine(4, 4, [1], 1),
      outcomeLine("missed"),
      stepLine(4, 0, [3], 1.5),
      FINISHED,
    ),
  );
  await settled(store);
  assert.equal(store.live, false);
  assert.deepEqual(
    store.summaries.map((s) => s.verdict),
    ["found", "all", "missed"],
  );
  assert.deepEqual(
    { tokens: store.sums.tokens, ...store.sums.outcomes, judged: judged(store.sums), most: store.most },
    { tokens: 3 + 5 + 1, repaired: 0, found: 1, missed: 1, all: 1, judged: 2, most: 5 },
  );
  assert.equal(store.prompt, "Once");
  assert.equal(store.step(2).ending, "max_new_tokens");
  assert.equal(store.step(3), null);
  assert.deepEqual(store.lines, [
    HEADER,
    stepLine(4, 2, [2], 0.5),
    stepLine(4, 4, [1], 1),
    stepLine(4, 0, [3], 1.5),
    FINISHED,
  ]); // outcomes are not part of the trace
});

test("a step has the outcome of the line before it, or none", async () => {
  const { store } = storeOf();
  store.feed(
    segment(
      "k",
      0,
      HEADER,
      outcomeLine("repaired", 2, 3),
      stepLine(4, 2),
      stepLine(4, 2),
      outcomeLine(null),
      stepLine(4, 2),
    ),
  );
  await settled(store);
  const told = ({ verdict, gained, closed }) => [verdict, gained, closed];
  const expected = [
    ["repaired", 2, 3],
    [null, 0, null],
    [null, 0, null],
  ];
  assert.deepEqual(store.summaries.map(told), expected);
  assert.deepEqual(
    [0, 1, 2].map((at) => told(store.step(at))),
    expected,
  );
  assert.deepEqual(
    store.summaries.map(({ work }) => work),
    [{ first: 5, again: [], nodes: 5 }, null, { first: 5, again: [], nodes: 5 }],
  );
  assert.equal(boundaryWords(store.step(2)), "The first draft broke after the second token.");
});

test("another view reads the same run from valueAt, and opens at that step", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, outcomeLine("found"), stepLine(4, 2, [2], 0.5), stepLine(4, 4), FINISHED));
  await settled(store);
  const wanted = [];
  const other = new Store(
    ({ message }) => message && wanted.push(message),
    () => {},
  );
  other.feed(store.valueAt(1));
  await settled(other);
  assert.deepEqual(wanted, [{ kind: "select", step: 1, node: null }]);
  assert.deepEqual([other.lines, other.summaries, other.live], [store.lines, store.summaries, false]);
});

test("lines after a gap wait until the missing lines are requested and arrive", async () => {
  const { store, asked } = storeOf();
  store.feed(segment("k", 0, HEADER));
  store.feed(segment("k", 2, stepLine(4, 1)));
  await settled(store);
  assert.equal(store.length, 0);
  assert.deepEqual(asked, [["k", 1]]);
  store.feed(segment("k", 1, stepLine(4, 3)));
  await settled(store);
  assert.deepEqual(
    store.summaries.map((s) => s.boundary),
    [3, 1],
  );
});

test("repeated lines count once, and another run replaces the first", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1)));
  store.feed(segment("k", 0, HEADER, stepLine(4, 1), stepLine(4, 2)));
  await settled(store);
  assert.equal(store.length, 2);
  store.feed(segment("l", 0, HEADER, stepLine(4, 4)));
  await settled(store);
  assert.deepEqual(
    store.summaries.map((s) => s.boundary),
    [4],
  );
});

test("a late segment of another run is requested from its start and does not clear the page", async () => {
  const { store, asked } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1)));
  store.feed(segment("l", 5, stepLine(4, 4)));
  await settled(store);
  assert.deepEqual(asked, [["l", 0]]);
  assert.equal(store.key, "k");
  assert.deepEqual(
    store.summaries.map((s) => s.boundary),
    [1],
  );
});

test("packed lines are unpacked, and invalid lines are skipped and reported", async () => {
  const line = stepLine(3, 1);
  const packed = "~" + deflateRawSync(Buffer.from(line)).toString("base64");
  assert.equal(await openLine(packed), line);
  const { store } = storeOf();
  for (const broken of ["~!", '{"event":', "null", '{"event":"StepDone"}']) {
    store.feed(segment(broken, 0, HEADER, packed, broken, stepLine(3, 2)));
    await settled(store);
    assert.deepEqual(
      store.summaries.map((s) => s.boundary),
      [1, 2],
    );
    assert.equal(store.failed, "A part of this run cannot be read.");
  }
});

test("a recording opens at its instructive step, or at the first without a head", async () => {
  const { store } = storeOf();
  const lines = [HEADER, stepLine(4, 1), stepLine(4, 2), FINISHED];
  store.feed(lines.join("\n"));
  await settled(store);
  assert.equal(store.recorded, true);
  const state = new State(store, () => {});
  state.advance();
  assert.deepEqual([state.shown, state.following], [0, false]);
  store.feed(
    [JSON.stringify({ event: "Segment", key: "k", from: 0, recorded: true, instructive: 1 }), ...lines].join("\n"),
  );
  state.reset();
  await settled(store);
  state.advance();
  assert.equal(state.shown, 1);
});

test("a live run is followed except while a step is pinned", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1), stepLine(4, 1)));
  await settled(store);
  const state = new State(store, () => {});
  state.advance();
  assert.deepEqual([state.shown, state.following], [1, true]);
  state.pin(7, 3);
  assert.deepEqual([state.now.pinned, state.now.node, state.following], [1, 3, false]);
  state.release();
  assert.deepEqual([state.now.pinned, state.now.node], [1, null]);
  state.release();
  assert.deepEqual([state.shown, state.following], [1, true]);
});

test("a selected node is shown in its own step, not in a previewed one", async () => {
  const { store } = storeOf();
  store.feed([HEADER, stepLine(4, 1), stepLine(4, 2), FINISHED].join("\n"));
  await settled(store);
  const state = new State(store, () => {});
  state.pin(0, 3);
  assert.equal(state.shownNode, 3);
  state.preview(1);
  assert.deepEqual([state.shown, state.now.node, state.shownNode], [1, 3, null]);
  state.preview(0);
  assert.equal(state.shownNode, 3);
  state.preview(null);
  assert.equal(state.shownNode, 3);
});

test("a followed run ends at its instructive step", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1, [1]), stepLine(4, 1), stepLine(4, 1)));
  await settled(store);
  const state = new State(store, () => {});
  state.advance();
  assert.equal(state.shown, 2);
  store.feed([JSON.stringify({ event: "Segment", key: "k", from: 4, instructive: 1 }), FINISHED].join("\n"));
  await settled(store);
  state.advance();
  assert.equal(state.shown, 1);
  state.pin(2);
  state.release();
  state.advance();
  assert.equal(state.shown, 2); // the step chosen last stays
});

test("times of a step include drawing only while the run is live", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1), stepLine(4, 3)));
  await settled(store);
  const verify = () => [store.step(0).seconds.verify.toFixed(4), store.step(0).drawing];
  assert.deepEqual(verify(), ["0.0100", true]);
  const speeds = { event: "Baseline", tokens_per_second: 300, unwatched: 600 }; // six tokens in 10 of 20 ms
  store.feed(segment("k", 3, FINISHED, JSON.stringify(speeds)));
  await settled(store);
  assert.deepEqual(verify(), ["0.0050", false]);
  assert.equal(store.secondsOf(1).verify.toFixed(4), "0.0050");
});

test("the last step names the reason for the end of the text once that is known", async () => {
  const { store } = storeOf();
  const line = JSON.stringify({ ...JSON.parse(stepLine(4, 2)), committed: [], actual_boundary: null });
  store.feed(segment("k", 0, HEADER, line));
  await settled(store);
  assert.match(stepSentence(store.step(0)), /; the text ends here\.$/);
  store.feed(segment("k", 2, FINISHED));
  await settled(store);
  assert.match(stepSentence(store.step(0)), /; the limit on tokens ends the text here\.$/);
});

test("a failure keeps the steps before it and ends the run", async () => {
  const { store } = storeOf();
  store.feed(
    segment("k", 0, HEADER, stepLine(4, 1), JSON.stringify({ event: "Failed", sentence: "<b>No memory.</b>" })),
  );
  await settled(store);
  assert.deepEqual([store.length, store.failed, store.live], [1, "<b>No memory.</b>", false]);
});

test("Resend requests missing lines again at intervals, until they arrive or another run is shown", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 10000;
  t.mock.method(performance, "now", () => now);
  const sent = [];
  const resend = new Resend((key, start) => sent.push([key, start]));
  const store = { key: "k", early: { size: 1 }, received: 3 };
  const pass = (ms) => {
    now += ms;
    t.mock.timers.tick(ms);
  };
  resend.request(store, "k", 2);
  resend.request(store, "k", 3);
  assert.deepEqual(sent, [["k", 2]]);
  pass(2000);
  assert.deepEqual(sent.at(-1), ["k", 3]);
  store.early.size = 0;
  const before = sent.length;
  pass(9000);
  assert.ok(sent.length <= before + 1); // a request that was already scheduled
  store.key = "l";
  pass(9000);
  assert.ok(sent.length <= before + 1);
});

test("foundBy finds steps by verdict, by length, and the one nearest to the mean", async () => {
  const { store } = storeOf();
  const outcomes = ["repaired", "found", "missed", "found", "repaired", "missed"];
  store.feed(
    segment("k", 0, HEADER, ...outcomes.flatMap((verdict, at) => [outcomeLine(verdict, 1), stepLine(4, at % 3, [2])])),
  );
  await settled(store);
  const found = (filter) => foundBy(filter, store.summaries);
  assert.deepEqual([found("any"), found("found"), found("undrafted"), found("sure")], [null, [1, 3], [], []]);
  assert.deepEqual(found("longest"), [0, 1, 2, 3, 4, 5]);
  const typical = (...totals) =>
    foundBy(
      "typical",
      totals.map((total) => ({ total })),
    );
  assert.deepEqual([typical(1, 9, 4, 2), typical(3, 5), typical()], [[2], [0], []]); // mean 4; the first of equally near ones
});
