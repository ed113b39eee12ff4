// Traces as a standalone HTML file: the viewer reads the page's data block, and the theme follows the system. The address holds the
// selection: #run=2&step=10&node=7&chapter=4&quiz=1&draft=1&embed=1&theme=dark, counted from 1 (nodes: 0 is the anchor).

import { NO_GAME, readAddress, withFields } from "./address.js";
import { button, emit, h } from "./dom.js";
import { start as startViewer } from "./main.js";
import { explainTerms } from "./meaning.js";
import { count } from "./words.js";

const words = () => location.hash.slice(1);
const address = () => readAddress(words());
const addressWith = (changes) => `#${withFields(words(), changes)}`;
const rewrite = (changes) => history.replaceState(null, "", addressWith(changes));

/** Changes to the address that end games and Learn. */
const PLAIN = { ...NO_GAME, chapter: "", stop: "" };

/** A button that applies these changes to the address; `pressed`: its aria-pressed, null for none. */
const link = (label, pressed, changes) =>
  button(
    label,
    pressed === null ? {} : { "aria-pressed": String(pressed) },
    () => (location.hash = addressWith(changes)),
  );

/** A sentence if the address names a run or step that the file lacks, else "". `numbers`: the numbers of its runs; `steps`: the number
 *  of steps of the shown run. */
export function missing(hash, numbers, steps) {
  const [run, step] = ["run", "step"].map((name) => new URLSearchParams(hash).get(name));
  const read = readAddress(hash);
  if (run !== null && !numbers.includes(read.run))
    return `There is no run ${run.slice(0, 20)} in this file; run ${numbers[0]} is shown.`;
  return step === null || (read.step !== null && read.step <= steps)
    ? ""
    : `There is no step ${step.slice(0, 20)}: this run has ${count(steps, "step")}.`;
}

