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

export class Player {
  uses = ["chosen", "place", "playing", "data"];

  /** `allowed()` returns whether the step may be shown. */
  constructor(store, state, allowed) {
    Object.assign(this, { store, state, allowed });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.button = button("", { class: "play" }, () => this.toggle());
    this.slider = h("input", {
      type: "range",
      min: 0,
      step: "any",
      ariaLabel: "Stages of this step",
      oninput: () => this.seek(toPlace(this.slider.valueAsNumber)),
      onkeydown: (event) => this.press(event),
    });
    this.names = h("ol", {});
    this.box = h(
      "div.moments",
      { role: "group", ariaLabel: "Play this step" },
      this.button,
      (this.way = h("div.way", {}, this.slider, this.names)),
    );
  }

  get step() {
    return this.store.step(this.state.chosen);
  }

  get end() {
    return this.step ? stagesOf(this.step).length : 0;
  }

  get place() {
    return this.state.now.place ?? this.end;
  }

  /** The place to draw: with reduced motion, the end of a stage. */
  drawnAt(place) {
    return this.still.matches && place > 0 ? Math.ceil(place) : place;
  }

  /** Whether the chosen step is shown at a time before its end. */
  get on() {
    return this.state.now.place !== null;
  }

  /** Pauses, or plays from the current place to the end (from the start if the place is the end). */
  toggle() {
    if (this.state.now.playing) this.state.set({ playing: false });
    else this.play(this.on ? this.place : 0);
  }

  /** Plays between two places, and rests there. */
  play(from, to = null) {
    if (!this.step || !this.allowed()) return;
    this.state.goTo(this.still.matches && to !== null ? to : from, true, to);
    this.run();
  }

  /** Moves the place while the state is playing. */
  run() {
    if (this.running) return;
    this.running = true;
    let before = null;
    const frame = (now) => {
      this.running = this.state.now.playing && this.box.isConnected;
      if (!this.running) return;
      if (before !== null) this.advance((now - before) / 1000);
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  advance(seconds) {
    const { until } = this.state.now;
    const place = Math.min(until ?? Infinity, this.place + seconds / STAGE_SECONDS);
    this.state.goTo(place, place !== until, until);
  }

  seek(place) {
    if (this.step && this.allowed()) this.state.goTo(this.still.matches ? Math.ceil(place) : place);
  }

  /** Keys of the slider: arrows move to the end of the previous or next stage, space plays or pauses. */
  press(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by && event.key !== " ") return;
    event.preventDefault();
    const { place } = this;
    if (by) this.seek(clamp(by < 0 ? Math.ceil(place) - 1 : Math.floor(place) + 1, 0, this.end));
    else this.toggle();
  }

  jump(stage) {
    const index = this.step ? stagesOf(this.step).indexOf(stage) : -1;
    if (index >= 0) this.seek(index + 1);
  }

  /** Shows the stages of the chosen step, the place among them, and whether it plays. */
  show({ playing }) {
    const { step, place, box, slider } = this;
    if (playing) this.run();
    const stages = step ? stagesOf(step) : [];
    box.hidden = !stages.length || Boolean(step.lacks);
    if (this.named !== stages.join()) {
      this.named = stages.join(); // most steps of a run have the same stages
      const title = (at) => `Go to the end of this stage (Shift + ${at + 1})`;
      const name = (at) => h("span", {}, capital(STAGE_NAMES[at]));
      this.names.replaceChildren(
        ...stages.map((at) =>
          h(
            "li",
            {},
            button(name(at), { tabindex: -1, title: title(at) }, () => this.jump(at)),
          ),
        ),
      );
      slider.max = toLine(stages.length);
      box.style.setProperty("--stages", stages.length);
    }
    showPlaying(this.button, playing, "Play this step, stage by stage", "space");
    const along = Math.max(0, toLine(place));
    slider.value = along;
    this.way.style.setProperty("--at", (along / Math.max(1, stages.length)).toFixed(4));
    this.mark(stages, stageAt(step, this.state.now.place));
  }

  /** Marks the name of a stage; null is the whole step. */
  mark(stages, stage) {
    markCurrent(
      [...this.names.children].map((item) => item.firstChild),
      stage === null ? stages.length - 1 : stages.indexOf(stage),
    );
    const words = stage === null ? null : stageWords(this.step, stage);
    this.slider.ariaValueText = words ? `${STAGE_NAMES[stage]}: ${words.title} ${words.more}`.trim() : "the whole step";
  }
}
