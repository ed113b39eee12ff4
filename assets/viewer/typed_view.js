// Be the drafter: one types the tokens that come next, the target accepts or rejects them one by one, then the drafter's draft from
// the same anchor is shown beside it.

import { h } from "./dom.js";
import { actButton, Guessing } from "./guessing.js";
import { asText, compared, drafterSentence, MOST_TYPED, piecesFrom, readTyped, scoreSentence, typedSentence } from "./typed.js";
import { fixed, probability, visible } from "./words.js";

const BEFORE = 240; // characters of the text so far
const RECORDED = "Compared with the recorded text, which is what the target writes at temperature 0.";
const VERIFIED = "Verified by the target at temperature 0, in one pass over the text and your tokens; the numbers are its probabilities of them.";
const SAMPLED = "Above temperature 0 the target draws its tokens, so nobody can say which ones it would have accepted. Run the prompt with temperature 0 to be its drafter.";
const NO_TOKENS = "This log does not hold all tokens, so there is nothing to compare with. Open a trace, or run a prompt.";
const NO_DRAFTS = "Nothing was drafted in this run, so there is no drafter to play against. Choose another method and run it.";

export class TypedView extends Guessing {
  /** `ask(question)` sends a draft to the server, null where there is none; `copy(fields)` copies a link with these, null where
   *  there are no links; `rival`: accepted tokens a step to beat, or null; `changed()`: what may be seen has changed. */
  constructor({ root, store, selection, ask, copy, rival, changed }) {
    super(root, store, selection, "draft", changed);
    Object.assign(this, { ask, rival, number: 0, waiting: null });
    this.before = h("p", { class: "before", dir: "auto", "aria-label": "The text so far" });
    this.field = h("input", { type: "text", maxlength: MOST_TYPED, dir: "auto", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "what comes next …", "aria-label": "The words that come next" });
    this.field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") this.submit();
      else if (event.key === "Escape") this.toggle(false);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const line = actButton("↵", () => this.type("↵"));
    line.title = "A line break";
    line.setAttribute("aria-label", "Type a line break");
    this.row = h("div", { class: "typing" }, this.field, line, actButton("Verify", () => this.submit()), actButton("Skip", () => this.go()));
    this.instead = actButton("Compare with the recorded text instead", () => this.settle(RECORDED));
    this.result = h("ol", { class: "redrafted", "aria-label": "Your tokens" });
    this.facts = h("p", { class: "facts-of" });
    this.link = copy && actButton("Copy challenge", () => copy(this.challenge));
    this.box = h("div", { class: "guess typed", hidden: true, role: "group", "aria-label": "Be the drafter" }, this.said, this.before, this.row, this.instead, this.result, this.facts, this.marks, this.next, this.link, actButton("End", () => this.toggle(false)));
  }

  reset() {
    super.reset();
    this.waiting = null;
    this.field.value = "";
  }

  /** Why nobody can play here; empty where one can. */
  get refusal() {
    if (this.store.manner.sampled) return SAMPLED;
    if (this.store.manner.lacks) return NO_TOKENS;
    return this.store.complete && !this.store.live && !this.open.length && !this.told.size ? NO_DRAFTS : "";
  }

  get asking() {
    return super.asking && !this.refusal;
  }

  get hidden() {
    return this.refusal ? null : super.hidden;
  }

  /** Fields of a link that opens this challenge. */
  get challenge() {
    const mine = [...this.told.values()].map((one) => one.mine);
    return mine.length ? `draft=1&beat=${fixed(mine.reduce((a, b) => a + b, 0) / mine.length, 2)}` : "draft=1";
  }

  go(here = false) {
    this.field.value = "";
    super.go(here);
    this.look(this.row.hidden ? null : this.field);
  }

  /** Brings the game into view, and the keys to where they go on. */
  look(focus) {
    if (focus) focus.focus({ preventScroll: true });
    this.box.scrollIntoView({ block: "nearest" });
  }

  type(words) {
    this.field.setRangeText(words, this.field.selectionStart, this.field.selectionEnd, "end");
    this.field.focus();
  }

