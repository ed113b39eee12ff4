// Be the drafter: the user types the next tokens into the text, and the target accepts or rejects them one by one. Without a target they
// are compared with the recorded text. Then the tree shows them as a lane above the recorded drafts from the same anchor.

import { button, h, sum } from "./dom.js";
import { capital, count, fixed, inWords } from "./words.js";
import { Guessing } from "./quiz.js";
import { typedNodes } from "./step.js";
import { chosenWords } from "./tree_layout.js";

const MOST_TYPED = 400; // characters; the server's limit
const MOST_TOKENS = 512; // recorded tokens to compare with

/** Typed words as plain text: ␣ and ↵ become spaces and line breaks. */
export const asText = (typed) => typed.slice(0, MOST_TYPED).replaceAll("␣", " ").replaceAll("↵", "\n");

/** Adds or removes the space before typed words, as in the recorded text: the user cannot see whether one is needed. */
export function spaced(pieces, words) {
  const next = pieces.find(Boolean) || "";
  if (next.startsWith(" ") && !/^\s/.test(words)) return ` ${words}`;
  return words.startsWith(" ") && next && !/^\s/.test(next) ? words.slice(1) : words;
}

/** How many pieces the words begin with, and how many characters these pieces have. An empty piece is a part of a character and counts
 *  together with the piece that completes the character. */
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
const piecesFrom = (store, step) =>
  store.committed
    .slice(step)
    .flatMap((tokens) => tokens.map((token) => token.text))
    .slice(0, MOST_TOKENS);

/** Compares a typed draft with the recorded text, which is the target's text at temperature 0. `room`: maximum tokens of a draft. Words
 *  after the first difference count as tokens. */
export function compared(pieces, typed, room) {
  const words = spaced(pieces, typed);
  const [agreed, read] = agreeing(pieces, words);
  const all = [...pieces.slice(0, agreed), ...(words.slice(read).match(/\s*\S+|\s+$/g) ?? [])];
  const accepted = Math.min(agreed, room);
  return {
    tokens: all.slice(0, room).map((text) => ({ text, p: null })),
    accepted,
    wanted: pieces.slice(accepted).find(Boolean) ?? null,
    cut: Math.max(0, all.length - room),
  };
}

/** Reads the server's answer: the fields of a `d2sd.replay.questions.TypedDraft`. */
const readTyped = ({ texts, probabilities, accepted, wanted, cut }) => ({
  tokens: texts.map((text, at) => ({ text, p: probabilities[at] })),
  accepted,
  wanted,
  cut,
});

/** The result as a headline: the accepted tokens of the user, of the first draft (`first`) and of the whole tree (`all`). */
export function typedHeadline({ tokens, accepted, wanted, cut }, first, all) {
  const number = (n) => (n ? inWords(n) : "none");
  const goesOn = accepted === tokens.length ? "continues with" : "chose";
  const next = [
    { text: `${accepted ? "Then the" : "The"} large model ${goesOn} ` },
    { text: `“${chosenWords(wanted ?? "")}”`, kind: "target" },
    { text: "." },
  ];
  const more = [
    all > first ? ` The whole tree: ${number(all)}.` : "",
    cut ? ` ${count(cut, "more token")} did not fit into the draft.` : "",
  ];
  return {
    title: `You: ${number(accepted)} accepted. The first draft: ${number(first)}.`,
    pieces: [...(wanted === null ? [{ text: "There the recorded text ends." }] : next), { text: more.join("") }],
  };
}

/** The score over a run. `answers`: for every played step the accepted tokens of the user (`mine`), of the first draft (`first`) and of
 *  the whole tree (`all`); `rival`: a score to beat, or null. */
export function scoreSentence(answers, rival) {
  const steps = answers.length;
  const beat = rival === null ? "" : `to beat: ${fixed(rival, 2)}`;
  if (steps < 2) return beat && `${capital(beat)} accepted tokens a step.`;
  const mean = (key) => fixed(sum(answers.map((one) => one[key])) / steps, 2);
  const whole = mean("all") === mean("first") ? "" : `, whole tree ${mean("all")}`;
  return `Accepted tokens a step, over ${steps} steps: you ${mean("mine")}, first draft ${mean("first")}${whole}${beat && `; ${beat}`}.`;
}

const HINT = "what comes next?";
const RECORDED = "Compared with the recorded text, which is the large model’s text at temperature 0.";
const VERIFIED = "Verified by the large model at temperature 0.";
const SAMPLED =
  "Above temperature 0 the large model draws its tokens at random, so it is not known which of your tokens it would have accepted. Run the prompt at temperature 0 to be its drafter.";
const NO_TOKENS =
  "This log does not hold all tokens, so there is nothing to compare with. Open a trace, or run a prompt.";
const NO_DRAFTS =
  "Nothing was drafted in this run, so there is no drafter to play against. Choose another method and run it.";

