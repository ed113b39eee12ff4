// A quiz over a run: where will the first draft be rejected?

import { h } from "./dom.js";
import { actButton, Guessing } from "./guessing.js";

/** What is said of a guess; positions count from 1, `drafted` + 1 stands for “all accepted”. */
export function quizVerdict(step, guess) {
  const truth = step.boundary + 1;
  const named = (position) => (position > step.drafted ? "nowhere" : `at position ${position}`);
  const first = step.selected.length && !step.random ? step.selected[0] + 1 : null;
  const drafter = first === null ? "" : first === truth ? " The drafter’s flag 1 was right as well." : ` The drafter’s flag 1 said: ${named(first)}.`;
  return { right: guess === truth, byFlag: first === truth, words: `${guess === truth ? "Right" : `You said ${named(guess)}`}: it was rejected ${named(truth)}.${drafter}` };
}

export class QuizView extends Guessing {
  /** `changed()`: what may be seen has changed. */
  constructor(root, store, selection, changed) {
    super(root, store, selection, "quiz", changed);
    this.all = actButton("None: all accepted (0)", () => this.guess(Infinity));
    this.box = h("div", { class: "guess quiz", hidden: true, role: "group", "aria-label": "Quiz" }, this.said, this.marks, this.all, this.next, actButton("End the quiz", () => this.toggle(false)));
  }

  /** A position that was clicked. */
  guess(position) {
    const step = this.store.step(this.selection.shown);
    if (!this.asking || !step || !(position >= 1)) return; // also where no position was meant
    this.tell(step.index, quizVerdict(step, Math.min(step.drafted + 1, position)));
  }

  show() {
    if (!this.showState()) return;
    const { asking, told } = this;
    const done = [...told.values()];
    const right = done.filter((v) => v.right).length;
    const score = done.length ? ` You: ${right} of ${done.length}; flag 1: ${done.filter((v) => v.byFlag).length}.` : "";
    const here = told.get(this.selection.shown);
    this.all.hidden = !asking;
    this.said.replaceChildren(asking ? h("b", {}, "Where will the first draft be rejected? Click its token or type its position.") : here ? here.words : "Nothing to guess in this step.", score, this.open.length ? "" : " That was the whole run.");
  }
}
