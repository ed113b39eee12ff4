// The story of a step: what its frames say, and which cells its drawing has.
import assert from "node:assert/strict";
import { test } from "node:test";
import { framesOf, placesOf, rowsOf, winnerOf } from "../../app/learn/story.js";
import { stepOf } from "./fixtures.mjs";

const RUN = { names: {}, lacks: "", sampled: false, random: false };
const node = (id, parent, text, candidates, state) => ({
  id,
  parent,
  text,
  token: id,
  candidates,
  state,
  proposer: candidates[0] ? "second" : "first",
});

/** Four drafted tokens, two of them right; a re-draft after two goes on rightly for one token, one after none is never right. */
const raw = (changes = {}) => ({
  anchor_text: "<b>So",
  first_draft: { drafter: "first", prefix: 0, texts: ["a", "b", "x", "y"], confidence: [0.9, 0.9, 0.2, 0.2] },
  branches: [
    { drafter: "second", prefix: 2, texts: ["c", "z"], confidence: [1, 1] },
    { drafter: "second", prefix: 0, texts: ["q", "r"], confidence: [1, 1] },
  ],
  selected_prefixes: [2, 0],
  actual_boundary: 2,
  nodes: [
    node(0, -1, "<b>So", [], "root"),
    node(1, 0, "a", [0, 1], "accepted"),
    node(2, 1, "b", [0, 1], "accepted"),
    node(3, 2, "x", [0], "rejected"),
    node(4, 3, "y", [0], "unreached"),
    node(5, 2, "c", [1], "accepted"),
    node(6, 5, "z", [1], "rejected"),
    node(7, 0, "q", [2], "unreached"),
  ],
  accepted: [1, 2, 5],
  committed: [
    { text: "a", node: 1, proposer: "first" },
    { text: "b", node: 2, proposer: "first" },
    { text: "c", node: 5, proposer: "second" },
    { text: "d", node: null, proposer: "target" },
  ],
  choices: [{ node: 5, token: 9, text: "d", probability: 0.5 }],
  seconds: { first_draft: 0.004, second_draft: 0.005, verify: 0.02 },
  ...changes,
});
const step = (changes, gained = 1) => stepOf(raw(changes), RUN, { verdict: "repaired", gained, closed: null });
const MEASURED = { steps: 3, plain: 100, alpha: 4, cycle: { cost: 2, brought: 4, gain: 2, parts: [] } };
const said = (frames, id) => frames.find((frame) => frame.id === id).say.join(" ");

test("six frames tell a step with the numbers of its run", () => {
  const frames = framesOf(step(), MEASURED);
  assert.deepEqual(
    frames.map(({ id }) => id),
    ["plain", "draft", "rejection", "redraft", "tree", "cost"],
  );
  assert.match(
    said(frames, "plain"),
    /These 4 tokens after “<b>So” take 4 passes.*a token in 10\.0 ms: 40\.0 ms for them all/,
  );
  assert.match(
    said(frames, "draft"),
    /guesses 4 tokens at once. It took 4\.00 ms; one pass of plain decoding takes 10\.0 ms/,
  );
  assert.equal(frames[2].title, "The target rejects the third token");
  assert.match(
    said(frames, "rejection"),
    /wrote “x”, the target wants “c”: 2 tokens accepted, and the 2 tokens from there on are lost\. .* would bring 3 tokens/,
  );
  assert.match(
    said(frames, "redraft"),
    /after 2 and 0 of its tokens: 2 re-drafts in one batch, in 5\.00 ms\. One of them starts just where the draft is rejected\. The re-drafts add 1 token that/,
  );
  assert.match(
    said(frames, "tree"),
    /their 10 tokens are a tree of 8 nodes.* accepts 3 tokens along one path, which ends in the re-draft from 2\. Its own next token, “d”, comes for free: 4 tokens/,
  );
  assert.equal(frames[5].title, "4.0 tokens for the price of 2.0");
});

test("frames leave out unmeasured times and missing re-drafts", () => {
  const frames = framesOf(
    step(
      {
        branches: [],
        selected_prefixes: [],
        seconds: {},
        nodes: raw()
          .nodes.slice(0, 5)
          .map((n) => ({ ...n, candidates: n.id ? [0] : [] })),
        accepted: [1, 2],
        actual_boundary: 2,
      },
      0,
    ),
    { steps: 3, plain: null, alpha: 3, cycle: null },
  );
  assert.deepEqual(
    frames.map(({ id }) => id),
    ["plain", "draft", "rejection", "tree", "cost"],
  );
  assert.doesNotMatch(frames.map(({ say }) => say.join(" ")).join(" "), / ms|null|undefined|NaN/);
  assert.match(said(frames, "cost"), /was not timed/);
  assert.match(
    said(framesOf(step({ selected_prefixes: [1, 0] }, 0), MEASURED), "redraft"),
    /this step is lost to the rejection/,
  );
  assert.equal(framesOf(step({ actual_boundary: 4 }), MEASURED)[2].title, "The target accepts the whole draft");
});

test("steps without a draft, a boundary or its nodes have no frames", () => {
  for (const changes of [
    { first_draft: null },
    { actual_boundary: null },
    { nodes: raw().nodes.slice(0, 1), accepted: [] },
    { branches: [] },
  ])
    assert.deepEqual(framesOf(step(changes), MEASURED), []);
  assert.deepEqual(framesOf(null, MEASURED), []);
});

test("rowsOf gives each draft a row, marks copies, and keeps the accepted row", () => {
  assert.equal(winnerOf(step()), 1);
  assert.equal(placesOf(step(), 10), 4);
  const rows = rowsOf(step(), 4, 5);
  assert.deepEqual(
    rows.map(({ name, cells }) => [
      name,
      cells.map((c) => `${c.text}${c.own ? "" : " copy"}${c.accepted ? " kept" : ""}`),
    ]),
    [
      ["draft", ["a kept", "b kept", "x", "y"]],
      ["from 2", ["a copy kept", "b copy kept", "c kept", "z"]],
      ["from 0", ["q"]],
    ],
  );
  const swapped = step({
    branches: [...raw().branches].reverse(),
    nodes: raw().nodes.map((n) => ({ ...n, candidates: n.candidates.map((c) => [0, 2, 1][c]) })),
  });
  assert.deepEqual(
    rowsOf(swapped, 4, 1).map(({ candidate }) => candidate),
    [0, 2],
  );
});
