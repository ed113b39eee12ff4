// The glossary: the meaning of each term, shown wherever the term occurs (meaning.js), and the element for a term.

import { h } from "./dom.js";

/** Terms that a newcomer may not know, in a useful reading order. */
export const GLOSSARY = {
  token: "a word or a piece of one; ␣ stands for a lone space, ↵ for a line break",
  target:
    "the large model, whose text it is: it checks every guess, and nothing is written that it would not have written",
  drafter: "a small network that guesses the next tokens ahead of the target",
  step: "one round: draft, re-draft, one pass of the target over everything drafted, and what it accepts is written",
  anchor: "the last certain token: everything drafted in a step continues from it",
  c: "confidence: how sure the drafter is of its own token, from 0 to 1",
  boundary:
    "the place where the target rejects the first draft: it is predicted ahead, and seen once the target has read the draft",
  "r(i)": "predicted chance that exactly i drafted tokens are accepted, from the confidences; “all”: every one of them",
  "second draft": "a re-draft: it goes on from where the first one will probably break",
  bonus: "the token that the target itself adds behind what it accepted, in the same pass; it is the next anchor",
  α: "acceptance length: tokens that a step writes, the bonus included; the mean over the run",
  γ: "tokens in a block: the anchor and γ − 1 drafted ones",
  K: "how many of the likeliest boundaries get a re-draft",
  B: "how many drafted tokens the target reads in a step at most",
  T: "temperature: at 0 the target takes its likeliest token, above 0 it draws one",
  "plain decoding": "the way without drafts: one pass of the target for each token",
  "break even": "a method is faster than plain decoding where α is more than a step costs, in passes of plain decoding",
  "●": "rescued: a second draft started exactly where the first one broke, and added tokens",
  "○": "right place, no gain: a second draft started there, but added nothing",
  "✕": "wrong place: no second draft started there",
  "▲": "the whole first draft was accepted",
};

/** A term that shows its meaning when hovered or focused; `shown`: its form in the text. */
export const term = (word, shown = word, meaning = GLOSSARY[word]) =>
  h("span", { class: "term", tabindex: 0, role: "button", "data-meaning": meaning }, shown);

const IN_PROSE = /(?<![\p{L}“])(anchor|bonus|α|γ|K|r\(i\))(?![\p{L}₂])/u; // not inside longer words

/** Splits prose into text and terms; a term is an array, at its first occurrence only. `seen`: earlier terms, updated. */
export function wordsIn(prose, seen = new Set()) {
  return prose.split(IN_PROSE).map((piece, at) => {
    if (at % 2 === 0 || seen.has(piece)) return piece;
    seen.add(piece);
    return [piece];
  });
}

/** Like `wordsIn`, as text and elements. */
export const withTerms = (prose, seen) =>
  wordsIn(prose, seen).map((piece) => (Array.isArray(piece) ? term(piece[0]) : piece));
