// Guessing over a run, step by step: what comes of a step is hidden until one has said what one thinks. The quiz and the reader's own
// draft are such games.

import { h } from "./dom.js";
import { where } from "./finder.js";

const MOST_MARKS = 64; // more do not fit under a tree

/** The steps that can be asked about: something was drafted, and it is known how much of it was accepted. */
export const askedSteps = (summaries) => where(summaries, (s) => s.boundary !== null && !s.undrafted);

/** Every step that can be asked about, with what came of one's guess: true, false, or null where there is none yet. */
export const guessMarks = (summaries, told) => askedSteps(summaries).map((at) => ({ at, right: told.has(at) ? told.get(at).right : null }));

/** A button that does what `act` says. */
export function actButton(words, act) {
  const made = h("button", { type: "button" }, words);
  made.addEventListener("click", act);
  return made;
}

export class Guessing {
  /** `name`: of the game, in data attributes and events; `changed()`: what may be seen has changed. */
  constructor(root, store, selection, name, changed) {
    Object.assign(this, { root, store, selection, name, changed, on: false, told: new Map() });
    this.said = h("p", { class: "said", role: "status" });
    this.next = actButton("Next", () => this.go());
    this.marks = h("ol", { class: "marks", "aria-label": "Your guesses, step by step" });
    this.marks.addEventListener("click", ({ target }) => target.dataset.step && this.selection.pin(Number(target.dataset.step)));
  }

  toggle(on = !this.on) {
    if (on === this.on) return;
    this.on = on;
    this.box.hidden = !on;
    if (!on) this.changed();
    else this.go(true);
    this.show();
    this.root.dispatchEvent(new CustomEvent("explorer:guessing", { bubbles: true, detail: { name: this.name, on } }));
  }

  reset() {
    this.told.clear();
  }

  get asking() {
    const at = this.selection.shown;
    return this.on && at !== null && !this.told.has(at) && askedSteps(this.store.summaries).includes(at);
  }

  /** The first step whose text must not be seen: the answers to this step and to later ones are in it; null: all may be seen. */
  get hidden() {
    return this.on && this.selection.shown !== null ? this.selection.shown + (this.asking ? 0 : 1) : null;
  }

  /** Steps that were not asked yet. */
  get open() {
    return askedSteps(this.store.summaries).filter((at) => !this.told.has(at));
  }

  /** The next step that was not asked yet; `here`: the shown one, if it can be. */
  go(here = false) {
    const { open } = this;
    const at = this.selection.shown ?? 0;
    const next = here && open.includes(at) ? at : (open.find((other) => other > at) ?? open[0]);
    this.selection.pause();
    if (next !== undefined) this.selection.pin(next);
    this.changed();
    this.show();
  }

  /** What came of a step; `verdict`: `right` is whether one was. */
  tell(step, verdict) {
    this.told.set(step, verdict);
    this.changed();
    this.show();
  }

  /** Says on the root whether a game is on and asks, and draws the marks; false where the game is not on. */
  showState() {
    const { asking, told } = this;
    this.root.dataset[this.name] = asking ? "asking" : this.on ? "told" : "off";
    if (!this.on) return false;
    const mark = ({ at, right }) => h("li", {}, h("button", { type: "button", class: right === null ? "open" : right ? "right" : "wrong", "data-step": at, title: `Step ${at + 1}: ${right === null ? "not asked yet" : this.words(told.get(at))}`, "aria-current": at === this.selection.shown ? "step" : null }, right === null ? "·" : this.sign(told.get(at))));
    this.marks.hidden = !told.size; // a score over the run
    this.marks.replaceChildren(...guessMarks(this.store.summaries, told).slice(0, MOST_MARKS).map(mark));
    this.next.hidden = asking || !this.open.length;
    return true;
  }

  /** What a mark says, and the words of it. */
  sign({ right }) {
    return right ? "✓" : "✕";
  }

  words({ right }) {
    return right ? "right" : "wrong";
  }
}
