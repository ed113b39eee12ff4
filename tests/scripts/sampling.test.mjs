// Draws of the target: their words, and steps drawn again with other seeds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOf } from "../../app/learn/draws.js";
import { scoreWords, textbookWords } from "../../assets/viewer/explain.js";
import { drawnAfter, oddsAfter, redrawn } from "../../assets/viewer/sampling.js";
import { RUN, stepOf } from "./fixtures.mjs";

const node = (id, parent, token, candidates, p, state) => ({
  id,
  parent,
  token,
  text: `t${token}`,
  candidates,
  proposer: candidates.includes(0) ? "first" : "second",
  drafter_probability: 0.5,
  target_probability: p,
  state,
});

/** The first draft is 1 2; a re-draft after the first token has 3. At temperature 1, the target drew 1, then 4. */
const step = () =>
  stepOf(
    {
      nodes: [
        { ...node(0, -1, 0, [0, 1], null, "root"), proposer: "target" },
        node(1, 0, 1, [0, 1], 0.75, "accepted"),
        node(2, 1, 2, [0], 0.25, "rejected"),
        node(3, 1, 3, [1], 0.125, "rejected"),
      ],
      first_draft: { drafter: "first", prefix: 0, ids: [1, 2], texts: ["t1", "t2"], confidence: [0.5, 0.5] },
      branches: [{ drafter: "second", prefix: 1, ids: [3], texts: ["t3"], confidence: [0.5] }],
      accepted: [1],
      actual_boundary: 1,
      choices: [
        { node: 0, token: 1, text: "t1", probability: 0.75 },
        { node: 1, token: 4, text: "t4", probability: 0.5 },
      ],
      committed: [
        { text: "t1", proposer: "first", node: 1 },
        { text: "t4", proposer: "target", node: null },
      ],
      target_tops: [
        { node: 0, top: [{ id: 1, text: "t1", probability: 0.75 }] },
        { node: 1, top: [{ id: 4, text: "t4", probability: 0.5 }] },
      ],
      draws: [
        { node: 0, tokens: [1], noise: [0.5], rejected: null, residual: [] },
        {
          node: 1,
          tokens: [4, 2, 3],
          noise: [1.5, -0.25, 0],
          rejected: 2,
          residual: [
            { id: 4, text: "t4", probability: 0.9 },
            { id: 5, text: "t5", probability: 0.1 },
          ],
        },
      ],
    },
    { ...RUN, sampled: true },
  );

test("oddsAfter lists the recorded tokens and the rest", () => {
  const odds = oddsAfter(step(), 1).map(({ text, p }) => [text, p]);
  assert.deepEqual(odds, [
    ["t4", 0.5],
    ["t2", 0.25],
    ["t3", 0.125],
    ["(another)", 0.125],
  ]);
  assert.deepEqual(oddsAfter(step(), 3), []); // nothing recorded after a token that was not reached
  assert.equal(placeOf(step()), 1);
});

test("seeds draw each token as often as its probability says", () => {
  const [one, counts, draws] = [step(), new Map(), 8000];
  for (let seed = 1; seed <= draws; seed += 1) {
    const { id } = drawnAfter(one, 1, seed);
    counts.set(id, 1 + (counts.get(id) ?? 0));
  }
  const chi = oddsAfter(one, 1).map(({ id, p }) => (counts.get(id) - draws * p) ** 2 / (draws * p));
  assert.ok(chi.reduce((a, b) => a + b) < 16.3, String([...counts])); // 99.9% quantile for 3 degrees of freedom
});

test("a step drawn again follows the draws through the recorded tree", () => {
  const one = step();
  const paths = new Map();
  for (let seed = 1; seed <= 4000; seed += 1) {
    const again = redrawn(one, seed);
    const path = again.committed.map(({ text }) => text).join(" ");
    paths.set(path, 1 + (paths.get(path) ?? 0));
    assert.deepEqual(
      again.accepted.map((id) => again.nodes.get(id).state),
      again.accepted.map(() => "accepted"),
    );
    assert.equal(again.bonus.parent, again.accepted.at(-1) ?? 0);
    assert.equal(again.committed.length, again.accepted.length + 1);
    assert.equal(again.boundary, again.accepted.includes(2) ? 2 : again.accepted.length && 1);
  }
  const share = (path) => (paths.get(path) ?? 0) / 4000;
  assert.ok(Math.abs(share("(another)") - 0.25) < 0.03, "the first draft breaks at its first token");
  assert.ok(Math.abs(share("t1 t4") - 0.375) < 0.03);
  assert.ok(Math.abs(share("t1 t2 ?") - 0.1875) < 0.03, "after the end of the tree nothing was recorded");
  assert.deepEqual(redrawn(one, 7), redrawn(one, 7));
});

test("the card says what was drawn, and what the textbook rule would have done", () => {
  const one = step();
  const draw = one.draws.get(1);
  assert.equal(scoreWords(draw, { id: 4, p: 0.5 }), "+1.50 → 0.81");
  assert.equal(scoreWords(draw, { id: 2, p: 0.25 }), "−0.25 → −1.64");
  assert.equal(scoreWords(draw, { id: 9, p: 0.25 }), "");
  assert.match(textbookWords(one, one.nodes.get(1)), /min\(1, \.75 ÷ \.50\) = 100%\. /);
  assert.match(
    textbookWords(one, one.nodes.get(2)),
    /min\(1, \.25 ÷ \.50\) = 50%, else replaced by a draw from p − q: “t4” \(90%\), “t5” \(10%\) or others\. Both/,
  );
});
