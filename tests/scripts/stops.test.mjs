// The stops of Learn: what each says is what the step holds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { oddsOf, stopsOf, tokensWith, visitsOf } from "../../app/learn/stops.js";
import { stepOf } from "./fixtures.mjs";

const RUN = { steps: 8, alpha: 3.5, plain: 100 };
const MANNER = { names: { first: "first drafter" }, lacks: "", sampled: false, random: false };
const node = (id, parent, text, candidates, state, p = 0.25) => ({
  id,
  parent,
  text,
  token: text,
  candidates,
  state,
  proposer: candidates.includes(0) ? "first" : "second",
  target_probability: p,
});

/** Four drafted tokens, two of them right; the first re-draft, from two, goes on rightly for one token. */
const raw = (changes = {}) => ({
  anchor_text: " So",
  anchor_position: 7,
  first_draft: { drafter: "first", prefix: 0, texts: ["a", "b\n", "x", "y"], confidence: [0.9, 0.8, 0.004, 0.2] },
  boundary_posterior: [0.1, 0.18, 0.717, 0.002],
  full_acceptance: 0.001,
  branches: [
    { drafter: "second", prefix: 2, texts: ["c", "z"], confidence: [1, 1] },
    { drafter: "second", prefix: 0, texts: ["a", "q"], confidence: [1, 1] },
  ],
  selected_prefixes: [2, 0],
  actual_boundary: 2,
  nodes: [
    node(0, -1, " So", [], "root"),
    node(1, 0, "a", [0, 2], "accepted"),
    node(2, 1, "b\n", [0], "accepted"),
    node(3, 2, "x", [0], "rejected"),
    node(4, 3, "y", [0], "unreached"),
    node(5, 2, "c", [1], "accepted", 0.5),
  ],
  accepted: [1, 2, 5],
  committed: [
    { text: "a", node: 1, proposer: "first" },
    { text: "b\n", node: 2, proposer: "first" },
    { text: "c", node: 5, proposer: "second" },
    { text: "d", node: null, proposer: "target" },
  ],
  choices: [
    { node: 0, token: "a", text: "a", probability: 0.9 },
    { node: 1, token: "b\n", text: "b\n", probability: 0.9 },
    { node: 2, token: "c", text: "c", probability: 0.5 },
    { node: 5, token: "d", text: "d", probability: 0.6 },
  ],
  seconds: { first_draft: 0.004, second_draft: 0.0052, verify: 0.02 },
  ...changes,
});
const step = (changes, manner = {}, verdict = { verdict: "repaired", gained: 1, closed: null }) =>
  stepOf(raw(changes), { ...MANNER, ...manner }, verdict);
const stops = (of = step()) => Object.fromEntries(stopsOf(of, RUN).map((stop) => [stop.id, stop]));
const numbers = (stop) => Object.fromEntries(stop.numbers);
const equation = (stop) => stop.equation.map((piece) => (Array.isArray(piece) ? piece[1] : piece)).join("");

test("nine stops follow the order of a step, and each says something", () => {
  const all = stopsOf(step(), RUN);
  assert.deepEqual(
    all.map(({ id }) => id),
    ["anchor", "draft", "confidence", "boundary", "branches", "verify", "commit", "cost", "temperature"],
  );
  assert.ok(all.every(({ title, say, equation: pieces }) => title && say.every(Boolean) && pieces.length));
  assert.doesNotMatch(JSON.stringify(all), /undefined|NaN/);
});

test("draft and confidence stops show the tokens of the step with visible whitespace", () => {
  const { anchor, draft, confidence } = stops();
  assert.deepEqual(numbers(anchor), { anchor: "“␣So”", "tokens before it": 7 });
  assert.deepEqual(numbers(draft), { guessed: "“a” “b↵” “x” “y”", places: 4, time: "4.0 ms" });
  assert.match(equation(draft), /γ = 5$/);
  assert.deepEqual(numbers(confidence), {
    "c(1) of “a”": "0.90",
    "c(2) of “b↵”": "0.80",
    "c(3) of “x”": "<0.01",
    "c(4) of “y”": "0.20",
    "least sure": "<0.01 at place 3",
  });
});

test("the boundary stop computes the posterior at the true boundary", () => {
  const { boundary } = stops();
  assert.deepEqual(numbers(boundary), {
    "r(2) = 0.90 · 0.80 · (1 − <0.01)": "0.72",
    "flag 1: break after 2": "0.72",
    "flag 2: break after 0": "0.10",
  });
  const ended = stops(step({ selected_prefixes: [0, 4], actual_boundary: 4 })).boundary;
  assert.deepEqual(numbers(ended), {
    "r(2) = 0.90 · 0.80 · (1 − <0.01)": "0.72",
    "flag 1: break after 0": "0.10",
    "flag 2: all 4 accepted": "<0.01",
  });
  const closed = stops(step({}, {}, { verdict: "found", gained: 0, closed: 3 })).boundary;
  assert.match(closed.say.at(-1), /get no flag/);
});

