// What a deck file holds, and the address of a card. Anybody may have written the file: every value is read as a plain one.

import { list, text, whole } from "../../../assets/viewer/dom.js";

export function readDeck(raw) {
  const deck = raw && typeof raw === "object" ? raw : {};
  const cards = list(deck.cards).map((card) => ({ address: text(card && card.address), title: text(card && card.title), question: text(card && card.question), notes: text(card && card.notes) }));
  return { id: text(deck.id), race: text(deck.race), cards };
}

/** The card that an address names, from 0; the first one where it names none of `many`. */
export const cardNamed = (hash, many) => whole(new URLSearchParams(hash.slice(1)).get("card"), 1, Math.max(1, many), 1) - 1;

/** The address of card `at` for the `audience`; that of the `speaker` shows the card after it. The colours of `before` stay. */
export function addressOf(cards, at, whose, before) {
  const old = new URLSearchParams(before.slice(1));
  const shown = whose === "speaker" ? cards[Math.min(cards.length - 1, at + 1)] : cards[at];
  const fields = new URLSearchParams(shown.address);
  fields.set("card", at + 1);
  if (whose === "speaker") fields.set("speaker", 1);
  for (const name of ["theme", "embed"]) if (old.has(name)) fields.set(name, old.get(name));
  return `#${fields}`;
}
