// Traces as a standalone HTML file: the viewer reads the page's data block, and the theme follows the system. The address holds the
// selection: #run=2&step=10&node=7&stage=doubt&present=1&chapter=4&quiz=1&draft=1&embed=1&theme=dark, counted from 1 (nodes: 0 is the anchor).

import { NO_GAME, readAddress, withFields } from "./address.js";
import { button, emit, h } from "./dom.js";
import { explainTerms } from "./glossary.js";
import { start as startViewer } from "./main.js";
import { count } from "./words.js";

const words = () => location.hash.slice(1);
const address = () => readAddress(words());
const addressWith = (changes) => `#${withFields(words(), changes)}`;
const rewrite = (changes) => history.replaceState(null, "", addressWith(changes));

/** Changes to the address that end games and Learn. */
const PLAIN = { ...NO_GAME, chapter: "", stop: "" };

/** A button that applies these changes to the address; `ariaPressed`: null for none. */
const link = (label, ariaPressed, changes) =>
  button(label, { ariaPressed }, () => (location.hash = addressWith(changes)));

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

/** Draws the page: buttons for runs and modes above the viewer or the tour. `runs`: label, number, value and tour of each; `startTour`: draws
 *  a tour, null without tours; `options`: passed to tours. */
function showPage(runs, startTour, options) {
  const [element, tourBox, choices] = ["explorer", "tour", "runs"].map((id) => document.getElementById(id));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const watchers = []; // functions of the viewer, called after a change of its value
  /** Index of the run in the address; 0 if the address names no known run. */
  const addressed = () =>
    Math.max(
      0,
      runs.findIndex(({ number }) => number === address().run),
    );
  let shown = addressed();
  let toured = null; // index of the run that the tour is about
  let { game } = address();
  let pinned = false;
  const props = { value: valueOf(shown), address: words(), tours: Boolean(startTour) };

  /** Step (from 0) and node in the address; null without a step. */
  function wanted() {
    const { step, node } = address();
    return step === null ? null : { step: step - 1, node };
  }

  /** The viewer's value for a run, with the step in the address. */
  function valueOf(index) {
    const { value } = runs[index];
    if (!wanted()) return value;
    const [head, ...lines] = value.split("\n");
    return [JSON.stringify({ ...JSON.parse(head), message: { kind: "select", ...wanted() } }), ...lines].join("\n");
  }

  function showTheme() {
    const { theme } = address();
    document.body.classList.toggle("dark", theme ? theme === "dark" : dark.matches);
  }

  /** Buttons for runs and modes; a file with one run and no tours has neither. */
  function showChoices() {
    const { value, tour } = runs[shown];
    const { chapter, game: mode } = address();
    const hasTour = Boolean(startTour) && tour !== "";
    const touring = hasTour && chapter !== null;
    const numbered = runs.map((run, at) =>
      link(`${run.number}. ${run.label}`, at === shown, { run: run.number, step: "", node: "" }),
    );
    const way = (label, name) => link(label, !touring && mode === name, { ...PLAIN, [name]: 1 });
    const ways = [
      link("Explore", !touring && !mode, PLAIN),
      way("Quiz", "quiz"),
      way("Be the drafter", "draft"),
      ...(hasTour ? [link("Learn", touring, { ...PLAIN, chapter: 1 })] : []),
    ];
    const night = document.body.classList.contains("dark");
    const theme = link(night ? "☀ Light" : "☾ Dark", null, { theme: night ? "light" : "dark" });
    theme.className = "theme";
    const { steps } = JSON.parse(value.split("\n", 1)[0]);
    const numbers = runs.map(({ number }) => number);
    choices.replaceChildren(
      ...(runs.length > 1 ? [h("div", {}, ...numbered)] : []),
      h("div", {}, ...(startTour || runs.length > 1 ? ways : []), theme),
      h("p", { role: "status" }, missing(words(), numbers, steps)),
    );
    [element.hidden, tourBox.hidden] = [touring, !touring];
  }

  /** The tour of the shown run, at the chapter in the address. */
  function showTour() {
    const { chapter, step } = address();
    if (tourBox.hidden) return;
    if (toured === shown) return emit(tourBox.firstChild, "learn:go", { chapter, step });
    toured = shown;
    const moved = () =>
      box.dataset.ready &&
      address().chapter !== null &&
      rewrite({ chapter: box.dataset.chapter, stop: "", step: Number(box.dataset.step) + 1 });
    const box = h("div", {});
    box.addEventListener("learn:moved", moved);
    tourBox.replaceChildren(box);
    const leave = (name, selected) =>
      name === "select" &&
      (location.hash = addressWith({ ...PLAIN, step: selected.step + 1, node: "", [selected.game]: 1 }));
    const { tour, value } = runs[shown];
    const lines = value.slice(value.indexOf("\n") + 1); // without the head, which may name another step
    startTour(box, leave, { address: words(), lines }, () => {}, { tour: async () => tour }, options);
  }

  /** Follows a change of the address. */
  function follow() {
    const { game: mode } = address();
    showTheme();
    if (addressed() !== shown) {
      shown = addressed();
      props.value = valueOf(shown);
      for (const act of watchers) act();
    } else if (wanted()) emit(element, "explorer:select", wanted());
    showChoices();
    showTour();
    if (mode !== game) emit(element, "explorer:guess", { name: mode || game, on: mode !== "" });
  }

  // the address follows the selection, so that it can be shared
  element.addEventListener(
    "explorer:learn",
    ({ detail: { chapter, step } }) => (location.hash = addressWith({ ...PLAIN, chapter, step: step + 1 })),
  );
  element.addEventListener("explorer:guessing", ({ detail: { name, on } }) => {
    if (!on && game !== name) return; // another game has begun
    game = on ? name : ""; // games also begin and end in the viewer itself
    rewrite({ ...NO_GAME, ...(on ? { [name]: 1 } : {}) });
    showChoices();
  });
  element.addEventListener("explorer:selected", ({ detail: { step, node, stage, present } }) => {
    rewrite({ stage, present });
    if (step === null && !pinned) return;
    pinned = step !== null;
    rewrite({ step: pinned ? step + 1 : "", node });
    showChoices();
  });
  addEventListener("hashchange", follow);
  dark.addEventListener("change", showTheme);
  showTheme();
  showChoices();
  showTour();
  startViewer(
    element,
    () => {},
    props,
    (_, act) => watchers.push(act),
  );
}

/** `startTour`: draws the tour of a run with the other options; null for a file without tours. */
export function start({ startTour = null, ...options }) {
  explainTerms();
  showPage(JSON.parse(document.getElementById("trace").textContent), startTour, options);
}
