// Formats tokens, probabilities, times and numbers for the page.

import { METHOD_NAMES } from "./constants.js";
import { text } from "./dom.js";

const MARKS = { " ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽" };
// control, zero-width and direction characters, which are invisible or reorder the text: replaced by ◌
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]/g;

/** Text with ◌ for hidden characters and \ufffd for lone surrogates. */
export const unhidden = (words) => words.toWellFormed().replace(HIDDEN, "◌");

/** Token text with visible whitespace, cut to `most` characters; `space`: the sign for a space. */
export function visible(value, most = 24, space = MARKS[" "]) {
  const words = text(value);
  const shown = [...unhidden(words.slice(0, most * 4))].map((c) => (c === " " ? space : MARKS[c] || c));
  if (!shown.length) return "∅";
  return shown.length > most || words.length > most * 4 ? shown.slice(0, most - 1).join("") + "…" : shown.join("");
}

/** Like `visible`, but spaces stay spaces; `quoted` marks only the spaces at the ends of a token. */
export const spoken = (value, most) => visible(value, most, " ");
export const quoted = (value, most = 18) => `“${spoken(value, most).replace(/^ | $/g, MARKS[" "])}”`;

export function probability(p, digits = 2) {
  if ((p ?? null) === null) return "—";
  const least = 10 ** -digits;
  if (p > 0 && p < least / 2) return "<" + least.toFixed(digits).slice(1);
  return p.toFixed(digits).replace(/^0/, "");
}

export function milliseconds(seconds) {
  const ms = seconds * 1000;
  return (ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
}

/** A time of a step in words; times of a run that is still drawn while it is generated include the drawing. */
export const took = ({ drawing }, seconds) => milliseconds(seconds) + (drawing ? " with drawing" : "");

/** A number with this many decimals; rounds half to even, like Python. */
export function fixed(value, digits) {
  const tie = Number.isInteger(value * 2 ** (digits + 1)) && !Number.isInteger(value * 2 ** digits);
  return tie ? ((2 * Math.round((value * 10 ** digits) / 2)) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

/** A cost in words, with its unit. */
export const passes = (cost) => `${fixed(cost, 1)} one-token passes`;

export const capital = (words) => words.slice(0, 1).toUpperCase() + words.slice(1);
export const percent = (share) => Math.round(share * 100) + "%";
export const share = (p) => (p > 0 && p < 0.005 ? "<1%" : percent(p));

const NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split(" ");
/** A number in words up to twelve, else in digits. */
export const inWords = (n) => NUMBERS[n] ?? String(n);
const ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(" ");
export const ordinal = (n) => ORDINALS[n - 1] ?? n + ((n % 100 > 13 && ["", "st", "nd", "rd"][n % 10]) || "th");

/** A number and a noun, in the singular or plural. */
export const count = (n, noun) => `${n} ${plural(n, noun)}`;
/** Like `count`, with the number in words. */
export const countInWords = (n, noun) => `${inWords(n)} ${plural(n, noun)}`;
const plural = (n, noun) => noun + (n === 1 ? "" : noun.endsWith("s") ? "es" : "s");

/** Names the boundary after `n` tokens; `short`: without the word “token”, after another boundary in a list. */
export const afterToken = (n, short = false) =>
  `${n ? `after the ${ordinal(n)}` : "before the first"}${short ? "" : " token"}`;

/** Outcomes of the predicted boundaries: a mark and words for each. Marks differ in shape, not only in colour. */
export const OUTCOMES = {
  repaired: { mark: "●", words: "rescued" },
  found: { mark: "○", words: "right place, no gain" },
  missed: { mark: "✕", words: "wrong place" },
  all: { mark: "▲", words: "all accepted" },
};

export const PROPOSERS = ["first", "second", "target"];
export const PROPOSER_NAMES = { first: "first drafter", second: "second drafter", target: "large model" };
export const STAGES = [
  ["first_draft", "Draft"],
  ["second_draft", "Re-draft"],
  ["tree", "Merge"],
  ["verify", "Verify"],
  ["commit", "Keep"],
];

/** The name of a method; an unknown id is returned unchanged, up to 60 characters. */
export const methodName = (method) =>
  Object.hasOwn(METHOD_NAMES, method) ? METHOD_NAMES[method] : visible(method, 60);

/** The text of a sentence that is made of pieces, of which some have the colour of a proposer. */
export const plain = (pieces) => pieces.map((piece) => piece.text).join("");

export function joined(values) {
  return values.length < 2 ? values.join("") : values.slice(0, -1).join(", ") + " and " + values.at(-1);
}
