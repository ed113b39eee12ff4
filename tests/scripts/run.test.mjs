// Steps, and the store that reads a run line by line.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { boundaryWords, nodeSentence, stepSentence } from "../../assets/viewer/explain.js";
import { runWords } from "../../assets/viewer/tree_shapes.js";
import { Selection } from "../../assets/viewer/selection.js";
import { readStep } from "../../assets/viewer/step.js";
import { judged, openLine, Store } from "../../assets/viewer/store.js";
import { plain } from "../../assets/viewer/words.js";

const RUN = { names: { first: "first drafter", second: "second drafter", target: "target" }, sampled: false, random: false };

/** A step whose first draft of `drafted` tokens was accepted up to `boundary`; `selected`: predicted prefixes. */
function stepLine(drafted, boundary, selected = [], elapsed = 0) {
  const trunk = Array.from({ length: drafted + 1 }, (_, id) => ({
    id, parent: id - 1, depth: id, token: id, text: `t${id}`, candidates: [0], proposer: "first", drafter_probability: 0.5, target_probability: 0.5, target_rank: 0,
    state: id === 0 ? "root" : id <= boundary ? "accepted" : id === boundary + 1 ? "rejected" : "unreached",
  }));
  return JSON.stringify({
    event: "StepDone", elapsed, nodes: trunk, accepted: trunk.slice(1, boundary + 1).map((n) => n.id), branches: [], choices: [{ node: boundary, token: 99, text: "right", probability: 0.7 }],
    committed: [...trunk.slice(1, boundary + 1).map((n) => ({ text: n.text, proposer: "first", node: n.id })), { text: "right", proposer: "target", node: null }],
    first_draft: { drafter: "first", prefix: 0, texts: trunk.slice(1).map((n) => n.text), confidence: Array(drafted).fill(0.5), alternatives: [] },
    selected_prefixes: selected, actual_boundary: boundary, boundary_posterior: [], full_acceptance: 0, seconds: { verify: 0.01 },
  });
}

/** The line before a step: what the server says came of it. */
const outcomeLine = (verdict, gained = 0, closed = null, work = [5, [], 5]) => JSON.stringify({ event: "Outcome", verdict, gained, closed, work });

const HEADER = JSON.stringify({ event: "Header", run: "r", method: "d2sd", prompt: "Once" });
const FINISHED = JSON.stringify({ event: "Finished", stop_reason: "max_new_tokens" });
const segment = (key, from, ...lines) => [JSON.stringify({ event: "Segment", key, from }), ...lines].join("\n") + "\n";

function storeOf() {
  const asked = [];
  const store = new Store(() => {}, (key, start) => asked.push([key, start]));
  return { store, asked };
}

async function settled(store) {
  for (let tries = 0; tries < 200 && (store.reading || store.waiting.length); tries += 1) await new Promise((go) => setTimeout(go, 1));
}

test("a run is read as it arrives, and its totals add up", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, outcomeLine("found"), stepLine(4, 2, [2], 0.5)));
  await settled(store);
  assert.equal(store.live, true);
  store.feed(segment("k", 3, outcomeLine("all"), stepLine(4, 4, [1], 1), outcomeLine("missed"), stepLine(4, 0, [3], 1.5), FINISHED));
  await settled(store);
  assert.equal(store.live, false);
  assert.deepEqual(store.summaries.map((s) => s.verdict), ["found", "all", "missed"]);
  assert.deepEqual({ tokens: store.sums.tokens, ...store.sums.outcomes, judged: judged(store.sums), most: store.most }, { tokens: 3 + 5 + 1, repaired: 0, found: 1, missed: 1, all: 1, judged: 2, most: 5 });
  assert.equal(store.prompt, "Once");
  assert.equal(store.step(2).ending, "max_new_tokens");
  assert.equal(store.step(3), null);
  assert.deepEqual(store.lines, [HEADER, stepLine(4, 2, [2], 0.5), stepLine(4, 4, [1], 1), stepLine(4, 0, [3], 1.5), FINISHED]); // an outcome is no part of the trace
});

test("a step's outcome is the one before it, bounded; without one there is none", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, outcomeLine("repaired", 2, 3), stepLine(4, 2), stepLine(4, 2), outcomeLine("toString", -1, {}, 7), stepLine(4, 2)));
  await settled(store);
  const told = ({ verdict, gained, closed }) => [verdict, gained, closed];
  const expected = [["repaired", 2, 3], ["none", 0, null], ["none", 0, null]];
  assert.deepEqual(store.summaries.map(told), expected);
  assert.deepEqual(store.summaries.map(({ work }) => work), [{ first: 5, again: [], nodes: 5 }, null, null]);
  assert.deepEqual([0, 1, 2].map((at) => told(store.step(at))), expected);
});

test("lines after a gap wait until those before them are there, and are asked for", async () => {
  const { store, asked } = storeOf();
  store.feed(segment("k", 0, HEADER));
  store.feed(segment("k", 2, stepLine(4, 1)));
  await settled(store);
  assert.equal(store.length, 0);
  assert.deepEqual(asked, [["k", 1]]);
  store.feed(segment("k", 1, stepLine(4, 3)));
  await settled(store);
  assert.deepEqual(store.summaries.map((s) => s.boundary), [3, 1]);
});