test("branches, verify and commit stops count re-drafts, nodes and tokens", () => {
  const { branches, verify, commit } = stops();
  assert.deepEqual(numbers(branches), {
    "K, re-drafts": 2,
    "kept tokens": "2, 0",
    "wrote the first draft’s tokens again": "from 0: the same up to 1",
    time: "5.2 ms",
    "3 drafts, merged into a tree": "10 tokens → 6 nodes with the anchor",
  });
  assert.deepEqual(numbers(verify), {
    "nodes in one pass, the anchor too": 6,
    time: "20.0 ms",
    "right in the first draft": 2,
    "its next guess": "“x”",
    "the target wanted": "“c”",
    "was the break expected": "yes: flag 1",
    "was it repaired": "yes",
    "added by re-drafts": 1,
  });
  assert.equal(equation(commit), "new tokens = accepted + 1 = 2 + 1 + 1 = 4");
  assert.deepEqual(numbers(commit), {
    "written in this step": "“a” “b↵” “c” “d”",
    "bonus token": "“d”",
    "tokens in this step": 4,
    "tokens per step, all 8 steps (α)": "3.50",
  });
  const missed = stops(step({ selected_prefixes: [1] }, {}, { verdict: "missed", gained: 0, closed: null })).verify;
  assert.equal(numbers(missed)["was the break expected"], "no: there was no flag");
});

test("stops of missing parts have one sentence and no numbers", () => {
  const bare = stops(
    step(
      {
        first_draft: null,
        branches: [],
        boundary_posterior: [],
        selected_prefixes: [],
        actual_boundary: null,
        nodes: raw().nodes.slice(0, 1),
        accepted: [],
        committed: [raw().committed[3]],
      },
      {},
      undefined,
    ),
  );
  for (const id of ["draft", "confidence", "boundary", "branches"])
    assert.deepEqual([bare[id].say.length, bare[id].numbers], [1, []]);
  assert.equal(bare.cost.title, "What a pass costs");
  const unsure = stops(step({ first_draft: { ...raw().first_draft, confidence: [] } }));
  assert.deepEqual(unsure.confidence.say, ["No confidence was recorded in this step."]);
  assert.deepEqual(unsure.boundary.numbers, []);
});

test("visitsOf follows the choices of the target to the first token without a node", () => {
  assert.deepEqual(
    visitsOf(step()).map(({ node: at, text, child }) => [at, text, child]),
    [
      [0, "a", 1],
      [1, "b\n", 2],
      [2, "c", 5],
      [5, "d", null],
    ],
  );
});

test("oddsOf gives the probabilities of the target at the boundary", () => {
  assert.deepEqual(oddsOf(step()), [
    { text: "c", probability: 0.5, drafted: true },
    { text: "x", probability: 0.25, drafted: true },
  ]);
  assert.equal(numbers(stops().temperature)["one of the drafted tokens comes up"], "0.75");
  const other = raw().choices.map((choice, at) => (at === 2 ? { ...choice, token: "w", text: "w" } : choice));
  assert.deepEqual(
    oddsOf(step({ choices: other })).map(({ text, drafted }) => [text, drafted]),
    [
      ["c", true],
      ["w", false],
      ["x", true],
    ],
  );
  assert.deepEqual(oddsOf(step({ choices: other.map((choice) => ({ ...choice, probability: null })) })), []);
});

test("tokensWith grows with K up to the tokens of the step", () => {
  assert.deepEqual(
    [0, 1, 2].map((k) => tokensWith(step(), k)),
    [3, 4, 4],
  );
});

test("stops of a sampled step speak of draws", () => {
  const { verify, commit, temperature } = stops(step({}, { sampled: true }));
  assert.match(equation(verify), /a sample of/);
  assert.match(commit.say[1], /drawn exactly as the target alone would draw it/);
  assert.match(temperature.say[0], /^At temperature 0/);
});

test("the cost stop compares a pass with reading the weights", () => {
  const { cost } = stops();
  assert.equal(cost.title, "Why a pass over 6 tokens may cost as much as one");
  assert.deepEqual(cost.numbers, [["this pass over 6 tokens, where it was recorded", "20.0 ms, a plain step 10.0 ms"]]);
  assert.deepEqual(cost.verified, { nodes: 6, seconds: 0.02, plain: 0.01 });
});
