// A quiz over a run: where will the first draft be rejected? What came of a step is hidden until one has said so.

import { h } from "./dom.js";
import { where } from "./finder.js";

const MOST_MARKS = 64; // more do not fit under a tree

/** The steps that can be asked about: something was drafted, and it is known how much of it was accepted. */
export const quizSteps = (summaries) => where(summaries, (s) => s.boundary !== null && !s.undrafted);

/** What is said of a guess; positions count from 1, `drafted` + 1 stands for “all accepted”. */
export function quizVerdict(step, guess) {
  const truth = step.boundary + 1;
  const named = (position) => (position > step.drafted ? "nowhere" : `at position ${position}`);
  const first = step.selected.length && !step.random ? step.selected[0] + 1 : null;
  const drafter = first === null ? "" : first === truth ? " The drafter’s flag 1 was right as well." : ` The drafter’s flag 1 said: ${named(first)}.`;
  return { right: guess === truth, byFlag: first === truth, words: `${guess === truth ? "Right" : `You said ${named(guess)}`}: it was rejected ${named(truth)}.${drafter}` };
}

/** Every step that can be asked about, with what came of one's guess: true, false, or null where there is none yet. */
export const quizMarks = (summaries, told) => quizSteps(summaries).map((at) => ({ at, right: told.has(at) ? told.get(at).right : null }));

export class QuizView {
  /** `changed()`: what may be seen has changed. */
  constructor(root, store, selection, changed) {
    Object.assign(this, { root, store, selection, changed, on: false, told: new Map() });
    const button = (words, act) => {
      const made = h("button", { type: "button" }, words);
      made.addEventListener("click", act);
      return made;
    };
    this.said = h("p", { class: "said", role: "status" });
    this.all = button("None: all accepted (0)", () => this.guess(Infinity));
    this.next = button("Next", () => this.go());
    this.marks = h("ol", { class: "marks", "aria-label": "Your guesses, step by step" });
    this.marks.addEventListener("click", ({ target }) => target.dataset.step && this.selection.pin(Number(target.dataset.step)));
    this.box = h("div", { class: "quiz", hidden: true, role: "group", "aria-label": "Quiz" }, this.said, this.marks, this.all, this.next, button("End the quiz", () => this.toggle(false)));
  }

  toggle(on = !this.on) {
    this.on = on;
    this.box.hidden = !on;
    if (!on) this.changed();
    else this.go(true);
    this.show();
    this.root.dispatchEvent(new CustomEvent("explorer:quizzing", { bubbles: true, detail: { on } }));
  }

  reset() {
    this.told.clear();
  }

  get asking() {
    const at = this.selection.shown;
    return this.on && at !== null && !this.told.has(at) && quizSteps(this.store.summaries).includes(at);
  }

  /** The first step whose text must not be seen: the answers to this step and to later ones are in it; null: all may be seen. */
  get hidden() {
    return this.on && this.selection.shown !== null ? this.selection.shown + (this.asking ? 0 : 1) : null;
  }

  /** The next step that was not asked yet; `here`: the shown one, if it can be. */
  go(here = false) {
    const open = quizSteps(this.store.summaries).filter((at) => !this.told.has(at));
    const at = this.selection.shown ?? 0;
    const next = here && open.includes(at) ? at : (open.find((other) => other > at) ?? open[0]);
    this.selection.pause();
    if (next !== undefined) this.selection.pin(next);
    this.changed();
    this.show();
  }

  /** A position that was clicked. */
  guess(position) {
    const step = this.store.step(this.selection.shown);
    if (!this.asking || !step || !(position >= 1)) return; // also where no position was meant
    const verdict = quizVerdict(step, Math.min(step.drafted + 1, position));
    this.told.set(step.index, verdict);
    this.changed();
    this.show();
  }

  show() {
    const { root, told } = this;
    const asking = this.asking;
    root.dataset.quiz = asking ? "asking" : this.on ? "told" : "off";
    if (!this.on) return;
    const done = [...told.values()];
    const right = done.filter((v) => v.right).length;
    const score = done.length ? ` You: ${right} of ${done.length}; flag 1: ${done.filter((v) => v.byFlag).length}.` : "";
    const here = told.get(this.selection.shown);
    const left = quizSteps(this.store.summaries).length - done.length;
    const mark = ({ at, right }) => h("li", {}, h("button", { type: "button", class: right === null ? "open" : right ? "right" : "wrong", "data-step": at, title: `Step ${at + 1}: ${right === null ? "not asked yet" : right ? "right" : "wrong"}`, "aria-current": at === this.selection.shown ? "step" : null }, right === null ? "·" : right ? "✓" : "✕"));
    this.marks.hidden = !done.length; // a score over the run
    this.marks.replaceChildren(...quizMarks(this.store.summaries, told).slice(0, MOST_MARKS).map(mark));
    this.all.hidden = !asking;
    this.next.hidden = asking || !left;
    this.said.replaceChildren(asking ? h("b", {}, "Where will the first draft be rejected? Click its token or type its position.") : here ? here.words : "Nothing to guess in this step.", score, left ? "" : " That was the whole run.");
  }
}
