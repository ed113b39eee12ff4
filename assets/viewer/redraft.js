// What if a second draft had started here? What it would have added to the shown step, from a place that somebody picks.

import { button, h } from "./dom.js";
import { capital, count, joined, percent, afterToken, probability, quoted, visible } from "./words.js";

const NO_ENGINE =
  "This file holds the recorded run without its models. Open the run in the D²SD Explorer page where they are loaded, and ask there.";
const NOT_REACHED = { accepted: 0, wanted: null }; // where the target wanted another token within the prefix
const UNSEEN = 2; // tokens behind the rejected one, until all are asked for

/** What the server answers: a problem as a sentence, or the fields of a `d2sd.whatif.questions.Redraft`. */
export const readAnswer = ({ texts = [], confidence, ...raw }) => ({
  ...raw,
  tokens: texts.map((text, at) => ({ text, p: confidence[at] })),
});

/** What came of it, as a sentence. */
export function redraftSentence(prefix, { tokens, kept, accepted, added, wanted }) {
  const would = "It would have added";
  const end = wanted === null ? "" : `; then the target wanted ${quoted(wanted)}`;
  if (kept < prefix)
    return `${would} nothing: ${wanted === null ? `the text ends after ${kept} of these tokens` : `the target already wanted another token, ${quoted(wanted)}, ${afterToken(kept)}`}.`;
  const words = tokens.slice(accepted - added, accepted).map((t) => visible(t.text));
  if (added) return `${would} ${added}: ${words.join(" ")}${end}.`;
  if (accepted) return `${would} nothing: ${count(accepted, "token")} right, which the first draft has as well.`;
  return `${would} nothing: ${wanted === null ? "the text ends here" : `the target wanted ${quoted(wanted)} for its first token`}.`;
}

/** Beside it, what the second drafts of the step gained; `committed`: tokens of the step. */
export function chosenSentence({ extra, same, ...answer }, committed) {
  const chosen = [...answer.chosen].sort((a, b) => a[0] - b[0]);
  const who = !chosen.length
    ? "The step had no second draft."
    : chosen.length === 1
      ? `The second draft of the step started after ${chosen[0][0]} and gained ${chosen[0][1]}.`
      : `Second drafts started after ${joined(chosen.map(([from]) => from))} tokens and gained ${joined(chosen.map(([, added]) => added))}.`;
  if (same === false) return `${who} This one was drafted again, and a near tie was rounded differently.`;
  if (same) return `${who} This is one of them.`;
  return extra
    ? `${who} With this one the step would have written ${extra} more than its ${count(committed, "token")}.`
    : `${who} This one would not have changed the result.`;
}

export class Redraft {
  /** `ask(question)` sends a question to the server, null where there is none; `changed()`: what is to be shown has. */
  constructor(store, selection, ask, changed) {
    Object.assign(this, { store, selection, ask, changed, now: null, number: 0 });
  }

  reset() {
    this.now = null;
  }

  request(prefix) {
    const step = this.selection.shown;
    if (step === null) return;
    this.number += 1;
    this.now = { step, prefix, number: this.number, answer: this.ask ? null : { problem: NO_ENGINE } };
    this.selection.pin(step);
    if (this.ask) this.ask({ key: this.store.key, step, prefix, number: this.number });
    this.changed();
  }

  /** An answer to an older question is dropped. */
  receive(raw) {
    if (!this.now || this.now.answer || raw.number !== this.now.number) return;
    this.now.answer = readAnswer(raw);
    this.changed();
  }

  /** What was asked of a step, while no node of it is looked at. */
  of(step) {
    return step && this.now && this.now.step === step.index && this.selection.shownNode === null ? this.now : null;
  }

  /** Whether there was something to put away. */
  release(step) {
    if (!this.of(step)) return false;
    this.now = null;
    this.changed();
    return true;
  }

