// Sentences about steps, boundaries and nodes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { markOf } from "../../assets/viewer/details.js";
import {
  bonusSentence,
  boundaryWords,
  contributions,
  draftsName,
  equalDrafts,
  nodeSentence,
  ofBoth,
  decisionWords,
  stepSentence,
  stepStory,
  stepSummary,
} from "../../assets/viewer/explain.js";
import { runWords } from "../../assets/viewer/page.js";
import { stageWords } from "../../assets/viewer/stages.js";
import { ordinal, afterToken } from "../../assets/viewer/words.js";
import { RUN, stepLine, stepOf } from "./fixtures.mjs";

test("stepSentence describes the accepted path of a step", () => {
  const step = stepOf(JSON.parse(stepLine(4, 2)));
  assert.equal(stepSentence(step), "Three tokens in one pass. 2 from the draft and 1 from the large model itself.");
  assert.deepEqual(
    stepStory(step).pieces.filter(({ kind }) => kind),
    [
      { text: "2 from the draft", kind: "first" },
      { text: "1 from the large model", kind: "target" },
    ],
  );
  assert.deepEqual([step.columns, step.bonus.depth, step.drafted], [6, 3, 4]);
  const drawn = stepOf(JSON.parse(stepLine(4, 2)), { ...RUN, sampled: true });
  assert.equal(stepSentence(drawn), stepSentence(step));
});

test("stepSentence counts consecutive lower-ranked choices together", () => {
  const raw = JSON.parse(stepLine(4, 3));
  for (const node of raw.nodes.slice(1)) node.candidates = [];
  raw.actual_boundary = 0;
  assert.equal(
    stepSentence(stepOf(raw)),
    "Four tokens in one pass. 3 from the drafter’s lower-ranked choices and 1 from the large model itself; the first guess was rejected.",
  );
});

test("stepSentence does not call a first token wrong if the node budget left it out", () => {
  const raw = JSON.parse(stepLine(4, 0));
  const nodes = raw.nodes.slice(0, 1);
  const said = (more) => stepSentence(stepOf({ ...raw, ...more }));
  assert.equal(
    said({}),
    "One token: no gain this time. The only token is from the large model itself: the first guess was rejected.",
  );
  assert.match(
    said({ nodes, actual_boundary: null }),
    /The only token is from the large model itself: the tree left out the first guess\. 1 of 5 nodes read\.$/,
  );
  assert.equal(
    said({ nodes, first_draft: null, actual_boundary: null, accepted: [] }),
    "One token in one pass. The only token is from the large model itself: nothing was drafted.",
  );
});

test("decisionWords states a cost-aware decision and leaves out an invalid one", () => {
  const option = (block_size, branches, tokens, seconds) => ({ block_size, branches, tokens, seconds });
  const said = (decision) => decisionWords(stepOf({ ...JSON.parse(stepLine(4, 2)), decision }));
  const options = [option(0, 0, 1, 0.01), option(5, 0, 3, 0.02), option(5, 2, 3.5, 0.03)];
  assert.match(
    said({ options, taken: 2, tokens: 3.5, seconds: 0.03, looking: false }),
    /Re-drafts: \+0\.5 tokens expected for 10\.0 ms\.$/,
  );
  assert.match(
    said({ options, taken: 1, tokens: 3, seconds: 0.02, looking: false }),
    /Re-draft skipped: \+0\.5 tokens expected/,
  );
  assert.match(said({ options: options.slice(2), taken: 0, looking: true }), /^This option was not expected to pay/);
  assert.equal(said({ options, taken: 9 }), "");
});

test("a draft without confidences is as long as its tokens", () => {
  const told = JSON.parse(stepLine(4, 4, []));
  const untold = { ...told, first_draft: { ...told.first_draft, confidence: [] } };
  const [step, bare] = [told, untold].map((raw) => stepOf(raw));
  assert.deepEqual([bare.drafted, bare.columns], [4, step.columns]);
  assert.deepEqual(bare.draft.confidence, []);
  assert.equal(stepSentence(bare), stepSentence(step));
});

