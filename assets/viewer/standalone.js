// Traces as a file of its own: the viewer is fed from the page's data block and takes its colours from the system. The address
// says what is looked at: #run=2&step=10&node=7&stop=5&quiz=1&draft=1&embed=1&theme=dark, counted from 1 (nodes: 0 is the anchor).

import { start as startViewer } from "./main.js";

const fields = () => new URLSearchParams(location.hash.slice(1));
/** A whole number from `least` on that the address names; null where it names none. */
const named = (name, most = 1e9, least = 1) => {
  const value = Number(fields().get(name) || NaN);
  return Number.isInteger(value) && value >= least && value <= most ? value : null;
};
/** The stop of the tour; 0 is the story before the first one. */
const namedStop = () => named("stop", 99, 0);

/** The address with other fields; an empty one goes. */
function addressWith(changes) {
  const now = fields();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") now.delete(name);
    else now.set(name, value);
  }
  return `#${now}`;
}

function button(words, pressed, changes) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  if (pressed !== null) made.setAttribute("aria-pressed", pressed);
  made.addEventListener("click", () => (location.hash = addressWith(changes)));
  return made;
}

const NO_GAME = { quiz: "", draft: "" };
/** Nothing but the run as it is explored. */
const PLAIN = { ...NO_GAME, stop: "" };
/** The game that the address asks for; empty where it asks for none. */
const gameOf = () => Object.keys(NO_GAME).find((name) => fields().get(name) === "1") || "";

/** What the address names and the file does not hold, as a sentence; empty where it holds all. `numbers`: of its runs; `steps`:
 *  of the shown run. */
export function missing(asked, numbers, steps) {
  const [run, step] = [asked.get("run"), asked.get("step")];
  const within = (value, most) => value === null || (/^[1-9]\d{0,8}$/.test(value) && Number(value) <= most);
  if (run !== null && !(within(run, 1e9) && numbers.includes(Number(run)))) return `There is no run ${run.slice(0, 20)} in this file; run ${numbers[0]} is shown.`;
  return within(step, steps) ? "" : `There is no step ${step.slice(0, 20)}: this run has ${steps}.`;
}

/** `startTour`: draws the tour of a run, with `given`; without it there is none. */
export function start({ startTour = null, ...given }) {
  const runs = JSON.parse(document.getElementById("trace").textContent);

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => document.body.classList.toggle("dark", fields().has("theme") ? fields().get("theme") === "dark" : dark.matches);
  dark.addEventListener("change", paint);
  paint();

  const element = document.getElementById("explorer");
  const tourBox = document.getElementById("tour");
  const runsBox = document.getElementById("runs");
  const heard = [];
  const watch = (_, act) => heard.push(act);
  const trigger = () => {};
  const wanted = () => (named("step") === null ? null : { step: named("step") - 1, node: fields().get("node") });
  /** A run as the viewer is fed with it, with the step that the address names. */
  const valueOf = (at) => {
    const [head, ...lines] = runs[at].value.split("\n");
    return wanted() ? [JSON.stringify({ ...JSON.parse(head), wanted: wanted() }), ...lines].join("\n") : runs[at].value;
  };
  const stepsOf = (at) => JSON.parse(runs[at].value.split("\n", 1)[0]).steps;
  const asked = () => Math.max(0, runs.findIndex(({ number }) => number === named("run")));
  let shown = asked();
  let toured = null;
  const props = { value: valueOf(shown), address: location.hash.slice(1) };

  /** Which run, and how it is looked at; nothing to choose where there is one run without a tour. */
  function drawChoices() {
    const tour = Boolean(startTour) && runs[shown].tour !== "";
    const [stop, game] = [tour && namedStop() !== null, gameOf()];
    const of = runs.map((run, at) => button(`${run.number}. ${run.label}`, at === shown, { run: run.number, step: "", node: "" }));
    const way = (words, name) => button(words, !stop && game === name, { ...PLAIN, [name]: 1 });
    const ways = [button("Explore", !stop && !game, PLAIN), way("Quiz", "quiz"), way("Be the drafter", "draft"), ...(tour ? [button("Learn", stop, { ...PLAIN, stop: 0 })] : [])];
    const row = (buttons) => {
      const box = document.createElement("div");
      box.append(...buttons);
      return box;
    };
    const night = document.body.classList.contains("dark");
    const theme = button(night ? "☀ Light" : "☾ Dark", null, { theme: night ? "light" : "dark" });
    theme.className = "theme";
    const said = document.createElement("p");
    said.textContent = missing(fields(), runs.map(({ number }) => number), stepsOf(shown));
    said.setAttribute("role", "status");
    runsBox.replaceChildren(...(runs.length > 1 ? [row(of)] : []), row([...(startTour || runs.length > 1 ? ways : []), theme]), said);
    [element.hidden, tourBox.hidden] = [stop, !stop];
  }

  /** The tour of the shown run, at the stop that the address names. */
  function takeTour() {
    const stop = namedStop();
    if (tourBox.hidden) return;
    if (toured === shown) return tourBox.firstChild.dispatchEvent(new CustomEvent("learn:go", { detail: { stop, step: named("step") } }));
    toured = shown;
    const box = document.createElement("div");
    tourBox.replaceChildren(box);
    const leave = (name, { step }) => name === "select" && (location.hash = addressWith({ stop: "", step: step + 1, node: "" }));
    box.addEventListener("learn:moved", () => box.dataset.ready && history.replaceState(null, "", addressWith({ stop: Number(box.dataset.at) + 1, step: Number(box.dataset.step) + 1 })));
    const { tour, value } = runs[shown];
    const lines = value.slice(value.indexOf("\n") + 1); // without the head, which may ask for another step
    startTour(box, leave, { address: location.hash.slice(1), lines }, () => {}, { tour: async () => tour }, given);
  }

  drawChoices();
  takeTour();
  let playing = gameOf();
  element.addEventListener("explorer:guessing", ({ detail: { name, on } }) => {
    if (!on && playing !== name) return; // another one has begun
    playing = on ? name : ""; // it also begins and ends in the viewer itself
    history.replaceState(null, "", addressWith({ ...NO_GAME, ...(on ? { [name]: 1 } : {}) }));
    drawChoices();
  });
  // The address follows what is chosen, so that it can be passed on.
  let chosen = false;
  element.addEventListener("explorer:selected", ({ detail: { step, node } }) => {
    if (step === null && !chosen) return;
    chosen = step !== null;
    history.replaceState(null, "", addressWith({ step: chosen ? step + 1 : "", node: node ?? "" }));
    drawChoices();
  });
  addEventListener("hashchange", () => {
    const game = gameOf();
    paint();
    if (asked() !== shown) {
      shown = asked();
      props.value = valueOf(shown);
      for (const act of heard) act();
    } else if (wanted()) element.dispatchEvent(new CustomEvent("explorer:select", { detail: wanted() }));
    drawChoices();
    takeTour();
    if (game !== playing) element.dispatchEvent(new CustomEvent("explorer:guess", { detail: { name: game || playing, on: game !== "" } }));
  });
  startViewer(element, trigger, props, watch);
}
