// A quiz over a run: where will the first draft be rejected?

import { h } from "./dom.js";
import { actButton, Guessing } from "./guessing.js";

const TYPING_MS = 900; // for a second digit

/** What is said of a guess; positions count from 1, `drafted` + 1 stands for “all accepted”. */
export function quizVerdict(step, guess) {
  const truth = step.boundary + 1;
  const named = (position) => (position > step.drafted ? "nowhere" : `at position ${position}`);
  const first = step.selected.length && !step.random ? step.selected[0] + 1 : null;
  const drafter = first === null ? "" : first === truth ? " The drafter’s flag 1 was right as well." : ` The drafter’s flag 1 said: ${named(first)}.`;
  return { right: guess === truth, byFlag: first === truth, words: `${guess === truth ? "Right" : `You said ${named(guess)}`}: it was rejected ${named(truth)}.${drafter}` };
}

/** The node of the first draft that is `by` places behind `node`, or the nearest one; where another or no node is selected, its
 *  first one. A walk along the accepted path would give the answer away. */
export function draftedNode(step, node, by) {
  const trunk = [...step.nodes.values()].filter((n) => n.depth > 0 && n.candidates.includes(0)).sort((a, b) => a.depth - b.depth);
  const at = trunk.findIndex(({ id }) => id === node);
  return trunk.length ? trunk[at < 0 ? 0 : Math.min(trunk.length - 1, Math.max(0, at + by))].id : null;
}

export class QuizView extends Guessing {
  /** `changed()`: what may be seen has changed. */
  constructor(root, store, selection, changed) {
    super(root, store, selection, "quiz", changed);
    Object.assign(this, { typed: "", typedFor: null }); // digits of a position so far, and the step that they are for
    this.all = actButton("None: all accepted (0)", () => this.guess(Infinity));
    this.box = h("div", { class: "guess quiz", hidden: true, role: "group", "aria-label": "Quiz" }, this.said, this.marks, this.all, this.next, actButton("End the quiz", () => this.toggle(false)));
  }

  /** A position that was clicked. */
  guess(position) {
    const step = this.store.step(this.selection.shown);
    if (!this.asking || !step || !(position >= 1)) return; // also where no position was meant
    this.tell(step.index, quizVerdict(step, Math.min(step.drafted + 1, position)));
  }

  /** A digit of a position; a second one is waited for where the draft is that long. 0 alone: all accepted. */
  type(digit) {
    const step = this.store.step(this.selection.shown);
    if (!this.asking || !step) return;
    clearTimeout(this.typing);
    if (this.typedFor !== step) Object.assign(this, { typedFor: step, typed: "" });
    const position = Number(this.typed + digit) || Infinity;
    const end = () => {
      this.typed = "";
      if (this.store.step(this.selection.shown) === step) this.guess(position);
    };
    this.typed += digit;
    if (position * 10 > step.drafted) end();
    else this.typing = setTimeout(end, TYPING_MS);
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
