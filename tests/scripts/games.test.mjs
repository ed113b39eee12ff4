// The games: the quiz, and Be the drafter.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fateOf } from "../../assets/viewer/explain.js";
import {
  Guessing,
  QuizView,
  askedStep,
  draftedNode,
  guessableSteps,
  handsWords,
  quizVerdict,
} from "../../assets/viewer/quiz.js";
import { State } from "../../assets/viewer/state.js";
import { nodeOf, typedNodes } from "../../assets/viewer/step.js";
import {
  TypedView,
  agreeing,
  asText,
  compared,
  scoreSentence,
  spaced,
  typedHeadline,
} from "../../assets/viewer/typed.js";
import { plain } from "../../assets/viewer/words.js";
import { stepLine, stepOf } from "./fixtures.mjs";

test("the quiz asks about drafted steps with a known boundary and judges the guess", () => {
  assert.deepEqual(
    guessableSteps([
      { boundary: 2 },
      { boundary: null },
      { boundary: 0, undrafted: false },
      { boundary: 0, undrafted: true },
    ]),
    [0, 2],
  );
  const step = { boundary: 2, draft: { texts: [" I", " will", " help", "I"] }, selected: [2, 0], random: false };
  assert.deepEqual(quizVerdict(step, [3]), {
    right: true,
    byFlag: true,
    words: "Right: “help” was rejected. The drafter expected this too.",
  });
  assert.equal(
    quizVerdict({ ...step, boundary: 1, selected: [4] }, [3]).words,
    "You chose “help”; “will” was rejected. The drafter expected no rejection.",
  );
  assert.equal(
    quizVerdict({ ...step, boundary: 4, random: true, draft: { texts: ["a", "b", "a"] } }, [3]).words,
    "You chose “a” (3); no token was rejected.",
  );
  assert.match(quizVerdict(step, [5]).words, /^You chose none; “help” was rejected/);
});

test("votes are told with the most first", () => {
  const step = { boundary: 1, draft: { texts: [" I", " will", " help"] }, selected: [], random: false };
  const votes = [3, 2, 4, 3, 4, 3];
  assert.equal(handsWords(step, votes), "3 for “help”, 2 for none, 1 for “will”");
  assert.equal(handsWords(step, []), "");
  assert.deepEqual(quizVerdict(step, votes, true), {
    right: false,
    byFlag: false,
    words: "3 for “help”, 2 for none, 1 for “will”. “will” was rejected.",
  });
});

test("a question shows the first draft only, and nothing that tells its fate", () => {
  const { step, parts } = (() => {
    const raw = JSON.parse(stepLine(4, 2, [2]));
    const other = {
      ...raw.nodes[1],
      id: 9,
      parent: 2,
      depth: 3,
      candidates: [1],
      proposer: "second",
      state: "accepted",
    };
    return { step: stepOf({ ...raw, nodes: [...raw.nodes, other] }), parts: raw.nodes.length };
  })();
  const asked = askedStep(step);
  assert.equal(askedStep(step), asked);
  assert.equal(asked.nodes.size, parts);
  assert.deepEqual([...new Set([...asked.nodes.values()].map(({ state }) => state))], ["root", "unreached"]);
  assert.deepEqual(
    [1, 2, 3, 4].map((k) => fateOf(asked, k)),
    ["unseen", "unseen", "unseen", "unseen"],
  );
  assert.deepEqual([asked.bonus, asked.boundary, asked.accepted, asked.selected], [null, null, [], []]);
  assert.equal(asked.columns, step.columns);
  assert.equal(askedStep(null), null);
});

test("the quiz hides the text of the asked step and later ones, or only of later ones after an answer", () => {
  const hidden = Object.getOwnPropertyDescriptor(Guessing.prototype, "hidden").get;
  const of = (on, asking, shown) => hidden.call({ on, asking, state: { shown } });
  assert.deepEqual(
    [of(true, true, 3), of(true, false, 3), of(false, false, 3), of(true, false, null)],
    [3, 4, null, null],
  );
});

test("with Hands a digit counts a vote at once, Backspace takes it back, and Enter reveals", () => {
  const step = { index: 0, drafted: 15, boundary: 0, selected: [], draft: { texts: Array(15).fill("a") } };
  const store = { step: () => step, summaries: [{ boundary: 0 }, { boundary: 0 }], length: 2 };
  const state = new State(store, () => {}, { game: "quiz", resting: 0 });
  const quiz = Object.assign(Object.create(QuizView.prototype), { name: "quiz", store, state });
  assert.equal(quiz.takeBack(), false); // votes are not counted
  state.set({ hands: true });
  quiz.enter(1); // no votes to reveal
  for (const digit of [1, 1, 0, 2]) quiz.type(digit);
  assert.deepEqual(state.now.votes, [1, 1, 16, 2]);
  quiz.takeBack();
  quiz.guess(12);
  assert.deepEqual(state.now.votes, [1, 1, 16, 12]);
  assert.match(quiz.question.more, /^2 for “a” \(1\), 1 for none, 1 for “a” \(12\)$/);
  quiz.enter(12);
  assert.equal(state.now.answers.quiz[0].right, true); // the place with the most votes
  quiz.type(3); // after the answer nothing is counted
  assert.equal(state.now.votes.length, 4);
  state.pin(1);
  assert.deepEqual([state.now.votes, state.now.hands], [[], true]);
});

