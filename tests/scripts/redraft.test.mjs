// Re-drafts at the user's request: their sentences, and the handling of answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { State } from "../../assets/viewer/state.js";
import { chosenSentence, readAnswer, Redraft, redraftSentence } from "../../assets/viewer/redraft.js";

const answer = (fields) =>
  readAnswer({
    texts: [" shells", " and", " gets"],
    confidence: [0.9, 0.8, 0.3],
    kept: 3,
    accepted: 2,
    added: 2,
    wanted: " finds",
    chosen: [
      [3, 2],
      [5, 0],
    ],
    extra: 0,
    same: null,
    ...fields,
  });

test("redraftSentence names the tokens that a re-draft would have added, and its end", () => {
  assert.equal(
    redraftSentence(3, answer()),
    "It would have added 2 tokens: ␣shells ␣and; then the large model chose “␣finds”.",
  );
  assert.equal(redraftSentence(3, answer({ wanted: null })), "It would have added 2 tokens: ␣shells ␣and.");
  assert.equal(
    redraftSentence(1, answer({ kept: 1, added: 0 })),
    "It would have added nothing: 2 tokens would be accepted, but the first draft had them already.",
  );
  assert.match(
    redraftSentence(5, answer({ accepted: 0, added: 0 })),
    /the large model had already rejected the fourth token of the first draft; it chose “␣finds”/,
  );
  assert.match(redraftSentence(3, answer({ accepted: 0, added: 0 })), /chose “␣finds” as the first token/);
});

test("chosenSentence names the gain of the chosen prefixes", () => {
  assert.match(
    chosenSentence(
      answer({
        extra: 2,
        chosen: [
          [5, 0],
          [3, 2],
        ],
      }),
      6,
    ),
    /^Second drafts started after 3 and 5 tokens and added 2 and 0\. .* have written 2 more than its 6 tokens\.$/,
  );
  assert.match(chosenSentence(answer(), 6), /would not have changed the result\.$/);
  assert.match(chosenSentence(answer({ same: true }), 6), /the step drafted the same tokens\.$/);
  assert.match(chosenSentence(answer({ same: false }), 6), /rounding decided a near tie differently\.$/);
  assert.equal(
    chosenSentence(answer({ chosen: [] }), 6),
    "The step had no second draft. The re-draft shown here would not have changed the result.",
  );
});

test("Redraft uses the answer to the latest question only, and names the problem without a server", () => {
  const asked = [];
  const store = { key: "k", length: 5, live: false };
  const state = new State(store, () => {}, { resting: 2 });
  const redraft = new Redraft(store, state, (event, question) => asked.push(question));
  redraft.request(3);
  redraft.request(4);
  redraft.receive({ number: 1, problem: "old" });
  assert.equal(redraft.here.answer, null);
  redraft.receive({ number: 2, problem: "new" });
  redraft.receive({ number: 2, problem: "again" });
  assert.equal(redraft.here.answer.problem, "new");
  assert.deepEqual(
    asked.map(({ prefix, number }) => [prefix, number]),
    [
      [3, 1],
      [4, 2],
    ],
  );
  state.pin(2, 4); // a selected node has a card of its own
  assert.equal(redraft.here, null);
  state.pin(1);
  assert.equal(redraft.here, null);
  const alone = new Redraft(store, state, null);
  alone.request(3);
  assert.match(alone.here.answer.problem, /without its models/);
  assert.deepEqual([alone.release(), alone.release()], [true, false]);
});
