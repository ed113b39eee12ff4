// What came of a reader's own draft: the target's answer, or a comparison with the recorded text where no target is at hand.

import { list, number, text, whole } from "./dom.js";
import { capital, count, fixed, quoted } from "./words.js";

export const MOST_TYPED = 400; // characters, as the server reads at most
const MOST_TOKENS = 512;

/** Typed words as the models read them: the marks that spaces and line breaks are drawn as stand for them. */
export const asText = (typed) => text(typed).slice(0, MOST_TYPED).replaceAll("␣", " ").replaceAll("↵", "\n");

/** Words with a space before them, or none, as the text has that they go on in: nobody can see which it is. */
export function spaced(pieces, words) {
  const first = pieces.find(Boolean) || "";
  if (first.startsWith(" ") && !/^\s/.test(words)) return ` ${words}`;
  return words.startsWith(" ") && first && !/^\s/.test(first) ? words.slice(1) : words;
}

/** How many of these pieces the words begin with, and the characters of those. A piece without text is a part of a character; it
 *  counts with the piece that completes it. */
export function agreeing(pieces, words) {
  let [agreed, read] = [0, 0];
  for (const [at, piece] of pieces.entries()) {
    if (read === words.length || !words.startsWith(piece, read)) break;
    read += piece.length;
    agreed = piece ? at + 1 : agreed;
  }
  return [agreed, read];
}

/** The recorded text from a step on, token by token. */
export const piecesFrom = (store, step) => store.committed.slice(step).flatMap((tokens) => tokens.map((token) => token.text)).slice(0, MOST_TOKENS);

/** What the recorded text says of a draft: at temperature 0 it is what the target writes. `room`: tokens that a draft may have. */
export function compared(pieces, typed, room) {
  const words = spaced(pieces, typed);
  const [agreed, read] = agreeing(pieces, words);
  const accepted = Math.min(agreed, room);
  const behind = words.slice(read);
  const full = agreed >= room;
  return {
    tokens: [...pieces.slice(0, accepted), ...(behind && !full ? [behind] : [])].map((piece) => ({ text: piece, p: null })),
    accepted,
    wanted: pieces.slice(accepted).find(Boolean) ?? null,
    cut: agreed > room || (full && behind !== ""),
  };
}

/** What the server answers: the fields of a `d2sd.whatif.questions.TypedDraft`. */
export function readTyped(raw) {
  const chances = list(raw.probabilities);
  const tokens = list(raw.texts).slice(0, MOST_TOKENS).map((t, at) => ({ text: text(t), p: number(chances[at], 0, 1, 0) }));
  return { tokens, accepted: whole(raw.accepted, 0, tokens.length, 0), wanted: text(raw.wanted), cut: number(raw.cut, 0, 1e9, 0) > 0 };
}

export function typedSentence({ tokens, accepted, wanted, cut }) {
  const next = wanted === null ? "; there the recorded text ends" : accepted === tokens.length ? `; the target goes on with ${quoted(wanted)}` : accepted ? `; then the target wanted ${quoted(wanted)}` : `; the target wanted ${quoted(wanted)}`;
  const of = accepted === tokens.length ? (accepted === 1 ? "your one token was" : `all ${accepted} of your tokens were`) : `${accepted || "none"} of your ${count(tokens.length, "token")} ${accepted === 1 ? "was" : "were"}`;
  return `${capital(of)} accepted${next}.${cut ? " What stood behind them had no room in the draft." : ""}`;
}

/** The drafter from the same anchor. `name`: what it is called; `all`: tokens of the whole step that were accepted. */
export function drafterSentence(name, { drafted, boundary }, all) {
  const more = all > boundary ? ` The whole tree of the step: ${all}.` : "";
  return `${capital(name)}: ${boundary} of ${drafted} accepted.${more}`;
}

/** The score over a run; `told`: of every step that was played the tokens accepted, `mine`, the first draft's and those of `all`. */
export function scoreSentence(name, told, rival) {
  const steps = told.length;
  if (!steps) return rival === null ? "" : `To beat: ${fixed(rival, 2)} accepted tokens a step.`;
  const mean = (key) => fixed(told.reduce((sum, one) => sum + one[key], 0) / steps, 2);
  const whole = mean("all") === mean("first") ? "" : `, the whole tree ${mean("all")}`;
  return `Accepted a step, over ${count(steps, "step")}: you ${mean("mine")}, the ${name} ${mean("first")}${whole}${rival === null ? "" : `; to beat: ${fixed(rival, 2)}`}.`;
}
