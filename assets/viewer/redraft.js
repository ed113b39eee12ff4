// What if a second draft had started here? The user picks a position, and the server drafts from it.

import { button, clamp, closeButton, h } from "./dom.js";
import { capital, count, joined, ordinal, percent, afterToken, probability, quoted, visible } from "./words.js";

const NO_ENGINE =
  "This file holds the recorded run without its models. To ask this, open the run in D²SD Explorer with its models loaded.";
const NOT_REACHED = { accepted: 0, wanted: null }; // the target rejected a token of the prefix
const UNSEEN = 2; // tokens shown after the rejected one, until the user opens the rest

/** Reads the server's answer: a problem as a sentence, or the fields of a `d2sd.replay.questions.Redraft`. */
export const readAnswer = ({ texts = [], confidence, ...raw }) => ({
  ...raw,
  tokens: texts.map((text, at) => ({ text, p: confidence[at] })),
});

/** The result of the re-draft as a sentence. */
export function redraftSentence(prefix, { tokens, kept, accepted, added, wanted }) {
  const would = "It would have added";
  const end = wanted === null ? "" : `; then the large model chose ${quoted(wanted)}`;
  if (kept < prefix)
    return `${would} nothing: ${wanted === null ? `the text ends before this place` : `the large model had already rejected the ${ordinal(kept + 1)} token of the first draft; it chose ${quoted(wanted)}`}.`;
  const words = tokens.slice(accepted - added, accepted).map((t) => visible(t.text));
  if (added) return `${would} ${count(added, "token")}: ${words.join(" ")}${end}.`;
  if (accepted)
    return `${would} nothing: ${count(accepted, "token")} would be accepted, but the first draft had ${accepted > 1 ? "them" : "it"} already.`;
  return `${would} nothing: ${wanted === null ? "the text ends here" : `the large model chose ${quoted(wanted)} as the first token`}.`;
}

/** Compares the re-draft with the second drafts of the step; `committed`: number of tokens of the step. */
export function chosenSentence({ extra, same, ...answer }, committed) {
  const chosen = [...answer.chosen].sort((a, b) => a[0] - b[0]);
  const who = !chosen.length
    ? "The step had no second draft."
    : chosen.length === 1
      ? `The second draft of the step started ${afterToken(chosen[0][0])} and added ${chosen[0][1]}.`
      : `Second drafts started after ${joined(chosen.map(([from]) => from))} tokens and added ${joined(chosen.map(([, added]) => added))}.`;
  if (same === false)
    return `${who} From this place, the step drafted other tokens, because rounding decided a near tie differently.`;
  if (same) return `${who} From this place, the step drafted the same tokens.`;
  return extra
    ? `${who} With the re-draft shown here, the step would have written ${extra} more than its ${count(committed, "token")}.`
    : `${who} The re-draft shown here would not have changed the result.`;
}

export class Redraft {
  /** `server(event, data)` sends an event; null without a server. */
  constructor(store, state, server) {
    Object.assign(this, { store, state, server, number: 0 });
  }

  request(prefix) {
    const step = this.state.shown;
    if (step === null) return;
    this.number += 1;
    const question = { step, prefix, number: this.number, answer: this.server ? null : { problem: NO_ENGINE } };
    this.state.pin(step, null, { question });
    this.server?.("redraft", { key: this.store.key, step, prefix, number: this.number });
  }

  /** Takes the server's answer; answers to older questions are dropped. */
  receive(raw) {
    const { question } = this.state.now;
    if (question && !question.answer && raw.number === question.number)
      this.state.set({ question: { ...question, answer: readAnswer(raw) } });
  }

  /** The question about the shown step, with its answer; null without a question, or if a node of the step is selected. */
  get here() {
    const { now, shown, shownNode } = this.state;
    return now.question?.step === shown && shownNode === null ? now.question : null;
  }

  /** Closes the question about the shown step; returns whether there was one. */
  release() {
    const { here } = this;
    if (here) this.state.set({ question: null });
    return here !== null;
  }