test("draftedNode moves along the first draft, accepted or not", () => {
  const node = (id, depth, candidates) => [id, { id, depth, candidates }];
  const step = {
    nodes: new Map([node(0, 0, []), node(1, 1, [0, 1]), node(2, 1, [2]), node(3, 2, [0])]),
    accepted: [2],
  };
  assert.deepEqual(
    [
      [null, 1],
      [2, 1],
      [1, 1],
      [3, 1],
      [3, -1],
      [1, -1],
    ].map(([from, by]) => draftedNode(step, from, by)),
    [1, 1, 3, 3, 1, 1],
  );
  assert.equal(draftedNode({ nodes: new Map([node(0, 0, [])]) }, 0, 1), null);
});

test("a typed digit waits for a second one only if two digits are possible", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const guesses = [];
  const quiz = (drafted) => {
    const store = { step: () => ({ drafted, index: 0 }), summaries: [{ boundary: 0 }], length: 1 };
    return Object.assign(Object.create(QuizView.prototype), {
      name: "quiz",
      store,
      state: new State(store, () => {}, { game: "quiz", resting: 0 }),
      guess: (position) => guesses.push(position),
    });
  };
  quiz(7).type("4");
  quiz(7).type("0");
  const long = quiz(15);
  long.type("2");
  long.type("1");
  assert.deepEqual(guesses, [4, Infinity, 2]);
  long.type("3");
  long.type("1");
  t.mock.timers.tick(1000);
  assert.deepEqual(guesses.slice(3), [13, 1]);
});

const PIECES = [" with", " 24", " shells", " and"];

test("agreeing counts whole recorded pieces at the start of the typed text", () => {
  assert.deepEqual(agreeing(PIECES, " with 24 sh"), [2, 8]);
  assert.deepEqual(agreeing(["a", "", "é", ""], "aé"), [3, 2]);
  assert.deepEqual(agreeing(["a", "", "é"], "ab"), [1, 1]);
  assert.deepEqual(agreeing([" cats"], " cat sat"), [0, 0]);
  assert.deepEqual(agreeing([], "a"), [0, 0]);
});

test("spaced adjusts the leading space, and asText reads ␣ and ↵ as whitespace", () => {
  assert.equal(spaced(PIECES, "with"), " with");
  assert.equal(spaced(["s", " sat"], " s sat"), "s sat");
  assert.equal(spaced(["\n"], " cat"), " cat");
  assert.equal(spaced([], " cat"), " cat");
  assert.equal(asText("a␣b↵"), "a b\n");
});

test("compared judges typed words by the recorded text when there is no server", () => {
  assert.deepEqual(compared(PIECES, "with 24 dogs run", 15), {
    tokens: [" with", " 24", " dogs", " run"].map((t) => ({ text: t, p: null })),
    accepted: 2,
    wanted: " shells",
    cut: 0,
  });
  assert.deepEqual(compared(PIECES, "with 24 shells or", 2), {
    tokens: [" with", " 24"].map((t) => ({ text: t, p: null })),
    accepted: 2,
    wanted: " shells",
    cut: 2,
  });
  assert.equal(compared(PIECES, "dog", 15).accepted, 0);
  const over = compared([" end"], "end of", 15);
  assert.deepEqual([over.accepted, over.tokens.length, over.wanted], [1, 2, null]);
});

test("typedHeadline says how many tokens of each draft were accepted, and what the large model chose", () => {
  const said = (fields, first, all) => {
    const { title, pieces } = typedHeadline(
      { tokens: [{}, {}, {}], accepted: 2, wanted: " on", cut: 0, ...fields },
      first,
      all,
    );
    return `${title} ${plain(pieces)}`;
  };
  assert.equal(
    said({}, 4, 8),
    "You: two accepted. The first draft: four. Then the large model chose “on”. The whole tree: eight.",
  );
  assert.equal(said({ accepted: 0 }, 0, 0), "You: none accepted. The first draft: none. The large model chose “on”.");
  assert.match(
    said({ accepted: 3, cut: 2 }, 3, 3),
    /^You: three accepted.* Then the large model continues with “on”\. 2 more tokens did not fit into the draft\.$/,
  );
  assert.match(said({ wanted: null }, 1, 1), /first draft: one\. There the recorded text ends\.$/);
});