test("nodes after the end of the text are called not reached", () => {
  const raw = JSON.parse(stepLine(4, 2));
  raw.nodes[3].state = "unreached";
  const said = (ending) => nodeSentence({ ...stepOf(raw), ending }, stepOf(raw).nodes.get(4));
  assert.equal(said("end_of_text"), "Not reached: the text ends before this token.");
  assert.match(said("max_new_tokens"), /limit on tokens ends the text/);
  const step = stepOf(JSON.parse(stepLine(4, 2)));
  assert.match(nodeSentence(step, step.nodes.get(4)), /an earlier token on this path was rejected/);
});

test("runWords names method, model, and a drafter other than the model's default", () => {
  const of = (header, draft = true) =>
    runWords({ header: { models, config: {}, ...header }, seen: { draft }, length: 1 });
  const models = { preset: "tiny", first_drafter: "tiny/dflash" };
  assert.equal(of({ method: "d2sd", config: { num_branches: 4 } }), "D²SD on tiny · K 4");
  assert.equal(
    of({ method: "dflash", models: { ...models, first_drafter: "run/step-200" } }),
    "DFlash on tiny · drafter run/step-200",
  );
  assert.equal(
    of({ method: "autoregressive", models: { ...models, first_drafter: "run/step-200" } }, false),
    "One by one on tiny",
  );
  assert.equal(of({ method: "", models: {} }), "run");
});

test("boundaries are named by the token before them", () => {
  assert.deepEqual(
    [0, 1, 12, 13, 21, 22, 31].map((kept) => afterToken(kept)),
    [
      "before the first",
      "after the first",
      "after the twelfth",
      "after the 13th",
      "after the 21st",
      "after the 22nd",
      "after the 31st",
    ].map((words) => `${words} token`),
  );
  assert.equal(ordinal(3), "third");
});

const token = (own, wanted) => ({ own, wanted });
const marks = (ofTarget, sampled) =>
  [
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ].map(([own, wanted]) => markOf(token(own, wanted), ofTarget, sampled));

test("markOf marks drafted and chosen tokens in a drafter's list", () => {
  assert.deepEqual(marks(false, false), ["both", "drafted", "large model’s", ""]);
  assert.deepEqual(marks(false, true), ["drafted, drawn", "drafted", "drawn", ""]);
});

test("markOf marks drafted tokens in the target's list, and drawn ones when sampling", () => {
  assert.deepEqual(marks(true, false), ["drafted", "drafted", "", ""]);
  assert.deepEqual(marks(true, true), ["drafted, drawn", "drafted", "drawn", ""]);
});

/** Two of four drafted tokens are right; a re-draft after two adds one. `copies`: prefixes of further re-drafts with the same tokens. */
const repaired = (copies = [], manner = {}) =>
  stepOf(repairedLine(copies), { ...RUN, ...manner }, { verdict: "repaired", gained: 1, closed: null });

function repairedLine(copies) {
  const raw = JSON.parse(stepLine(4, 2, [2, ...copies]));
  raw.branches = [2, ...copies].map((prefix) => ({
    drafter: "second",
    prefix,
    base: 0,
    texts: ["u3"],
    confidence: [0.5],
  }));
  const through = raw.branches.map((_, at) => at + 1);
  for (const node of raw.nodes.slice(0, 3)) node.candidates = [0, ...through];
  raw.nodes.push({
    id: 5,
    parent: 2,
    depth: 3,
    token: "u3",
    text: "u3",
    candidates: through,
    proposer: "second",
    state: "accepted",
  });
  raw.accepted.push(5);
  raw.committed.splice(2, 0, { text: "u3", proposer: "second", node: 5 });
  raw.choices = [
    { node: 2, token: "u3", text: "u3", probability: 0.81 },
    { node: 5, token: 99, text: "right", probability: 0.7 },
  ];
  return raw;
}

test("a repaired step names the tokens that re-drafts added, and its boundary", () => {
  const step = repaired();
  assert.equal(
    stepSentence(step),
    "Four tokens in one pass. 2 from the first draft, 1 from a second draft that had started where the first one broke, and 1 from the large model itself.",
  );
  assert.equal(
    boundaryWords(step),
    "The first draft broke after the second token, the likeliest place: second drafts rescued it and added 1 token.",
  );
  assert.equal(stepSummary(step, 6), `Step 1 of 6. ${stepSentence(step)} ${boundaryWords(step)}`);
  assert.match(
    nodeSentence(step, step.nodes.get(3)),
    /^Rejected: the large model chose “u3” \(p\u00a0=\u00a0\.81\)\.$/,
  );
  const [found, missed, all] = ["found", "missed", "all"].map((verdict) => boundaryWords({ ...step, verdict }));
  assert.match(found, /the likeliest place: a second draft started there, but added nothing\.$/);
  assert.match(missed, /: no second draft started there\.$/);
  assert.equal(all, "The whole first draft was accepted.");
});

