// The chapters of Learn: their texts agree with the step.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chaptersOf } from "../../app/learn/chapters.js";
import { tokensWith } from "../../assets/viewer/replays.js";
import { ALONE, stagesOf } from "../../assets/viewer/stages.js";
import { stepOf } from "./fixtures.mjs";

/** The fields of a store for a run of eight steps: 10 ms per token by plain decoding, twice as fast with drafts. */
const store = (changes = {}) => ({
  baseline: 100,
  unwatched: 200,
  disturbed: false,
  length: 8,
  summaries: Array.from({ length: 8 }, () => ({ elapsed: 0.14 })),
  sums: { tokens: 28, steps: 8, seconds: { first_draft: 0.02, second_draft: 0.02, tree: 0, verify: 0.1, commit: 0 } },
  header: { method: "d2sd", config: {} },
  ...changes,
});

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

/** Four drafted tokens, two of them right; the first re-draft keeps two tokens and adds one right token. */
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
const chapters = (of = step(), run = store()) =>
  Object.fromEntries(chaptersOf(of, run, 1.4).map((chapter) => [chapter.name, chapter]));
const words = ({ say }) => say.join(" ");
const numbers = (chapter) => Object.fromEntries(chapter.numbers);
const equation = ({ formula }) => formula.map((piece) => (Array.isArray(piece) ? piece[1] : piece)).join("");
const PLAIN = {
  first_draft: null,
  branches: [],
  boundary_posterior: [],
  selected_prefixes: [],
  actual_boundary: null,
  nodes: raw().nodes.slice(0, 1),
  accepted: [],
  committed: [raw().committed[3]],
};
const ALONE_DRAFT = {
  branches: [],
  selected_prefixes: [],
  nodes: raw().nodes.slice(0, 5),
  accepted: [1, 2],
  committed: raw()
    .committed.slice(0, 3)
    .map((c, at) => (at < 2 ? c : { ...c, node: null, proposer: "target" })),
};

test("chapters play the stages of a step in their order", () => {
  const told = chaptersOf(step(), store(), 1.4);
  assert.deepEqual(
    told.map(({ name }) => name),
    ["One by one", "Guess ahead", "Doubt", "Prepare", "Merge", "One pass", "What it buys", "When it pays"],
  );
  assert.ok(told.every(({ title, say }) => title && say.length >= 3 && say.every(Boolean)));
  assert.ok(told.flatMap(({ asked }) => asked).every(([question, answer]) => question.endsWith("?") && answer));
  assert.equal(told[0].from, ALONE);
  assert.deepEqual(
    told.slice(1).map(({ from, to }) => [from, to]),
    [
      [0, 1],
      [1, 2],
      [2, 3],
      [3, 4],
      [4, 6],
      [6, 6],
      [6, 6],
    ],
  );
  assert.doesNotMatch(JSON.stringify(told), /undefined|NaN|null|␣/);
});

test("chapters contain the numbers of the step and its run", () => {
  const told = chapters();
  assert.match(
    words(told["One by one"]),
    /After “So” it writes these four tokens in four passes, .* took 10\.0 ms, so four passes take 40\.0 ms/,
  );
  assert.match(words(told["Guess ahead"]), /guesses four tokens at once \(4\.00 ms\)/);
  assert.deepEqual(numbers(told["Guess ahead"]), { guessed: "“a” “b↵” “x” “y”" });
  assert.match(equation(told["Guess ahead"]), /γ = 5$/);
  assert.match(
    words(told.Doubt),
    /all tokens before the place are accepted and the next token is rejected\. Expected: 72% after the second token, 10% before the first\. .* the two likeliest places\./,
  );
  assert.match(words(told.Prepare), /^A second drafter starts from two places at once \(5\.20 ms\)\./);
  assert.deepEqual(numbers(told.Prepare), {
    "K, re-drafts": 2,
    "each starts after token": "2, 0",
    "repeat the first draft": "after 0: same up to token 1",
  });
  assert.match(words(told.Merge), /^The three drafts .* “So” and 10 tokens become a tree of 6 nodes\./);
  assert.match(
    words(told["One pass"]),
    /reads all 6 tokens in one pass \(20\.0 ms\)\. .* The first draft broke after the second token, the likeliest place\. That makes four tokens: 2 from the first draft, 1 from a second draft/,
  );
  assert.deepEqual(numbers(told["One pass"]), { "first draft + other drafts + bonus": "2 + 1 + 1 = 4" });
  assert.equal(told["What it buys"].title, "Four tokens in one pass");
  assert.match(
    words(told["What it buys"]),
    /writes 3\.5 tokens and takes as long as 1\.8 one-token passes: 2\.0 times as fast as one by one/,
  );
  assert.match(
    words(told["When it pays"]),
    /On a large GPU .*: 6 tokens cost 1\.1 one-token passes\. .*: in this step, 6 tokens cost 2\.0 one-token passes\. A step pays if/,
  );
});