test("lines that come twice count once, and another run begins anew", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1)));
  store.feed(segment("k", 0, HEADER, stepLine(4, 1), stepLine(4, 2)));
  await settled(store);
  assert.equal(store.length, 2);
  store.feed(segment("l", 0, HEADER, stepLine(4, 4)));
  await settled(store);
  assert.deepEqual(store.summaries.map((s) => s.boundary), [4]);
});

test("a late part of another run does not clear the page: the server is asked which of the two is shown", async () => {
  const { store, asked } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1)));
  store.feed(segment("l", 5, stepLine(4, 4)));
  await settled(store);
  assert.deepEqual(asked, [["l", 0]]);
  assert.equal(store.key, "k");
  assert.deepEqual(store.summaries.map((s) => s.boundary), [1]);
});

test("a packed line is the line; a broken one is dropped and nothing after it", async () => {
  const line = stepLine(3, 1);
  const packed = "~" + deflateRawSync(Buffer.from(line)).toString("base64");
  assert.equal(await openLine(packed), line);
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, packed, "~!", '{"event":', stepLine(3, 2)));
  await settled(store);
  assert.deepEqual(store.summaries.map((s) => s.boundary), [1, 2]);
});

test("a recording rests on its instructive step once that is read; without a head on its first", async () => {
  const { store } = storeOf();
  const lines = [HEADER, stepLine(4, 1), stepLine(4, 2), FINISHED];
  store.feed(lines.join("\n"));
  await settled(store);
  assert.equal(store.recorded, true);
  const selection = new Selection(store, () => {});
  selection.advance();
  assert.deepEqual([selection.shown, selection.following], [0, false]);
  store.feed([JSON.stringify({ event: "Segment", key: "k", from: 0, recorded: true, instructive: 1 }), ...lines].join("\n"));
  selection.reset();
  await settled(store);
  selection.advance();
  assert.equal(selection.shown, 1);
});

test("a live run is followed until a step is pinned, and again after it is released", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1), stepLine(4, 1)));
  await settled(store);
  const selection = new Selection(store, () => {});
  selection.advance();
  assert.deepEqual([selection.shown, selection.following], [1, true]);
  selection.pin(7, 3);
  assert.deepEqual([selection.pinned, selection.node, selection.following], [1, 3, false]);
  selection.release();
  assert.deepEqual([selection.pinned, selection.node], [1, null]);
  selection.release();
  assert.deepEqual([selection.shown, selection.following], [1, true]);
});

test("a node is shown in the step that it was picked in, not in one that is only looked at", async () => {
  const { store } = storeOf();
  store.feed([HEADER, stepLine(4, 1), stepLine(4, 2), FINISHED].join("\n"));
  await settled(store);
  const selection = new Selection(store, () => {});
  selection.pin(0, 3);
  assert.equal(selection.shownNode, 3);
  selection.preview(1);
  assert.deepEqual([selection.shown, selection.node, selection.shownNode], [1, 3, null]);
  selection.preview(0);
  assert.equal(selection.shownNode, 3);
  selection.preview(null);
  assert.equal(selection.shownNode, 3);
});

test("a step says in words what its tree shows", () => {
  const step = readStep(JSON.parse(stepLine(4, 2)), 0, RUN);
  assert.equal(plain(stepSentence(step)), "First drafter got 2 right; then the target wrote “right”.");
  assert.deepEqual([step.columns, step.bonus.depth, step.drafted], [6, 3, 4]);
  const drawn = readStep(JSON.parse(stepLine(4, 2)), 0, { ...RUN, sampled: true });
  assert.equal(plain(stepSentence(drawn)), "2 of the first draft were drawn; then the target drew “right”.");
});

test("lower-ranked choices in a row are named once", () => {
  const raw = JSON.parse(stepLine(4, 3));
  for (const node of raw.nodes.slice(1)) node.candidates = [];
  raw.actual_boundary = 0;
  assert.equal(plain(stepSentence(readStep(raw, 0, RUN))), "First drafter’s first token was wrong; lower-ranked choices added 3; then the target wrote “right”.");
});

test("a first token that a node budget left out is not called wrong", () => {
  const raw = JSON.parse(stepLine(4, 0));
  const nodes = raw.nodes.slice(0, 1);
  const said = (more) => plain(stepSentence(readStep({ ...raw, ...more }, 0, RUN)));
  assert.match(said({}), /^First drafter’s first token was wrong/);
  assert.match(said({ nodes, actual_boundary: null }), /^The tree left out the first drafter’s first token; then the target wrote/);
});

