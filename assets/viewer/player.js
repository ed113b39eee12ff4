// Plays the animation of a step: its clock, and the bar with the slider and the names of the stages.

import { button, clamp, h, icon, markCurrent } from "./dom.js";
import { capital } from "./words.js";
import { END, STAGE_NAMES, stageWords, stagesOf } from "./stages.js";

export const STAGE_SECONDS = 3;

/** Shows on a button whether something plays; `label`: what a press plays; `key`: its key, if it has one. */
export function showPlaying(button, playing, label, key = "") {
  const words = playing ? "Pause" : label;
  if (button.ariaLabel === words) return;
  button.replaceChildren(icon(playing ? "M-6-6h4V6h-4ZM2-6h4V6h-4Z" : "M-4-7L8 0L-4 7Z"));
  button.ariaLabel = words;
  if (key) button.title = `${words} (${key})`;
}

/** The time of a step (ALONE to END) at a place among its stages; null is the end. */
export function timeAt(step, place) {
  const stages = stagesOf(step);
  if (place === null || place >= stages.length) return END;
  return place < 0 ? place : stages[Math.floor(place)] + (place % 1);
}

/** The stage at a place, as an index of STAGE_NAMES; null for the whole step. */
export function stageAt(step, place) {
  const stages = step && place !== null ? stagesOf(step) : [];
  return stages[clamp(Math.ceil(place - 1e-6) - 1, 0, stages.length - 1)] ?? null;
}

// On the line of the bar, a dot in the middle of each stage's name marks the end of the stage.
const toLine = (place) => Math.max(place / 2, place - 0.5);
const toPlace = (along) => (along < 0.5 ? 2 * along : along + 0.5);

/** The player of the chosen step; `allowed()` returns whether the step may be shown. */
export function playerView(store, state, allowed) {
  let running = false; // whether a frame is requested
  let named = ""; // the stages whose names are drawn
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const play = button("", { class: "play" }, toggle);
  const slider = h("input", {
    type: "range",
    min: 0,
    step: "any",
    ariaLabel: "Stages of this step",
    oninput: () => seek(toPlace(slider.valueAsNumber)),
    onkeydown: press,
  });
  const names = h("ol", {});
  const way = h("div.way", {}, slider, names);
  const box = h("div.moments", { role: "group", ariaLabel: "Play this step" }, play, way);
  const chosen = () => store.step(state.chosen);
  const stagesNow = () => (chosen() ? stagesOf(chosen()) : []);
  const placeNow = () => state.now.place ?? stagesNow().length;

  /** The place to draw: with reduced motion, the end of a stage. */
  const drawnAt = (place) => (still.matches && place > 0 ? Math.ceil(place) : place);

  /** Pauses, or plays from the current place to the end (from the start if the place is the end). */
  function toggle() {
    if (state.now.playing) state.set({ playing: false });
    else playFrom(state.now.place ?? 0);
  }

  /** Plays between two places, and rests there. */
  function playFrom(from, to = null) {
    if (!chosen() || !allowed()) return;
    state.goTo(still.matches && to !== null ? to : from, true, to);
    run();
  }

  /** Moves the place while the state is playing. */
  function run() {
    if (running) return;
    running = true;
    let before = null;
    const frame = (now) => {
      running = state.now.playing && box.isConnected;
      if (!running) return;
      if (before !== null) advance((now - before) / 1000);
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  function advance(seconds) {
    const { until } = state.now;
    const place = Math.min(until ?? Infinity, placeNow() + seconds / STAGE_SECONDS);
    state.goTo(place, place !== until, until);
  }

  function seek(place) {
    if (chosen() && allowed()) state.goTo(still.matches ? Math.ceil(place) : place);
  }

  /** Keys of the slider: arrows move to the end of the previous or next stage, space plays or pauses. */
  function press(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by && event.key !== " ") return;
    event.preventDefault();
    const place = placeNow();
    if (by) seek(clamp(by < 0 ? Math.ceil(place) - 1 : Math.floor(place) + 1, 0, stagesNow().length));
    else toggle();
  }

  function jump(stage) {
    const index = stagesNow().indexOf(stage);
    if (index >= 0) seek(index + 1);
  }

  /** Shows the stages of the chosen step, the place among them, and whether it plays. */
  function show({ playing }) {
    if (playing) run();
    const [step, stages] = [chosen(), stagesNow()];
    box.hidden = !stages.length || Boolean(step.lacks);
    if (named !== stages.join()) {
      named = stages.join(); // most steps of a run have the same stages
      const name = (at) => h("span", {}, capital(STAGE_NAMES[at]));
      const title = (at) => `Go to the end of this stage (Shift + ${at + 1})`;
      names.replaceChildren(
        ...stages.map((at) =>
          h(
            "li",
            {},
            button(name(at), { tabindex: -1, title: title(at) }, () => jump(at)),
          ),
        ),
      );
      slider.max = toLine(stages.length);
      box.style.setProperty("--stages", stages.length);
    }
    showPlaying(play, playing, "Play this step, stage by stage", "space");
    const along = Math.max(0, toLine(placeNow()));
    slider.value = along;
    way.style.setProperty("--at", (along / Math.max(1, stages.length)).toFixed(4));
    const stage = stageAt(step, state.now.place);
    markCurrent(
      [...names.children].map((item) => item.firstChild),
      stage === null ? stages.length - 1 : stages.indexOf(stage),
    );
    const words = stage === null ? null : stageWords(step, stage);
    slider.ariaValueText = words ? `${STAGE_NAMES[stage]}: ${words.title} ${words.more}`.trim() : "the whole step";
  }

  return {
    uses: ["chosen", "place", "playing", "data"],
    box,
    show,
    drawnAt,
    toggle,
    play: playFrom,
    seek,
    press,
    jump,
  };
}
