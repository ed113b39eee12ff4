// Be the drafter: the user types the next tokens, and the target accepts or rejects them one by one. Without a target they are compared with
// the recorded text. Then the result of the real drafter from the same anchor is shown.

import { button, h, sum } from "./dom.js";
import { capital, count, fixed, quoted } from "./words.js";
import { Guessing } from "./quiz.js";
import { tokenItem } from "./redraft.js";

const MOST_TYPED = 400; // characters; the server's limit
const MOST_TOKENS = 512; // recorded tokens to compare with
const MOST_SHOWN = 24; // characters of a token

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

/** Compares a typed draft with the recorded text, which is the target's text at temperature 0. `room`: maximum tokens of a draft. */
export function compared(pieces, typed, room) {
  const words = spaced(pieces, typed);
  const [agreed, read] = agreeing(pieces, words);
  const accepted = Math.min(agreed, room);
  const behind = words.slice(read);
  const full = agreed >= room;
  return {
    tokens: [...pieces.slice(0, accepted), ...(behind && !full ? [behind] : [])].map((piece) => ({
      text: piece,
      p: null,
    })),
    accepted,
    wanted: pieces.slice(accepted).find(Boolean) ?? null,
    cut: agreed > room || (full && behind !== ""),
  };
}

/** Reads the server's answer: the fields of a `d2sd.replay.questions.TypedDraft`. */
const readTyped = ({ texts, probabilities, accepted, wanted, cut }) => ({
  tokens: texts.map((text, at) => ({ text, p: probabilities[at] })),
  accepted,
  wanted,
  cut: cut > 0,
});

export function typedSentence({ tokens, accepted, wanted, cut }) {
  const next =
    wanted === null
      ? "; there the recorded text ends"
      : `; the large model ${accepted === tokens.length ? "continues with" : "chose"} ${quoted(wanted)}`;
  const of =
    accepted === tokens.length
      ? accepted === 1
        ? "your one token was"
        : `all ${accepted} of your tokens were`
      : `${accepted || "none"} of your ${count(tokens.length, "token")} ${accepted === 1 ? "was" : "were"}`;
  return `${capital(of)} accepted${next}.${cut ? " The rest did not fit into the draft." : ""}`;
}

/** The result of the drafter from the same anchor. `name`: the drafter's name; `all`: drafted tokens accepted in the whole step. */
export function drafterSentence(name, { drafted, boundary }, all) {
  const more = all > boundary ? ` With the whole tree of the step: ${all}.` : "";
  return `${capital(name)}: ${boundary} of ${drafted} tokens accepted.${more}`;
}

/** The score over a run. `answers`: for every played step the accepted tokens of the user (`mine`), of the first draft (`first`) and of
 *  the whole tree (`all`); `rival`: a score to beat, or null. */
export function scoreSentence(name, answers, rival) {
  const steps = answers.length;
  if (!steps) return rival === null ? "" : `To beat: ${fixed(rival, 2)} accepted tokens per step.`;
  const mean = (key) => fixed(sum(answers.map((one) => one[key])) / steps, steps === 1 ? 0 : 2);
  const whole = mean("all") === mean("first") ? "" : `, whole tree ${mean("all")}`;
  const mine = steps === 1 ? "Accepted tokens so far" : `Accepted tokens per step, over ${steps} steps`;
  return `${mine}: you ${mean("mine")}, ${name} ${mean("first")}${whole}${rival === null ? "" : `; to beat: ${fixed(rival, 2)}`}.`;
}

const BEFORE = 240; // characters of the text so far
const RECORDED = "Compared with the recorded text, which is the large model’s text at temperature 0.";
const VERIFIED =
  "Verified by the large model at temperature 0, in one pass over the text and your tokens. The numbers are its probabilities of your tokens.";
const SAMPLED =
  "Above temperature 0 the large model draws its tokens at random, so it is not known which of your tokens it would have accepted. Run the prompt at temperature 0 to be its drafter.";
const NO_TOKENS =
  "This log does not hold all tokens, so there is nothing to compare with. Open a trace, or run a prompt.";
const NO_DRAFTS =
  "Nothing was drafted in this run, so there is no drafter to play against. Choose another method and run it.";

export class TypedView extends Guessing {
  question = { title: "You are the drafter.", more: "Type what comes next, as many tokens as you like." };

