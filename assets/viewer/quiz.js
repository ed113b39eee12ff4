// Guessing games over the steps of a run. The result of a step stays hidden until the user has guessed. Two games: the quiz (where will
// the first draft be rejected?) and the user's own draft (typed.js).

import { button, clamp, h } from "./dom.js";
import { where } from "./timeline.js";
import { capital, quoted } from "./words.js";

const MOST_MARKS = 64; // more do not fit under a tree

/** Whether a step can be asked about: it has a draft, and its rejection boundary is known. */
const guessable = (summary) => summary !== undefined && summary.boundary !== null && !summary.undrafted;
export const guessableSteps = (summaries) => where(summaries, guessable);

const questions = new WeakMap();

/** A step reduced to its first draft, without any field that depends on the result. */
export function askedStep(step) {
  if (!step || questions.has(step)) return questions.get(step) ?? null;
  const drafted = [...step.nodes.values()].filter(({ depth, candidates }) => depth === 0 || candidates.includes(0));
  const asked = {
    ...step,
    nodes: new Map(
      drafted.map((node) => [node.id, { ...node, candidates: [0], state: node.depth ? "unreached" : "root" }]),
    ),
    left: step.left.filter(({ candidates }) => candidates.includes(0)).map((node) => ({ ...node, candidates: [0] })),
    choices: new Map(),
    branches: [],
    selected: [],
    posterior: [],
    accepted: [],
    committed: [],
    bonus: null,
    boundary: null,
    verdict: null,
    closed: null,
  };
  questions.set(step, asked);
  return asked;
}

export class Guessing {
  uses = ["game", "pending", "at", "answers", "data", "secret", "waiting", "typed", "hands", "votes"];

  /** `name`: name of the game in data attributes and events. */
  constructor(root, store, state, name) {
    Object.assign(this, { root, store, state, name });
    this.said = h("p.said", { role: "status" });
    this.next = button("Next", {}, () => this.go());
  }

  get on() {
    return this.state.now.game === this.name;
  }

  get pending() {
    return this.state.now.pending === this.name;
  }

  get answers() {
    return this.state.now.answers[this.name];
  }

  get here() {
    return this.answers[this.state.shown];
  }

  /** Starts or ends the game; another game ends. */
  toggle(on = !this.on) {
    if (on !== this.on) this.state.set({ game: on ? this.name : "", place: null, playing: false });
    this.state.set({ pending: "" });
    if (on) this.go(true);
  }

  get asking() {
    return this.on && !this.here && guessable(this.store.summaries[this.state.shown]);
  }

  /** The first step whose text must stay hidden, since it holds the answers to this and later steps; null if all may be seen. */
  get hidden() {
    if (this.pending) return 0;
    return this.on && this.state.shown !== null ? this.state.shown + (this.asking ? 0 : 1) : null;
  }

  get open() {
    return guessableSteps(this.store.summaries).filter((at) => !this.answers[at]);
  }

  /** Goes to the next step without a guess; `here`: stays at the shown step if this step has no guess. */
  go(here = false) {
    const { open } = this;
    const shown = this.state.shown ?? 0;
    const next = here && open.includes(shown) ? shown : (open.find((other) => other > shown) ?? open[0]);
    if (next !== undefined) this.state.pin(next);
  }

  /** Records the result of a guess: `right`, and the fields that the game shows. */
  answer(step, verdict) {
    const { answers } = this.state.now;
    this.state.set({ answers: { ...answers, [this.name]: { ...this.answers, [step]: verdict } } });
  }

  /** Sets the state of the game on the root; returns false if the game is off. */
  showState() {
    const { asking } = this;
    this.root.dataset[this.name] = asking || this.pending ? "asking" : this.on ? "told" : "off";
    this.box.hidden = !this.on;
    this.next.hidden = asking || !this.open.length;
    return this.on;
  }
}

const TYPING_MS = 900; // wait for a second digit

/** A drafted token; its position too if the draft has the same text twice. */
function named({ draft: { texts } }, at) {
  const same = texts.filter((text) => text === texts[at - 1]).length;
  return same ? quoted(texts[at - 1].replace(/^ (?=\S)/, "")) + (same > 1 ? ` (${at})` : "") : "none";
}

const sizeOf = (votes, place) => votes.filter((one) => one === place).length;
/** Pairs of a place and its number of votes, the most first. */
export const counted = (votes) =>
  [...new Set(votes)].map((place) => [place, sizeOf(votes, place)]).sort(([, some], [, others]) => others - some);

/** The votes of a class in words, as in 11 for “will”, 6 for “help”. */
export const handsWords = (step, votes) =>
  counted(votes)
    .map(([place, size]) => `${size} for ${named(step, place)}`)
    .join(", ");

/** The result of the votes of a class (`hands`), or of the only vote. Positions count from 1; `drafted` + 1 means “all accepted”. */
export function quizVerdict(step, votes, hands = false) {
  const { draft, boundary, selected, random } = step;
  const [[guess]] = counted(votes);
  const truth = boundary + 1;
  const none = (at) => at > draft.texts.length;
  const fact = none(truth) ? "no token was rejected" : `${named(step, truth)} was rejected`;
  const expected = selected.length && !random ? selected[0] + 1 : null;
  const drafter =
    expected === null
      ? ""
      : expected === truth
        ? " The drafter expected this too."
        : ` The drafter expected ${none(expected) ? "no rejection" : named(step, expected)}.`;
  const right = guess === truth;
  const judged = right ? "Right:" : `You chose ${named(step, guess)};`;
  const said = hands ? `${handsWords(step, votes)}. ${capital(fact)}` : `${judged} ${fact}`;
  return { right, byFlag: expected === truth, words: `${said}.${drafter}` };
}