test("ofBoth finds the nodes whose probability combines both drafters", () => {
  const step = repaired([], { weighted: true });
  const both = (s) => [...s.nodes.values()].filter((node) => ofBoth(s, node)).map(({ depth, id }) => [depth, id]);
  assert.deepEqual(both(step), [
    [3, 3],
    [4, 4],
    [3, 5],
  ]); // only nodes after the re-drafted prefix of two tokens
  assert.deepEqual(both(repaired([0], { weighted: true })).length, 5); // all nodes after the anchor
  assert.deepEqual(both(repaired()), []); // other methods do not weight
});

test("tokens shared by several second drafts are attributed to the draft that continues the path", () => {
  const raw = repairedLine([1]);
  raw.branches[1].texts = ["t2", "u3", "u4"];
  raw.nodes.push({ ...raw.nodes[5], id: 6, parent: 5, depth: 4, text: "u4", candidates: [2] });
  raw.accepted.push(6);
  raw.committed.splice(3, 0, { text: "u4", proposer: "second", node: 6 });
  const step = stepOf(raw, RUN, { verdict: "repaired", gained: 2, closed: null });
  assert.deepEqual(
    contributions(step).parts.map(({ candidate, added }) => [candidate, added]),
    [[2, 2]],
  );
  assert.match(stepSentence(step), /, 2 from a second draft that had started one token before the break, /);
});

test("equal second drafts share one name in the details and count once in the sentence", () => {
  const step = repaired([0]);
  assert.match(stepSentence(step), /, 1 from a second draft that had started/);
  assert.deepEqual(equalDrafts(step).map(draftsName), [
    "second drafts that start before the first and after the second",
  ]);
});

test("sentences about a sampled step call no token wanted or wrong", () => {
  const step = repaired([], { sampled: true });
  const words = [stepSentence(step), nodeSentence(step, step.nodes.get(3)), bonusSentence(step)].join(" ");
  assert.doesNotMatch(words, /wanted|wrong/);
  assert.match(words, /the large model drew “u3”.* This token could have been drawn too/);
});

test("boundaryWords does not call random prefixes predicted", () => {
  const words = boundaryWords(repaired([], { random: true }));
  assert.match(words, /, a place drawn at random: second drafts rescued it/);
  assert.doesNotMatch(words, /likeliest|expected/);
});

test("a tree that the node budget cut tells what was read, and which re-drafts were only prepared", () => {
  const raw = repairedLine([1, 0]);
  raw.branches[0].texts = ["u3", "u4"]; // its first token was verified
  raw.branches[1].texts = ["v2", "v3"]; // nothing of it was verified
  raw.branches[2].texts = ["t1", "w2"]; // shares its first token with the first draft
  for (const node of raw.nodes) node.candidates = node.candidates.filter((c) => c !== 2 && (c !== 3 || node.id < 2));
  const step = stepOf(raw, RUN, { verdict: "repaired", gained: 1, closed: null });
  assert.deepEqual(
    step.left.map(({ text, at, depth, candidates }) => [text, at, depth, candidates]),
    [
      ["u4", 5, 4, [1]],
      ["v2", 1, 2, [2]],
      ["v3", 1, 3, [2]],
      ["w2", 1, 2, [3]],
    ],
  );
  assert.deepEqual([step.whole, step.nodes.size], [10, 6]);
  assert.deepEqual(
    step.branches.map(({ unread }) => unread),
    [false, true, false],
  );
  assert.match(stepSentence(step), / itself\. 6 of 10 nodes read\.$/);
  assert.equal(stageWords(step, 3).more, "Only the 6 likeliest go on.");
  const wrong = { ...step, accepted: [1, 2], boundary: 1, verdict: "found" };
  assert.match(stepSentence(wrong), /a second draft that started where the first one broke was prepared, not read/);
});