  /** The card of a step; null where nothing was asked of it. */
  card(step) {
    const now = this.of(step);
    if (!now) return null;
    const { prefix, answer, all } = now;
    const close = button("✕", { class: "icon close", "aria-label": "Close the what-if" }, () => this.release(step));
    const title = h("div", { class: "title" }, h("b", {}, `What if a second draft had started ${afterToken(prefix)}?`));
    const card = (...parts) => h("div", { class: "card redraft" }, close, title, ...parts);
    if (!answer || answer.problem) return card(h("p", {}, answer ? capital(answer.problem) : "Drafting again …"));
    const items = answer.tokens.map((token, at) => tokenItem(token, at, answer.kept === prefix ? answer : NOT_REACHED));
    const shown = all ? items.length : answer.accepted + 1 + UNSEEN;
    const more = button(
      `+${items.length - shown}`,
      { "aria-label": `Show the ${items.length - shown} tokens behind, which the target did not reach` },
      () => {
        now.all = true;
        this.changed();
      },
    );
    return card(
      h("p", {}, redraftSentence(prefix, answer)),
      h("p", {}, chosenSentence(answer, step.committed.length)),
      h(
        "ol",
        { class: "redrafted", "aria-label": "Its tokens, each with its confidence" },
        ...items.slice(0, shown),
        items.length > shown ? h("li", {}, more) : null,
      ),
    );
  }
}

/** A token of a draft that the target was asked about: its text, its probability (null: none), and what came of it, where `accepted`
 *  tokens are right and the next one was not if another was `wanted`. */
export function tokenItem({ text: words, p }, at, { accepted, wanted }, most = 14) {
  const [state, said] =
    at < accepted
      ? ["right", "accepted"]
      : at === accepted && wanted !== null
        ? ["wrong", "rejected"]
        : ["unseen", "not reached"];
  return h(
    "li",
    { class: state },
    h("bdi", {}, visible(words, most)),
    p === null ? "" : ` ${probability(p)}`,
    h("span", { class: "spoken" }, ` ${said}`),
  );
}

/** The places of the strip that one can re-draft from: buttons over its drawing, a column of the tree each. */
export class PlacesView {
  /** `picked(prefix)`: a place was clicked on, or Enter pressed. */
  constructor(strip, picked) {
    Object.assign(this, { strip, buttons: [], step: null });
    this.box = h("div", {
      class: "places",
      role: "toolbar",
      "aria-label": "What if a second draft had started here? Arrows choose a place, Enter asks",
    });
    strip.host.append(this.box);
    strip.placed = () => this.place();
    const at = (event) => this.buttons.indexOf(event.target.closest("button"));
    this.box.addEventListener("click", (event) => {
      if (at(event) < 0) return;
      strip.tooltip.hide(); // it hides what comes
      picked(at(event));
    });
    // a click leaves the arrow keys to the steps
    this.box.addEventListener("mousedown", (event) => event.preventDefault());
    this.box.addEventListener("keydown", (event) => {
      const to = at(event) + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? NaN);
      if (Number.isNaN(to) || event.shiftKey) return;
      event.preventDefault();
      this.focus(Math.min(this.buttons.length - 1, Math.max(0, to)));
    });
  }

  /** One of them is reached with Tab, the others from there. */
  focus(at) {
    this.buttons.forEach((place, n) => (place.tabIndex = n === at ? 0 : -1));
    this.buttons[at].focus();
  }

  /** Where they stand follows the tree; they themselves stay, and so does the focus. */
  place() {
    const { strip } = this;
    const step = strip.step && strip.step.draft ? strip.step : null;
    const shares = step && step.posterior.length ? [...step.posterior, step.full] : [];
    for (const spare of this.buttons.splice(shares.length)) spare.remove();
    while (this.buttons.length < shares.length) {
      this.buttons.push(button("", { tabindex: this.buttons.length ? -1 : 0 }));
      this.box.append(this.buttons.at(-1));
    }
    if (this.buttons.length && this.buttons.every(({ tabIndex }) => tabIndex < 0)) this.buttons[0].tabIndex = 0;
    this.box.hidden = !shares.length;
    const top = strip.band.bars[1] + 2;
    Object.assign(this.box.style, {
      top: `${top * strip.scale}px`,
      height: `${(strip.band.height - top) * strip.scale}px`,
    });
    shares.forEach((r, at) => {
      const [left, right] = [at, at + 1].map((depth) => strip.x(depth) * strip.scale);
      Object.assign(this.buttons[at].style, {
        left: `${left.toFixed(1)}px`,
        width: `${Math.max(0, right - left).toFixed(1)}px`,
      });
      this.buttons[at].setAttribute("aria-label", `What if: ${afterToken(at)}, ${percent(r)}`);
    });
  }

  mark(prefix) {
    this.buttons.forEach((place, at) => place.setAttribute("aria-pressed", at === prefix));
  }
}
