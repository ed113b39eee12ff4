// Guessing games over the steps of a run. The result of a step stays hidden until the user has guessed. Two games: the quiz (where will
// the first draft be rejected?) and the user's own draft (typed.js).

import { button, h } from "./dom.js";
import { where } from "./timeline.js";
import { afterToken } from "./words.js";

const MOST_MARKS = 64; // more do not fit under a tree

/** Indices of the steps that can be asked about: they have a draft, and its rejection boundary is known. */
export const guessableSteps = (summaries) => where(summaries, (s) => s.boundary !== null && !s.undrafted);

/** Every step that can be asked about, with the result of the guess (`right`), null before a guess. */
export const guessMarks = (summaries, answers) =>
  guessableSteps(summaries).map((at) => ({ at, right: answers.has(at) ? answers.get(at).right : null }));

export class Guessing {
  /** `name`: name of the game in data attributes and events; `changed()` is called when something else must be hidden or shown. */
  constructor(root, store, selection, name, changed) {
    Object.assign(this, { root, store, selection, name, changed, on: false, pending: false, answers: new Map() });
    this.said = h("p", { class: "said", role: "status" });
    this.next = button("Next", {}, () => this.go());
    this.marks = h("ol", { class: "marks", "aria-label": "Your guesses, step by step" });
    this.marks.addEventListener(
      "click",
      ({ target }) => target.dataset.step && this.selection.pin(Number(target.dataset.step)),
    );
  }

  toggle(on = !this.on) {
    this.pending = false;
    if (on === this.on) return;
    this.on = on;
    this.box.hidden = !on;
    if (!on) this.changed();
    else this.go(true);
    this.show();
    this.root.dispatchEvent(new CustomEvent("explorer:guessing", { bubbles: true, detail: { name: this.name, on } }));
  }

  reset() {
    this.answers.clear();
  }

  get asking() {
    const at = this.selection.shown;
    return this.on && at !== null && !this.answers.has(at) && guessableSteps(this.store.summaries).includes(at);
  }

  /** The first step whose text must stay hidden, since it holds the answers to this and later steps; null if all may be seen. */
  get hidden() {
    if (this.pending) return 0;
    return this.on && this.selection.shown !== null ? this.selection.shown + (this.asking ? 0 : 1) : null;
  }

  get open() {
    return guessableSteps(this.store.summaries).filter((at) => !this.answers.has(at));
  }

  /** Goes to the next step without a guess; `here`: stays at the shown step if this step has no guess. */
  go(here = false) {
    const { open } = this;
    const at = this.selection.shown ?? 0;
    const next = here && open.includes(at) ? at : (open.find((other) => other > at) ?? open[0]);
    if (next !== undefined) this.selection.pin(next);
    this.changed();
    this.show();
  }

  /** Records the result of a guess: `right`, and the fields that the game shows. */
  answer(step, verdict) {
    this.answers.set(step, verdict);
    this.changed();
    this.show();
  }

  /** Sets the state of the game on the root and draws the marks; returns false if the game is off. */
  showState() {
    const { asking, answers } = this;
    this.root.dataset[this.name] = asking || this.pending ? "asking" : this.on ? "told" : "off";
    if (!this.on) return false;
    const mark = ({ at, right }) =>
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: right === null ? "open" : right ? "right" : "wrong",
            "data-step": at,
            title: `Step ${at + 1}: ${right === null ? "no guess yet" : this.words(answers.get(at))}`,
            "aria-current": at === this.selection.shown ? "step" : null,
          },
          right === null ? "·" : this.sign(answers.get(at)),
        ),
      );
    this.marks.hidden = !answers.size;
    this.marks.replaceChildren(...guessMarks(this.store.summaries, answers).slice(0, MOST_MARKS).map(mark));
    this.next.hidden = asking || !this.open.length;
    return true;
  }

  sign({ right }) {
    return right ? "✓" : "✕";
  }

  words({ right }) {
    return right ? "right" : "wrong";
  }
}

const TYPING_MS = 900; // wait for a second digit

/** The result of a guess. Positions count from 1; `drafted` + 1 means “all accepted”. */
export function quizVerdict(step, guess) {
  const truth = step.boundary + 1;
  const named = (position) => (position > step.drafted ? "nowhere" : afterToken(position - 1));
  const first = step.selected.length && !step.random ? step.selected[0] + 1 : null;
  const drafter =
    first === null
      ? ""
      : first === truth
        ? " The drafter’s own prediction was right too."
        : ` The drafter’s own prediction: ${named(first)}.`;
  return {
    right: guess === truth,
    byFlag: first === truth,
    words: `${guess === truth ? "Right" : `You said ${named(guess)}`}: the draft broke ${named(truth)}.${drafter}`,
  };
}

/** The node of the first draft `by` places after `node`, or the last in that direction; the first node if `node` is not in the first
 *  draft. The arrow keys use this during the quiz: a walk along the accepted path would give the answer away. */
export function draftedNode(step, node, by) {
  const trunk = [...step.nodes.values()]
    .filter((n) => n.depth > 0 && n.candidates.includes(0))
    .sort((a, b) => a.depth - b.depth);
  const at = trunk.findIndex(({ id }) => id === node);
  return trunk.length ? trunk[at < 0 ? 0 : Math.min(trunk.length - 1, Math.max(0, at + by))].id : null;
}

export class QuizView extends Guessing {
  question = { title: "Where will the first draft break?", more: "Click the first wrong token, or type its position." };

  constructor(root, store, selection, changed) {
    super(root, store, selection, "quiz", changed);
    Object.assign(this, { typed: "", typedFor: null }); // digits typed so far, and their step
    this.all = button("None: all accepted (0)", {}, () => this.guess(Infinity));
    this.box = h(
      "div",
      { class: "guess quiz", hidden: true, role: "group", "aria-label": "Quiz" },
      this.said,
      this.marks,
      this.all,
      this.next,
      button("End the quiz", {}, () => this.toggle(false)),
    );
  }

  guess(position) {
    const step = this.store.step(this.selection.shown);
    if (!this.asking || !step || !(position >= 1)) return; // also rejects undefined
    this.answer(step.index, quizVerdict(step, Math.min(step.drafted + 1, position)));
  }

  /** Adds a digit to the typed position. Waits for a second digit only if the draft is long enough; 0 alone means all accepted. */
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
    const { asking, answers } = this;
    const done = [...answers.values()];
    const right = done.filter((v) => v.right).length;
    const score = done.length
      ? ` Score: you ${right} of ${done.length}, the drafter ${done.filter((v) => v.byFlag).length}.`
      : "";
    const here = answers.get(this.selection.shown);
    this.all.hidden = !asking;
    this.said.replaceChildren(
      asking
        ? h("b", {}, "Which token of the first draft is the first wrong one?")
        : here
          ? here.words
          : "Nothing to guess in this step.",
      score,
      this.open.length ? "" : " That was the whole run.",
    );
  }
}