/** The node of the first draft `by` places after `node`, or the last in that direction; the first node if `node` is not in the first
 *  draft. The arrow keys use this during the quiz: a walk along the accepted path would give the answer away. */
export function draftedNode(step, node, by) {
  const trunk = [...step.nodes.values()]
    .filter((n) => n.depth > 0 && n.candidates.includes(0))
    .sort((a, b) => a.depth - b.depth);
  const index = trunk.findIndex(({ id }) => id === node);
  return trunk.length ? trunk[index < 0 ? 0 : clamp(index + by, 0, trunk.length - 1)].id : null;
}

export class QuizView extends Guessing {
  constructor(root, store, state) {
    super(root, store, state, "quiz");
    this.all = button("None: all accepted (0)", {}, () => this.guess(Infinity));
    this.marks = h("ol.marks", { ariaLabel: "Your guesses, step by step" });
    const title = "Count the votes of a class";
    this.hands = button("Hands", { title }, () => state.set({ hands: !state.now.hands, votes: [] }));
    this.reveal = button("Reveal (Enter)", {}, () => this.enter());
    this.box = h(
      "div.guess.quiz",
      {
        hidden: true,
        role: "group",
        ariaLabel: "Quiz",
        // or Enter would press the button again instead of revealing the answer
        onclick: () => state.now.hands && document.activeElement.blur(),
      },
      this.said,
      this.marks,
      this.all,
      this.hands,
      this.reveal,
      this.next,
      button("End the quiz", {}, () => this.toggle(false)),
    );
  }

  get question() {
    const { hands, votes } = this.state.now;
    const more = !hands
      ? "Click it, or type its position."
      : handsWords(this.store.step(this.state.shown), votes) || "Hands up! Each click or digit counts one.";
    return { title: "Which token of the first draft is rejected?", more };
  }

  /** Records a guess, or counts a vote. */
  guess(position) {
    const step = this.store.step(this.state.shown);
    if (!this.asking || !step || !(position >= 1)) return; // also rejects undefined
    const place = Math.min(step.drafted + 1, position);
    const { hands, votes } = this.state.now;
    if (hands) this.state.set({ votes: [...votes, place] });
    else this.answer(step.index, quizVerdict(step, [place]));
  }

  /** Takes the latest vote back; returns false if no votes are counted. */
  takeBack() {
    const { hands, votes } = this.state.now;
    if (hands) this.state.set({ votes: votes.slice(0, -1) });
    return hands;
  }

  /** Reveals the answer to the votes, or guesses a position. */
  enter(position) {
    const { hands, votes } = this.state.now;
    if (!hands) return this.guess(position);
    const step = this.store.step(this.state.shown);
    if (this.asking && votes.length) this.answer(step.index, quizVerdict(step, votes, true));
    return undefined;
  }

  /** Adds a digit to the typed position. Waits for a second digit only if the draft is long enough; 0 alone means all accepted. A vote has
   *  one digit, since votes may follow each other quickly. */
  type(digit) {
    const step = this.store.step(this.state.shown);
    if (!this.asking || !step) return;
    clearTimeout(this.typing);
    const digits = this.state.now.digits + digit;
    const position = Number(digits) || Infinity;
    const more = position * 10 <= step.drafted && !this.state.now.hands;
    const end = () => {
      if (this.state.now.digits === digits) this.state.set({ digits: "" });
      if (this.state.shown === step.index) this.guess(position);
    };
    this.state.set({ digits: more ? digits : "" });
    if (more) this.typing = setTimeout(end, TYPING_MS);
    else this.guess(position);
  }

  showMarks() {
    const { answers, state } = this;
    const mark = (at) => {
      const guess = answers[at];
      const [sign, words] = !guess ? ["·", "no guess yet"] : guess.right ? ["✓", "right"] : ["✕", "wrong"];
      const attributes = {
        class: guess && words,
        title: `Step ${at + 1}: ${words}`,
        ariaCurrent: at === state.shown ? "step" : null,
      };
      return h(
        "li",
        {},
        button(sign, attributes, () => state.pin(at)),
      );
    };
    this.marks.hidden = !Object.keys(answers).length;
    this.marks.replaceChildren(...guessableSteps(this.store.summaries).slice(0, MOST_MARKS).map(mark));
  }

  show({ hands }) {
    if (!this.showState()) return;
    this.showMarks();
    const { asking, here } = this;
    const done = Object.values(this.answers);
    const right = done.filter((v) => v.right).length;
    const score = done.length
      ? ` Score: you ${right} of ${done.length}, the drafter ${done.filter((v) => v.byFlag).length}.`
      : "";
    this.all.hidden = this.hands.hidden = !asking;
    this.hands.ariaPressed = hands;
    this.reveal.hidden = !asking || !hands;
    this.said.replaceChildren(
      asking ? h("b", {}, this.question.title) : (here?.words ?? "Nothing to guess in this step."),
      score,
      this.open.length ? "" : " That was the whole run.",
    );
  }
}