export class TypedView extends Guessing {
  question = {
    title: "You are the drafter.",
    more: "Type into the text what comes next. Enter verifies, Escape ends.",
  };

  /** `written`: the elements of the text's tokens, by step; `server(event, data)` sends an event, null without a server; `share` copies
   *  links; `rival`: accepted tokens a step to beat, or null. */
  constructor({ root, store, state, written, server, share, rival }) {
    super(root, store, state, "draft");
    Object.assign(this, { written, server, rival, number: 0 });
    this.field = h("span.typing", {
      contenteditable: "plaintext-only",
      role: "textbox",
      dir: "auto",
      autocapitalize: "off",
      spellcheck: "false",
      "data-hint": HINT,
      ariaLabel: "The words that come next",
      ariaPlaceholder: HINT,
      oninput: () => state.set({ typed: this.field.textContent }),
      onkeydown: (event) => this.press(event),
    });
    this.verify = button("Verify", {}, () => this.submit());
    this.names = h("ol.names", { ariaLabel: "Your tokens" });
    this.link = server && button("Copy link to challenge others", { class: "quiet" }, () => share.copy(this.challenge));
    this.box = h(
      "div.guess.typed",
      { hidden: true, role: "group", ariaLabel: "Be the drafter" },
      this.verify,
      this.next,
      this.link,
      button("End", { class: "quiet" }, () => this.toggle(false)),
      this.said,
      this.names,
    );
  }

  press(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && event.shiftKey) document.execCommand("insertText", false, "↵");
    else if (event.key === "Enter") this.submit();
    else if (event.key === "Escape") this.toggle(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The reason why this run cannot be played, else "". */
  get refusal() {
    if (this.store.manner.sampled) return SAMPLED;
    if (this.store.manner.lacks) return NO_TOKENS;
    return this.store.complete && !this.store.live && !this.open.length && !this.guesses.length ? NO_DRAFTS : "";
  }

  get asking() {
    return super.asking && !this.refusal;
  }

  get hidden() {
    return this.refusal ? null : super.hidden;
  }

  get guesses() {
    return Object.values(this.answers);
  }

  get challenge() {
    const mine = this.guesses.map((one) => one.mine);
    return mine.length ? `draft=1&beat=${fixed(sum(mine) / mine.length, 2)}` : "draft=1";
  }

  go(here = false) {
    super.go(here);
    this.state.set({ typed: "" });
    this.looking = true;
  }

  /** The answer for the shown step; null without one. */
  get told() {
    return (this.on && this.here) || null;
  }

  /** Focuses what is used next, after an answer or a new question. */
  look() {
    this.looking = false;
    [this.field, this.next].find((part) => part.checkVisibility())?.focus();
  }

  submit() {
    const step = this.state.shown;
    const words = asText(this.state.now.typed);
    if (!this.asking || !words.trim()) return this.field.focus();
    this.number += 1;
    this.state.set({ waiting: { step, words, number: this.number } });
    if (!this.server) return this.settle(RECORDED);
    this.server("typed", { key: this.store.key, step, words, number: this.number });
  }

  /** Takes the server's answer; answers to older questions are dropped. If the answer is a problem, the recorded text is used. */
  receive(raw) {
    if (raw.number !== this.state.now.waiting?.number) return;
    if (raw.problem) this.settle(`${raw.problem} ${RECORDED}`);
    else this.settle(VERIFIED, readTyped(raw));
  }

  settle(source, answer = null) {
    const { step, words } = this.state.now.waiting;
    const { boundary: first, counts } = this.store.summaries[step];
    const result = answer || compared(piecesFrom(this.store, step), words, this.store.step(step).drafted);
    const all = counts.first + counts.second;
    const headline = typedHeadline(result, first, all);
    this.state.set({ waiting: null, typed: "" });
    this.answer(step, { mine: result.accepted, first, all, result, headline, source });
    this.looking = true;
  }

  show({ typed, waiting }) {
    const { asking, refusal, field, told, open } = this;
    const { shown } = this.state;
    const [token] = (asking && this.written[shown]) || [];
    if (!token) field.remove();
    else if (token.previousSibling !== field) token.before(field);
    if (!this.showState()) return;
    if (!typed || field.textContent !== typed) field.textContent = typed;
    this.verify.hidden = !asking;
    this.next.textContent = asking ? "Skip" : "Next";
    this.next.hidden = Boolean(refusal) || open.length < (asking ? 2 : 1);
    if (this.link) this.link.hidden = Boolean(refusal);
    const score = scoreSentence(this.guesses, this.rival);
    const reads = asking && waiting?.step === shown && "The large model reads your tokens …";
    const words = told ? `${told.source} ${score}` : asking ? score : "Nothing was drafted in this step.";
    this.said.textContent = refusal || reads || words;
    const nodes = told ? [...typedNodes(told.result).values()] : [];
    this.names.hidden = !told;
    this.names.replaceChildren(...nodes.map(({ name }) => h("li", {}, name)));
    if (this.looking) this.look();
  }
}