/** The page: buttons for runs and modes above the viewer or the tour. */
class RunsPage {
  /** `runs`: label, number, value and tour of each; `startTour`: draws a tour, null without tours; `options`: passed to tours. */
  constructor(runs, startTour, options) {
    Object.assign(this, { runs, startTour, options, watchers: [], touredRun: null, pinned: false });
    [this.element, this.tourBox, this.choices] = ["explorer", "tour", "runs"].map((id) => document.getElementById(id));
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.showTheme());
    this.shown = this.addressed;
    this.game = address().game;
    this.props = { value: this.valueOf(this.shown), address: words(), tours: Boolean(startTour) };
    this.showTheme();
    this.showChoices();
    this.showTour();
    this.listen();
    startViewer(
      this.element,
      () => {},
      this.props,
      (_, act) => this.watchers.push(act),
    );
  }

  /** Index of the run in the address; 0 if the address names no known run. */
  get addressed() {
    return Math.max(
      0,
      this.runs.findIndex(({ number }) => number === address().run),
    );
  }

  /** Step (from 0) and node in the address; null without a step. */
  get wanted() {
    const { step, node } = address();
    return step === null ? null : { step: step - 1, node };
  }

  /** The viewer's value for a run, with the step in the address. */
  valueOf(at) {
    const { value } = this.runs[at];
    if (!this.wanted) return value;
    const [head, ...lines] = value.split("\n");
    return [JSON.stringify({ ...JSON.parse(head), wanted: this.wanted }), ...lines].join("\n");
  }

  /** Number of steps of a run, from its head. */
  stepsOf(at) {
    return JSON.parse(this.runs[at].value.split("\n", 1)[0]).steps;
  }

  showTheme() {
    const { theme } = address();
    document.body.classList.toggle("dark", theme ? theme === "dark" : this.dark.matches);
  }

  /** Buttons for runs and modes; a file with one run and no tours has neither. */
  showChoices() {
    const { runs, shown, startTour } = this;
    const tour = Boolean(startTour) && runs[shown].tour !== "";
    const { chapter, game } = address();
    const touring = tour && chapter !== null;
    const numbered = runs.map((run, at) =>
      link(`${run.number}. ${run.label}`, at === shown, { run: run.number, step: "", node: "" }),
    );
    const way = (label, name) => link(label, !touring && game === name, { ...PLAIN, [name]: 1 });
    const ways = [
      link("Explore", !touring && !game, PLAIN),
      way("Quiz", "quiz"),
      way("Be the drafter", "draft"),
      ...(tour ? [link("Learn", touring, { ...PLAIN, chapter: 1 })] : []),
    ];
    const night = document.body.classList.contains("dark");
    const theme = link(night ? "☀ Light" : "☾ Dark", null, { theme: night ? "light" : "dark" });
    theme.className = "theme";
    const problem = h(
      "p",
      { role: "status" },
      missing(
        words(),
        runs.map(({ number }) => number),
        this.stepsOf(shown),
      ),
    );
    this.choices.replaceChildren(
      ...(runs.length > 1 ? [h("div", {}, ...numbered)] : []),
      h("div", {}, ...(startTour || runs.length > 1 ? ways : []), theme),
      problem,
    );
    [this.element.hidden, this.tourBox.hidden] = [touring, !touring];
  }

  /** The tour of the shown run, at the chapter in the address. */
  showTour() {
    const { chapter, step } = address();
    if (this.tourBox.hidden) return;
    if (this.touredRun === this.shown) return emit(this.tourBox.firstChild, "learn:go", { chapter, step });
    this.touredRun = this.shown;
    const box = h("div");
    this.tourBox.replaceChildren(box);
    const leave = (name, selected) =>
      name === "select" &&
      (location.hash = addressWith({ ...PLAIN, step: selected.step + 1, node: "", [selected.game]: 1 }));
    box.addEventListener(
      "learn:moved",
      () =>
        box.dataset.ready &&
        address().chapter !== null &&
        rewrite({ chapter: box.dataset.chapter, stop: "", step: Number(box.dataset.step) + 1 }),
    );
    const { tour, value } = this.runs[this.shown];
    const lines = value.slice(value.indexOf("\n") + 1); // without the head, which may name another step
    this.startTour(box, leave, { address: words(), lines }, () => {}, { tour: async () => tour }, this.options);
  }

  /** Keeps the address in step with the selection, so that it can be shared, and the page in step with the address. */
  listen() {
    this.element.addEventListener(
      "explorer:learn",
      ({ detail: { chapter, step } }) => (location.hash = addressWith({ ...PLAIN, chapter, step: step + 1 })),
    );
    this.element.addEventListener("explorer:guessing", ({ detail: { name, on } }) => {
      if (!on && this.game !== name) return; // another game has begun
      this.game = on ? name : ""; // games also begin and end in the viewer itself
      rewrite({ ...NO_GAME, ...(on ? { [name]: 1 } : {}) });
      this.showChoices();
    });
    this.element.addEventListener("explorer:selected", ({ detail: { step, node } }) => {
      if (step === null && !this.pinned) return;
      this.pinned = step !== null;
      rewrite({ step: this.pinned ? step + 1 : "", node: node ?? "" });
      this.showChoices();
    });
    addEventListener("hashchange", () => this.follow());
  }

  follow() {
    const { game } = address();
    this.showTheme();
    if (this.addressed !== this.shown) {
      this.shown = this.addressed;
      this.props.value = this.valueOf(this.shown);
      for (const act of this.watchers) act();
    } else if (this.wanted) emit(this.element, "explorer:select", this.wanted);
    this.showChoices();
    this.showTour();
    if (game !== this.game) emit(this.element, "explorer:guess", { name: game || this.game, on: game !== "" });
  }
}

/** `startTour`: draws the tour of a run with the other options; null for a file without tours. */
export function start({ startTour = null, ...options }) {
  explainTerms();
  return new RunsPage(JSON.parse(document.getElementById("trace").textContent), startTour, options);
}