  /** The card with question and answer of a step; null without a question. */
  card(step) {
    const { here } = this;
    if (!here) return null;
    const { prefix, answer, all } = here;
    const close = closeButton("Close the what-if", () => this.release());
    const title = h("div.title", {}, h("b", {}, `What if a second draft had started ${afterToken(prefix)}?`));
    const card = (...parts) => h("div.card.redraft", {}, close, title, ...parts);
    if (!answer || answer.problem) return card(h("p", {}, answer ? capital(answer.problem) : "Drafting again …"));
    const items = answer.tokens.map((token, at) => tokenItem(token, at, answer.kept === prefix ? answer : NOT_REACHED));
    const shown = all ? items.length : answer.accepted + 1 + UNSEEN;
    const more = button(
      `+${items.length - shown}`,
      { ariaLabel: `Show ${items.length - shown} more tokens, which the large model did not reach` },
      () => this.state.set({ question: { ...here, all: true } }),
    );
    return card(
      h("p", {}, redraftSentence(prefix, answer)),
      h("p", {}, chosenSentence(answer, step.committed.length)),
      h(
        "ol.redrafted",
        { ariaLabel: "Tokens of the second draft, each with its confidence" },
        ...items.slice(0, shown),
        items.length > shown ? h("li", {}, more) : null,
      ),
    );
  }
}

/** List item for a token of a draft: its text, its probability `p`, and its fate. The first `accepted` tokens were accepted;
 *  the next one was rejected if another token was `wanted`. */
function tokenItem({ text: words, p }, at, { accepted, wanted }) {
  const [state, said] =
    at < accepted
      ? ["right", "accepted"]
      : at === accepted && wanted !== null
        ? ["wrong", "rejected"]
        : ["unseen", "not reached"];
  return h(
    "li",
    { class: state },
    h("bdi", {}, visible(words, 14)),
    ` ${probability(p)}`,
    h("span.spoken", {}, ` ${said}`),
  );
}

/** Buttons over the strip, one for each position where a re-draft can start. `picked(prefix)` is called after a click on a position, or
 *  Enter. */
export function placesView(strip, tooltip, picked) {
  const buttons = [];
  const box = h("div.places", {
    role: "toolbar",
    ariaLabel: "What if a second draft had started here? Choose a place with the arrow keys, ask with Enter",
    // a click must not move the focus: the arrow keys go on to change the step
    onmousedown: (event) => event.preventDefault(),
    onkeydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.shiftKey) return;
      event.preventDefault();
      focus(clamp(buttons.indexOf(event.target) + by, 0, buttons.length - 1));
    },
  });
  strip.host.append(box);
  strip.placed = place;

  function ask(prefix) {
    tooltip.hide(); // it would cover the answer
    picked(prefix);
  }

  /** Roving tabindex: Tab reaches one button, arrow keys the others. */
  function focus(at) {
    buttons.forEach((other, n) => (other.tabIndex = n === at ? 0 : -1));
    buttons[at].focus();
  }

  /** Aligns the buttons with the columns of the tree. Buttons are reused, so that the focus stays. */
  function place(step, top, height) {
    const { draft, posterior, full } = step ?? {};
    const shares = draft && posterior.length ? [...posterior, full] : [];
    for (const spare of buttons.splice(shares.length)) spare.remove();
    for (let at = buttons.length; at < shares.length; at += 1) {
      buttons.push(button("", { tabindex: at ? -1 : 0 }, () => ask(at)));
      box.append(buttons[at]);
    }
    if (buttons.length && buttons.every(({ tabIndex }) => tabIndex < 0)) buttons[0].tabIndex = 0;
    box.hidden = !shares.length;
    box.style.top = `${top}px`;
    box.style.height = `${height}px`;
    shares.forEach((r, at) => {
      const [left, right] = [at, at + 1].map(strip.left);
      buttons[at].style.left = `${left.toFixed(1)}px`;
      buttons[at].style.width = `${Math.max(0, right - left).toFixed(1)}px`;
      buttons[at].ariaLabel = `What if: ${afterToken(at)}, ${percent(r)}`;
    });
  }

  function mark(prefix) {
    buttons.forEach((other, at) => (other.ariaPressed = at === prefix));
  }

  return { mark };
}