  /** `server(event, data)` sends an event, null without a server; `share` copies links; `rival`: accepted tokens per step to beat, or
   *  null. */
  constructor({ root, store, state, server, share, rival }) {
    super(root, store, state, "draft");
    Object.assign(this, { server, rival, number: 0 });
    this.before = h("p.before", { dir: "auto", ariaLabel: "The text so far" });
    this.field = h("input", {
      type: "text",
      maxlength: MOST_TYPED,
      dir: "auto",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      placeholder: "what comes next …",
      ariaLabel: "The words that come next",
      oninput: () => state.set({ typed: this.field.value }),
      onkeydown: (event) => this.press(event),
    });
    const line = button("↵", { title: "A line break", ariaLabel: "Type a line break" }, () => this.type("↵"));
    this.row = h(
      "div.typing",
      {},
      this.field,
      line,
      button("Verify", {}, () => this.submit()),
      button("Skip", {}, () => this.go()),
    );
    this.instead = button("Compare with the recorded text instead", {}, () => this.settle(RECORDED));
    this.result = h("ol.redrafted", { ariaLabel: "Your tokens" });
    this.facts = h("p.facts-of", {});
    this.link = server && button("Copy link to challenge others", {}, () => share.copy(this.challenge));
    this.box = h(
      "div.guess.typed",
      { hidden: true, role: "group", ariaLabel: "Be the drafter" },
      this.said,
      this.before,
      this.row,
      this.instead,
      this.result,
      this.facts,
      this.marks,
      this.next,
      this.link,
      button("End", {}, () => this.toggle(false)),
    );
  }

  press(event) {
    if (event.isComposing) return;
    if (event.key === "Enter") this.submit();
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

  /** Scrolls the game into view after an answer or a new question, and focuses what is used next. */
  look() {
    this.looking = false;
    [this.field, this.next].find((part) => part.checkVisibility())?.focus({ preventScroll: true });
    this.box.scrollIntoView({ block: "nearest" });
  }

  type(words) {
    this.field.setRangeText(words, this.field.selectionStart, this.field.selectionEnd, "end");
    this.state.set({ typed: this.field.value });
    this.field.focus();
  }

  submit() {
    const step = this.state.shown;
    const words = asText(this.field.value);
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
    const { drafted, boundary, counts } = { ...this.store.summaries[step], drafted: this.store.step(step).drafted };
    const result = answer || compared(piecesFrom(this.store, step), words, drafted);
    this.state.set({ waiting: null, typed: "" });
    this.answer(step, {
      right: result.accepted >= boundary,
      mine: result.accepted,
      first: boundary,
      all: counts.first + counts.second,
      drafted,
      result,
      source,
    });
    this.looking = true;
  }

  show({ typed, waiting }) {
    if (!this.showState()) return;
    const { asking, refusal, store, here } = this;
    const { shown } = this.state;
    const busy = asking && waiting?.step === shown;
    if (this.field.value !== typed) this.field.value = typed;
    this.row.hidden = this.before.hidden = !asking;
    this.field.disabled = busy;
    this.instead.hidden = !busy;
    this.next.hidden ||= Boolean(refusal);
    if (this.link) this.link.hidden = Boolean(refusal);
    if (asking) this.showBefore(shown);
    const question = busy ? "The large model reads your tokens …" : `Step ${shown + 1}: what comes next?`;
    const name = store.names.first;
    this.said.replaceChildren(
      refusal ||
        (asking
          ? h("b", {}, question)
          : here
            ? h("b", {}, typedSentence(here.result))
            : "Nothing was drafted in this step."),
    );
    this.result.hidden = !here;
    this.result.replaceChildren(
      ...(here ? here.result.tokens.map((token, at) => tokenItem(token, at, here.result, MOST_SHOWN)) : []),
    );
    const score = refusal ? "" : scoreSentence(name, this.guesses, this.rival);
    this.facts.replaceChildren(
      ...(here
        ? [
            `${drafterSentence(name, { drafted: here.drafted, boundary: here.first }, here.all)} `,
            h("span.source", {}, here.source),
            " ",
          ]
        : []),
      h("b", {}, score),
    );
    if (this.looking) this.look();
  }

  /** Shows the end of the text that the draft continues; if it is short, also the end of the prompt. */
  showBefore(step) {
    const { committed, opening, prompt } = this.store;
    const [last, ...earlier] = [...opening, ...committed.slice(0, step).flat()].reverse().map((token) => token.text);
    const before = earlier.slice(0, BEFORE).reverse().join("").slice(-BEFORE);
    const question = before.length < BEFORE / 3 ? prompt.slice(-BEFORE / 2) : "";
    this.before.replaceChildren(
      ...(question ? [h("span.prompt", {}, question), " "] : []),
      question ? "" : "… ",
      before,
      h("b", { title: "The anchor: the last certain token" }, last ?? ""),
      h("span.caret", { ariaHidden: true }),
    );
    this.before.scrollTop = this.before.scrollHeight;
  }

  /** The mark of a step: accepted tokens of the user. */
  sign({ mine }) {
    return mine;
  }

  words({ mine, first }) {
    return `you ${mine}, the ${this.store.names.first} ${first}`;
  }
}
