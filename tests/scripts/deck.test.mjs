// A deck: what a card may hold, where it goes, and the addresses of the file that is made of it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cardWords, movedCards, readCard } from "../../app/static/cards/deck.js";
import { addressOf, cardNamed, readDeck } from "../../app/static/deck/reading.js";
import { elapsed } from "../../app/static/deck/speaker.js";

test("a card that was kept holds bounded values, whatever it was", () => {
  const whole = { view: "learn", key: "k", step: 3, node: "bonus", stop: 4, title: "t", question: "q", notes: "n" };
  assert.deepEqual(readCard(whole), whole);
  const nothing = { view: "explore", key: "", step: null, node: null, stop: 0, title: "", question: "", notes: "" };
  for (const raw of [null, 7, "x", [], { view: "shell", step: "x", node: {}, stop: -4, key: null }]) assert.deepEqual(readCard(raw), nothing);
  assert.equal(readCard({ title: "x".repeat(999), stop: 99 }).title.length, 120);
  assert.equal(readCard({ stop: 99 }).stop, 10);
});

test("cards move by one place and stay where there is none", () => {
  const cards = ["a", "b", "c"];
  assert.deepEqual(movedCards(cards, 2, -1), ["a", "c", "b"]);
  assert.deepEqual(movedCards(cards, 0, 1), ["b", "a", "c"]);
  for (const [at, by] of [[0, -1], [2, 1]]) assert.equal(movedCards(cards, at, by), cards);
});

test("a card says what it shows, also of a run that is gone", () => {
  const names = new Map([["k", "2. Once upon"]]);
  assert.equal(cardWords(readCard({ key: "k", step: 3 }), names), "step 4, run 2. Once upon");
  assert.equal(cardWords(readCard({ key: "k" }), names), "run 2. Once upon");
  assert.equal(cardWords(readCard({ key: "lesson", step: 7, view: "learn" }), names), "step 8, run of Learn");
  assert.equal(cardWords(readCard({ key: "gone", step: 0 }), names), "step 1, a run that is no longer in the list");
  assert.equal(cardWords(readCard({ view: "race" }), names), "Race");
});

test("an address shows the card to the audience and the next one to the speaker", () => {
  const { cards } = readDeck({ cards: [{ address: "run=2&step=4" }, { address: "run=1&stop=3" }] });
  assert.equal(addressOf(cards, 0, "audience", "#theme=dark&quiz=1&node=3"), "#run=2&step=4&card=1&theme=dark");
  assert.equal(addressOf(cards, 0, "speaker", ""), "#run=1&stop=3&card=1&speaker=1");
  assert.equal(addressOf(cards, 1, "speaker", "#card=1"), "#run=1&stop=3&card=2&speaker=1");
  assert.deepEqual(["#card=2", "", "#card=9", "#card=x", "#card=0"].map((hash) => cardNamed(hash, 2)), [1, 0, 1, 0, 0]);
});

test("a file that is no deck is read as an empty one, and words stay words", () => {
  for (const raw of [null, "x", { cards: 4 }]) assert.deepEqual(readDeck(raw).cards, []);
  assert.deepEqual(readDeck({ id: 3, cards: [null, { title: ["<b>"] }] }), { id: "3", race: "", cards: [{ address: "", title: "", question: "", notes: "" }, { address: "", title: "<b>", question: "", notes: "" }] });
});

test("the clock shows minutes, and hours where there are any", () => {
  assert.deepEqual([0, 59.9, 61, 3600, 36125].map(elapsed), ["0:00", "0:59", "1:01", "1:00:00", "10:02:05"]);
});
