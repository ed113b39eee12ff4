// Plays the animation of a step: its clock, and the bar with the slider and the names of the stages.

import { button, h, icon, markCurrent } from "./dom.js";
import { capital } from "./words.js";
import { END, STAGE_NAMES, stageWords, stagesOf } from "./stages.js";

export const STAGE_SECONDS = 3;
export const playIcon = (playing) => icon(playing ? "M-6-6h4V6h-4ZM2-6h4V6h-4Z" : "M-4-7L8 0L-4 7Z");

export class Player {
  /** `draw(t)` draws the shown step at time `t`; `said(name)` is called when a stage begins, with "" at the end; `allowed()` returns
   *  whether the step may be shown; `changed()` is called after every change. */
  constructor(store, selection, { draw, said, allowed, changed }) {
    Object.assign(this, { store, selection, draw, said, allowed, changed });
    Object.assign(this, { index: null, at: 0, playing: false, stage: null, until: Infinity });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.button = button("", { class: "play" }, () => this.toggle());
    this.slider = h("input", { type: "range", min: 0, "aria-label": "Stages of this step" });
    this.slider.addEventListener("input", () =>
      this.seek(this.still.matches ? Math.ceil(this.slider.valueAsNumber) : this.slider.valueAsNumber),
    );
    this.slider.addEventListener("keydown", (event) => this.press(event));
    this.names = h("ol", {});
    this.box = h(
      "div",
      { class: "moments", role: "group", "aria-label": "Play this step" },
      this.button,
      (this.way = h("div", { class: "way" }, this.slider, this.names)),
    );
  }

  get step() {
    return this.store.step(this.selection.chosen);
  }

  /** Whether the chosen step is shown at a time before its end. */
  get on() {
    return this.index !== null;
  }

  /** The time of the step, ALONE to END. */
  get time() {
    const stages = stagesOf(this.step);
    if (this.at < 0) return this.at;
    const at = this.still.matches ? Math.max(1, Math.ceil(this.at)) : this.at;
    return at >= stages.length ? END : stages[Math.floor(at)] + (at % 1);
  }

  /** Pauses, or plays from the current time to the end (from the start if the time is at the end). */
  toggle() {
    if (this.playing) this.pause();
    else if (this.step && this.allowed()) {
      this.hold();
      this.until = Infinity;
      if (this.at >= stagesOf(this.step).length) this.at = 0;
      this.run();
    }
    this.changed();
  }

  /** Plays between two positions, counted in stages of the step, and rests there. */
  play(from, to) {
    this.hold();
    Object.assign(this, { at: this.still.matches ? to : from, until: to });
    this.showMoment();
    this.run();
  }

  /** Starts to show the chosen step; pins it during a live run, so that new steps do not replace it. */
  hold() {
    if (this.store.live && this.selection.pinned === null) this.selection.pin(this.selection.chosen);
    if (this.index === this.selection.chosen) return;
    Object.assign(this, { index: this.selection.chosen, at: stagesOf(this.step).length, stage: null });
  }

  run() {
    this.playing = true;
    let before = null;
    const frame = (now) => {
      this.check();
      if (!this.playing || !this.box.isConnected) return;
      if (before !== null) this.advance((now - before) / 1000);
      before = now;
      this.showMoment();
      if (this.playing) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  advance(seconds) {
    const stages = stagesOf(this.step).length;
    if (this.at >= stages) this.finish();
    else if (this.at >= this.until) this.playing = false;
    else this.at = Math.min(stages, this.until, this.at + seconds / STAGE_SECONDS);
  }

  pause() {
    this.playing = false;
    if (this.on && this.at >= stagesOf(this.step).length) this.finish();
  }

  /** Shows the finished step. */
  finish() {
    this.reset();
    this.changed();
  }

  /** Moves to a position, counted in stages of the step, and rests there. */
  seek(at) {
    if (!this.step || !this.allowed()) return;
    this.hold();
    this.playing = false;
    this.at = at;
    if (at >= stagesOf(this.step).length) this.finish();
    else this.showMoment();
    this.changed();
  }

  /** Keys of the slider: arrows move to the end of the previous or next stage, space plays or pauses. */
  press(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by && event.key !== " ") return;
    event.preventDefault();
    const at = this.slider.valueAsNumber;
    if (by) this.seek(Math.min(Number(this.slider.max), Math.max(0, by < 0 ? Math.ceil(at) - 1 : Math.floor(at) + 1)));
    else this.toggle();
  }

  /** Moves to the end of a stage, given by its index in STAGE_NAMES. */
  jump(stage) {
    const at = this.step ? stagesOf(this.step).indexOf(stage) : -1;
    if (at >= 0) this.seek(at + 1);
  }

  /** Stops if another step was chosen or the step must not be seen. */
  check() {
    if (this.on && (this.index !== this.selection.chosen || !this.allowed())) this.reset();
  }

  reset() {
    if (!this.on) return;
    Object.assign(this, { index: null, playing: false, stage: null, until: Infinity });
    this.draw(END);
    this.said("");
  }

  /** The current stage in words; null if the shown step is not being played. */
  get words() {
    return this.here && this.stage !== null ? stageWords(this.step, this.stage) : null;
  }

  get here() {
    return this.on && this.selection.shown === this.index;
  }

  show() {
    this.showBar();
    this.showMoment();
  }

  /** Draws the step at the current time; needed again after every new drawing of tree or strip. */
  showMoment() {
    if (!this.here) return;
    const stages = stagesOf(this.step);
    this.draw(this.time);
    this.showPlace(this.at);
    const at = Math.min(stages.length - 1, Math.max(0, Math.ceil(this.at - 1e-6) - 1));
    if (this.stage === stages[at]) return;
    this.stage = stages[at];
    this.said(STAGE_NAMES[this.stage]);
    this.mark();
  }

  /** Sets the slider and the filled part of the line, on which a dot marks the end of every stage. */
  showPlace(at) {
    const stages = Math.max(1, Number(this.slider.max));
    this.slider.value = at;
    this.way.style.setProperty("--at", (Math.max(at / 2, at - 0.5) / stages).toFixed(4));
  }

  mark() {
    const stages = this.step ? stagesOf(this.step) : [];
    const at = this.on ? stages.indexOf(this.stage) : stages.length - 1;
    markCurrent(
      [...this.names.children].map((item) => item.firstChild),
      at,
    );
    const words = this.on && at >= 0 ? stageWords(this.step, this.stage) : null;
    this.slider.setAttribute(
      "aria-valuetext",
      words ? `${STAGE_NAMES[this.stage]}: ${words.title} ${words.more}`.trim() : "the whole step",
    );
  }

  /** Shows the stages of the chosen step, and whether it plays. */
  showBar() {
    const { step } = this;
    const stages = step ? stagesOf(step) : [];
    this.box.hidden = !stages.length || Boolean(step.lacks);
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
      this.slider.max = stages.length;
      this.box.style.setProperty("--stages", stages.length);
    }
    if (!this.on) this.showPlace(stages.length);
    this.slider.step = this.still.matches ? 1 : 0.01;
    const label = this.playing ? "Pause" : "Play this step, stage by stage";
    if (this.button.title !== `${label} (space)`) {
      this.button.replaceChildren(playIcon(this.playing));
      this.button.setAttribute("aria-label", label);
      this.button.title = `${label} (space)`;
    }
    this.mark();
  }
}
