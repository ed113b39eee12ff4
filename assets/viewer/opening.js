// What a newcomer reads first.

import { button, h } from "./dom.js";

/** What speculative decoding is, in words that need nothing. */
const OPENING =
  "A small model guesses ahead. The large one checks the guesses in one pass and keeps what it would have written: same text, fewer passes.";

/** The sentence and the ways on: `story()` tells it in pictures, `begin()` runs it here; null where there is none. */
export function opening({ story, begin }) {
  const ways = [
    story && button("Show me in 2 minutes", { class: "main" }, story),
    begin && button("Try it", { class: "quiet" }, begin),
  ];
  return h("div", { class: "opening" }, h("p", {}, OPENING), h("div", { class: "tools" }, ...ways));
}