test("a cost-aware step says what it weighed; a decision that makes no sense is left out", () => {
  const option = (block_size, branches, tokens, seconds) => ({ block_size, branches, tokens, seconds });
  const said = (decision) => plain(stepSentence(readStep({ ...JSON.parse(stepLine(4, 2)), decision }, 0, RUN)));
  const options = [option(0, 0, 1, 0.01), option(5, 0, 3, 0.02), option(5, 2, 3.5, 0.03)];
  assert.match(said({ options, taken: 2, tokens: 3.5, seconds: 0.03, looking: false }), /Re-drafts: \+0\.5 tokens expected for 10\.0 ms\.$/);
  assert.match(said({ options, taken: 1, tokens: 3, seconds: 0.02, looking: false }), /Re-draft skipped: \+0\.5 tokens expected/);
  assert.match(said({ options: options.slice(2), taken: 0, looking: true }), /“right”\. It was tried/);
  assert.match(said({ options, taken: 9 }), /“right”\.$/);
});

test("numbers and references of a hostile step are bounded", () => {
  const step = readStep(
    { nodes: [{ id: 0, parent: -1 }, { id: 1, parent: 5 }, { id: 2, parent: 0, drafter_probability: 1e9, text: { a: 1 }, state: "x" }, null], accepted: [2, 77], committed: "no", first_draft: 3, selected_prefixes: [1e12] },
    0,
    RUN,
  );
  assert.deepEqual([...step.nodes.keys()], [0, 2]);
  assert.deepEqual([step.nodes.get(2).drafterP, step.nodes.get(2).state, typeof step.nodes.get(2).text], [1, "unreached", "string"]);
  assert.deepEqual([step.accepted, step.committed, step.draft], [[2], [], null]);
  assert.ok(step.selected[0] <= 512);
});

test("a draft without probabilities is as long as its tokens", () => {
  const told = JSON.parse(stepLine(4, 4, []));
  const untold = { ...told, first_draft: { ...told.first_draft, confidence: [] } };
  const [step, bare] = [told, untold].map((raw) => readStep(raw, 0, RUN));
  assert.deepEqual([bare.drafted, bare.columns], [4, step.columns]);
  assert.deepEqual(bare.draft.confidence, []);
  assert.equal(plain(stepSentence(bare)), plain(stepSentence(step)));
});

test("a re-draft that began like the first draft leaves it later than where it was drafted from, and that is said", () => {
  const raw = JSON.parse(stepLine(4, 2, [1, 3]));
  raw.branches = [{ drafter: "second", prefix: 1, base: 0, texts: ["t2", "u3", "u4"], confidence: [0.5, 0.5, 0.5] }];
  for (const node of raw.nodes.slice(0, 3)) node.candidates = [0, 1];
  raw.nodes.push({ id: 5, parent: 2, depth: 3, token: 98, text: "u3", candidates: [1], proposer: "second", state: "rejected" });
  const missed = { verdict: "missed", gained: 0, closed: null };
  const words = boundaryWords(readStep(raw, 0, RUN, missed));
  assert.match(words.short, /none re-drafted from 2$/);
  assert.match(words.long, /no re-draft started from there\. The re-draft from 1 leaves the first draft here as well/);
  assert.doesNotMatch(boundaryWords(readStep(JSON.parse(stepLine(4, 2, [1, 3])), 0, RUN, missed)).long, /leaves/);
});

test("a node behind the end of the text was not rejected", () => {
  const raw = JSON.parse(stepLine(4, 2));
  raw.nodes[3].state = "unreached";
  const said = (ending) => nodeSentence({ ...readStep(raw, 0, RUN), ending }, readStep(raw, 0, RUN).nodes.get(4));
  assert.equal(said("end_of_text"), "Not reached: the text ends before it.");
  assert.match(said("max_new_tokens"), /limit on tokens ends the text/);
  const step = readStep(JSON.parse(stepLine(4, 2)), 0, RUN);
  assert.match(nodeSentence(step, step.nodes.get(4)), /an earlier token on this path was rejected/);
});

test("a run that was followed to its end comes to rest on a step that shows something", async () => {
  const { store } = storeOf();
  store.feed(segment("k", 0, HEADER, stepLine(4, 1, [1]), stepLine(4, 1), stepLine(4, 1)));
  await settled(store);
  const selection = new Selection(store, () => {});
  selection.advance();
  assert.equal(selection.shown, 2);
  store.feed([JSON.stringify({ event: "Segment", key: "k", from: 4, instructive: 1 }), FINISHED].join("\n"));
  await settled(store);
  selection.advance();
  assert.equal(selection.shown, 1);
  selection.pin(2);
  selection.release();
  selection.advance();
  assert.equal(selection.shown, 2); // what one looked at last stays
});

test("a caption names method and model, and a drafter that is not the model's own", () => {
  const of = (header, draft = true) => runWords({ header, recorded: true, seen: { draft }, length: 1 });
  const models = { preset: "tiny", first_drafter: "tiny/dflash" };
  assert.equal(of({ method: "d2sd", models, config: { num_branches: 4 } }), "recorded: D²SD on tiny · K 4");
  assert.equal(of({ method: "dflash", models: { ...models, first_drafter: "run/step-200" } }), "recorded: DFlash on tiny · drafter run/step-200");
  assert.equal(of({ method: "autoregressive", models: { ...models, first_drafter: "run/step-200" } }, false), "recorded: Plain decoding on tiny");
  assert.equal(of({ models: [1] }), "recorded: run");
});
