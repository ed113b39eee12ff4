// The quiz and the notes of a presenter.
import assert from "node:assert/strict";
import { test } from "node:test";
import { askedSteps, Guessing, guessMarks } from "../../assets/viewer/guessing.js";
import { readNotes } from "../../assets/viewer/presenter.js";
import { quizVerdict } from "../../assets/viewer/quiz.js";

test("a quiz asks about steps whose outcome is known, and says who was right", () => {
  assert.deepEqual(askedSteps([{ boundary: 2 }, { boundary: null }, { boundary: 0, undrafted: false }, { boundary: 0, undrafted: true }]), [0, 2]);
  const step = { boundary: 2, drafted: 4, selected: [2, 0], random: false };
  assert.deepEqual(quizVerdict(step, 3), { right: true, byFlag: true, words: "Right: it was rejected at position 3. The drafter’s flag 1 was right as well." });
  assert.equal(quizVerdict({ ...step, boundary: 4 }, 1).words, "You said at position 1: it was rejected nowhere. The drafter’s flag 1 said: at position 3.");
});

test("the score over a run says what came of every step that can be asked about", () => {
  const told = new Map([[0, { right: true }], [2, { right: false }]]);
  assert.deepEqual(guessMarks([{ boundary: 2 }, { boundary: null }, { boundary: 0 }, { boundary: 1 }], told), [{ at: 0, right: true }, { at: 2, right: false }, { at: 3, right: null }]);
});

test("speaker notes are told apart by the numbers of their steps", () => {
  assert.deepEqual([...readNotes("title\n1: hello\n more\n\nStep 12) bye")], [[0, "hello\n more"], [11, "bye"]]);
});

test("text that holds an answer is hidden: from the asked step on, and behind a step that was answered", () => {
  const hidden = Object.getOwnPropertyDescriptor(Guessing.prototype, "hidden").get;
  const of = (on, asking, shown) => hidden.call({ on, asking, selection: { shown } });
  assert.deepEqual([of(true, true, 3), of(true, false, 3), of(false, false, 3), of(true, false, null)], [3, 4, null, null]);
});