test("typedNodes are a chain from the anchor, named by their fate", () => {
  const tokens = [" will", "😀", "<b>", "x"].map((text) => ({ text, p: 0.5 }));
  const nodes = typedNodes({ tokens, accepted: 2, wanted: " on" });
  assert.deepEqual(
    [...nodes.values()].map(({ id, parent, depth, name }) => [id, parent, depth, name]),
    [
      ["you 1", 0, 1, "you: “will”, accepted"],
      ["you 2", "you 1", 2, "you: “😀”, accepted"],
      ["you 3", "you 2", 3, "you: “<b>”, rejected"],
      ["you 4", "you 3", 4, "you: “x”, not reached"],
    ],
  );
  assert.equal(nodeOf({ nodes: new Map(), yours: { nodes } }, "you 3").text, "<b>");
  assert.equal(typedNodes({ tokens, accepted: 3, wanted: null }).get("you 4").state, "unreached");
});

test("scoreSentence compares the user with the first draft and the whole tree over several steps", () => {
  const told = [
    { mine: 1, first: 4, all: 8 },
    { mine: 2, first: 0, all: 0 },
  ];
  assert.equal(
    scoreSentence(told, null),
    "Accepted tokens a step, over 2 steps: you 1.50, first draft 2.00, whole tree 4.00.",
  );
  assert.match(scoreSentence([told[1], told[1]], 2.5), /you 2\.00, first draft 0\.00; to beat: 2\.50\.$/);
  assert.equal(scoreSentence([told[1]], 2.5), "To beat: 2.50 accepted tokens a step.");
  assert.equal(scoreSentence(told.slice(1), null), "");
});

/** A TypedView without its elements, and the answers that it records. */
function game(fields) {
  const heard = [];
  const store = {
    key: "k",
    committed: [[{ text: " 1" }], [{ text: " with" }, { text: " 24" }]],
    summaries: [
      { boundary: 0, counts: { first: 0, second: 0 } },
      { boundary: 1, counts: { first: 1, second: 0 } },
    ],
    step: () => ({ drafted: 15 }),
    manner: { sampled: false, lacks: "" },
    length: 2,
    complete: true,
  };
  const view = Object.assign(Object.create(TypedView.prototype), {
    name: "draft",
    number: 0,
    store,
    state: new State(store, () => {}, { game: "draft", resting: 1, typed: "with 25" }),
    field: { focus() {} },
    answer: (step, verdict) => heard.push([step, verdict]),
    ...fields,
  });
  return { view, heard };
}

test("TypedView uses the answer to the latest draft only, and the recorded text after a problem", () => {
  const asked = [];
  const { view, heard } = game({ server: (event, question) => asked.push(question) });
  view.submit();
  view.state.set({ typed: "with 24" });
  view.submit();
  view.receive({ number: 1, texts: [" old"], probabilities: [1], accepted: 1 });
  assert.deepEqual(heard, []);
  view.receive({ number: 2, problem: "Not loaded." });
  view.receive({ number: 2, problem: "Again." });
  assert.deepEqual(
    asked.map(({ key, step, words, number }) => [key, step, words, number]),
    [
      ["k", 1, "with 25", 1],
      ["k", 1, "with 24", 2],
    ],
  );
  assert.equal(heard.length, 1);
  const [[step, { mine, first, source }]] = heard;
  assert.deepEqual([step, mine, first], [1, 2, 1]);
  assert.match(source, /^Not loaded\. Compared with the recorded text/);
});

test("TypedView without a server answers immediately and ignores empty drafts", () => {
  const { view, heard } = game({ server: null });
  view.submit();
  assert.equal(heard[0][1].mine, 1);
  view.state.set({ typed: " " });
  view.submit();
  assert.equal(heard.length, 1);
});

test("TypedView refuses runs that are sampled or lack tokens or drafts, and then hides nothing", () => {
  const { view } = game({});
  assert.equal(view.asking, true);
  assert.equal(view.hidden, 1);
  view.store.manner.sampled = true;
  assert.match(view.refusal, /temperature 0/);
  assert.deepEqual([view.asking, view.hidden], [false, null]);
  view.store.manner = { sampled: false, lacks: "Tokens are not in this log" };
  assert.match(view.refusal, /does not hold all tokens/);
  view.store.manner.lacks = "";
  view.store.summaries = [{ boundary: null }];
  assert.match(view.refusal, /Nothing was drafted/);
});

test("a challenge link contains the user's score", () => {
  const { view } = game({});
  assert.equal(view.challenge, "draft=1");
  view.state.set({ answers: { draft: { 0: { mine: 3 }, 1: { mine: 2 } } } });
  assert.equal(view.challenge, "draft=1&beat=2.50");
});
