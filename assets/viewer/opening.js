// The first sentence that a newcomer reads, with its buttons.

import { button, h } from "./dom.js";

const OPENING =
  "A small model guesses ahead. A large model checks all guesses in one pass and keeps those that it would have written itself: the same text, in fewer passes.";

/** The sentence and its buttons: `story()` opens the tour, `begin()` runs a prompt; a button whose function is null is left out. */
export function opening({ story, begin }) {
  const ways = [
    story && button("Show me in 2 minutes", { class: "main" }, story),
    begin && button("Try it", { class: "quiet" }, begin),
  ];
  return h("div", { class: "opening" }, h("p", {}, OPENING), h("div", { class: "tools" }, ...ways));
}