  submit() {
    const step = this.selection.shown;
    const words = asText(this.field.value);
    if (!this.asking || !words.trim()) return this.field.focus();
    this.number += 1;
    this.waiting = { step, words, number: this.number };
    if (!this.ask) return this.settle(RECORDED);
    this.ask({ key: this.store.key, step, words, number: this.number });
    this.show();
  }

  /** An answer to an older question is dropped; one that is a problem leaves the recorded text to compare with. */
  hear(raw) {
    if (!this.waiting || !raw || raw.number !== this.waiting.number) return;
    if (raw.problem) this.settle(`${raw.problem} ${RECORDED}`);
    else this.settle(VERIFIED, readTyped(raw));
  }

  settle(source, answer = null) {
    const { step, words } = this.waiting;
    const { drafted, boundary, counts } = { ...this.store.summaries[step], drafted: this.store.step(step).drafted };
    const found = answer || compared(piecesFrom(this.store, step), words, drafted);
    this.waiting = null;
    this.field.value = "";
    this.tell(step, { right: found.accepted >= boundary, mine: found.accepted, first: boundary, all: counts.first + counts.second, drafted, found, source });
    this.look(this.next.hidden ? null : this.next);
  }

  show() {
    if (!this.showState()) return;
    const { asking, refusal, store, told } = this;
    const shown = this.selection.shown;
    const here = told.get(shown);
    const busy = asking && this.waiting !== null && this.waiting.step === shown;
    this.row.hidden = this.before.hidden = !asking;
    this.field.disabled = busy;
    this.instead.hidden = !busy;
    this.next.hidden ||= Boolean(refusal);
    if (this.link) this.link.hidden = Boolean(refusal);
    if (asking) this.showBefore(shown);
    const question = busy ? "The target reads your tokens …" : `Step ${shown + 1}: you are the drafter. Write what comes next, as far as you dare.`;
    const name = store.names.first;
    this.said.replaceChildren(refusal || (asking ? h("b", {}, question) : here ? h("b", {}, typedSentence(here.found)) : "Nothing was drafted in this step."));
    this.result.hidden = !here;
    this.result.replaceChildren(...(here ? here.found.tokens.map((token, at) => tokenItem(token, at, here.found)) : []));
    const score = refusal ? "" : scoreSentence(name, [...told.values()], this.rival);
    this.facts.replaceChildren(...(here ? [`${drafterSentence(name, { drafted: here.drafted, boundary: here.first }, here.all)} `, h("span", { class: "source" }, here.source), " "] : []), h("b", {}, score));
  }

  /** The end of the text that the draft goes on from; before a short one the end of the prompt. */
  showBefore(step) {
    const { committed, opening, prompt } = this.store;
    const [last, ...earlier] = [...opening, ...committed.slice(0, step).flat()].reverse().map((token) => token.text);
    const before = earlier.slice(0, BEFORE).reverse().join("").slice(-BEFORE);
    const asked = before.length < BEFORE / 3 ? prompt.slice(-BEFORE / 2) : "";
    this.before.replaceChildren(...(asked ? [h("span", { class: "prompt" }, asked), " "] : []), asked ? "" : "… ", before, h("b", { title: "The anchor: the last certain token" }, last ?? ""), h("span", { class: "caret", "aria-hidden": "true" }));
    this.before.scrollTop = this.before.scrollHeight;
  }

  /** The marks say how many tokens of one's own were accepted. */
  sign({ mine }) {
    return mine;
  }

  words({ mine, first }) {
    return `you ${mine}, the ${this.store.names.first} ${first}`;
  }
}

function tokenItem({ text: words, p }, at, { accepted, wanted }) {
  const [state, said] = at < accepted ? ["right", "accepted"] : at === accepted && wanted !== null ? ["wrong", "rejected"] : ["unseen", "not reached"];
  return h("li", { class: state }, h("bdi", {}, visible(words, 24)), p === null ? "" : ` ${probability(p)}`, h("span", { class: "spoken" }, ` ${said}`));
}