test("the formula computes the posterior at the true boundary", () => {
  assert.deepEqual(numbers(chapters().Doubt), {
    "r(2) = 0.90 · 0.80 · (1 − <0.01)": "0.72",
    "triangle 1: breaks after 2": "0.72",
    "triangle 2: breaks after 0": "0.10",
  });
  const ended = chapters(step({ selected_prefixes: [0, 4], actual_boundary: 4 })).Doubt;
  assert.equal(numbers(ended)["triangle 2: all accepted"], "<0.01");
  const closed = chapters(step({}, {}, { verdict: "found", gained: 0, closed: 3 })).Doubt;
  assert.match(closed.asked.at(-1)[1], /no second draft starts there/);
  const random = chapters(step({}, { random: true })).Doubt;
  assert.deepEqual([random.formula, random.numbers], [[], []]);
  assert.match(words(random), /does not use the drafter’s confidence\. It draws places at random/);
});

test("methods with fewer parts have fewer chapters, which play to the end", () => {
  const names = (of) => chaptersOf(of, store(), null).map(({ name }) => name);
  assert.deepEqual(names(step(ALONE_DRAFT)), ["One by one", "Guess ahead", "One pass", "What it buys", "When it pays"]);
  assert.deepEqual(names(step(PLAIN)), ["One by one", "One pass", "What it buys", "When it pays"]);
  for (const of of [step(ALONE_DRAFT), step(PLAIN)])
    assert.equal(chaptersOf(of, store(), null).at(-1).to, stagesOf(of).length);
  const resampled = raw().branches.map((branch) => ({ ...branch, drafter: "first", prefix: 0 }));
  assert.match(
    words(chapters(step({ branches: resampled, selected_prefixes: [] })).Prepare),
    /drawn from the same draft pass/,
  );
});

test("chapters leave out times that were not measured", () => {
  const untimed = chapters(step({ seconds: {} }), store({ baseline: null, unwatched: null }));
  assert.doesNotMatch(Object.values(untimed).map(words).join(" "), / ms|undefined|NaN|null/);
  assert.match(words(untimed["What it buys"]), /For this run, .* was not measured/);
  assert.doesNotMatch(words(chapters(step(), store({ disturbed: true }))["What it buys"]), /times as fast/);
});

test("a sampled step speaks of draws", () => {
  const told = chapters(step({}, { sampled: true }));
  assert.match(equation(told["One pass"]), /a sample of/);
  assert.match(words(told["What it buys"]), /only tokens that the large model itself draws are accepted/);
});

test("fewer re-drafts leave more of a node budget to the first draft", () => {
  const of = (id, parent, token, candidates, p, state) => ({
    ...node(id, parent, token, candidates, state),
    drafter_probability: p,
  });
  const cut = stepOf({
    nodes: [
      of(0, -1, "anchor", [0, 1], null, "root"),
      of(1, 0, "a", [0, 1], 0.9, "accepted"),
      of(2, 1, "x", [1], 0.9, "rejected"),
    ],
    first_draft: { drafter: "first", prefix: 0, texts: ["a", "b", "c"], confidence: [0.9, 0.5, 0.5] },
    branches: [{ drafter: "second", prefix: 1, texts: ["x", "y"], confidence: [0.9, 0.1] }],
    accepted: [1],
    committed: [
      { text: "a", token: "a", proposer: "first", node: 1 },
      { text: "b", token: "b", proposer: "target", node: null },
    ],
  });
  const later = [{ text: "d", token: "d", proposer: "target", node: null }];
  const run = { header: { config: { node_budget: 2 } }, committed: [cut.committed, later] };
  assert.deepEqual(
    [0, 1].map((k) => tokensWith(cut, k, run)),
    [3, 2], // without the re-draft, b is read too
  );
  assert.equal(tokensWith(cut, 0, { ...run, committed: [cut.committed] }), 2); // the text ends after b
});

test("tokensWith grows with K up to the tokens of the step", () => {
  assert.deepEqual(
    [0, 1, 2].map((k) => tokensWith(step(), k)),
    [3, 4, 4],
  );
});
