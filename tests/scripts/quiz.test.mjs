// The quiz.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Guessing, QuizView, guessableSteps, draftedNode, guessMarks, quizVerdict } from "../../assets/viewer/quiz.js";

test("a quiz asks about steps whose outcome is known, and says who was right", () => {
  assert.deepEqual(guessableSteps([{ boundary: 2 }, { boundary: null }, { boundary: 0, undrafted: false }, { boundary: 0, undrafted: true }]), [0, 2]);
  const step = { boundary: 2, drafted: 4, selected: [2, 0], random: false };
  assert.deepEqual(quizVerdict(step, 3), { right: true, byFlag: true, words: "Right: it was rejected at position 3. The drafter’s flag 1 was right as well." });
  assert.equal(quizVerdict({ ...step, boundary: 4 }, 1).words, "You said at position 1: it was rejected nowhere. The drafter’s flag 1 said: at position 3.");
});

test("the score over a run says what came of every step that can be asked about", () => {
  const answers = new Map([[0, { right: true }], [2, { right: false }]]);
  assert.deepEqual(guessMarks([{ boundary: 2 }, { boundary: null }, { boundary: 0 }, { boundary: 1 }], answers), [{ at: 0, right: true }, { at: 2, right: false }, { at: 3, right: null }]);
});

test("text that holds an answer is hidden: from the asked step on, and behind a step that was answered", () => {
  const hidden = Object.getOwnPropertyDescriptor(Guessing.prototype, "hidden").get;
  const of = (on, asking, shown) => hidden.call({ on, asking, selection: { shown } });
  assert.deepEqual([of(true, true, 3), of(true, false, 3), of(false, false, 3), of(true, false, null)], [3, 4, null, null]);
});

test("keys walk along the first draft, whatever the target accepted", () => {
  const node = (id, depth, candidates) => [id, { id, depth, candidates }];
  const step = { nodes: new Map([node(0, 0, []), node(1, 1, [0, 1]), node(2, 1, [2]), node(3, 2, [0])]), accepted: [2] };
  assert.deepEqual([[null, 1], [2, 1], [1, 1], [3, 1], [3, -1], [1, -1]].map(([from, by]) => draftedNode(step, from, by)), [1, 1, 3, 3, 1, 1]);
  assert.equal(draftedNode({ nodes: new Map([node(0, 0, [])]) }, 0, 1), null);
});

test("a position of two digits is typed, one digit waits only where a second may follow", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const guesses = [];
  const quiz = (drafted) => {
    const step = { drafted };
    return Object.assign(Object.create(QuizView.prototype), { typed: "", on: true, answers: new Map(), selection: { shown: 0 }, store: { step: () => step, summaries: [{ boundary: 0 }] }, guess: (position) => guesses.push(position) });
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
