// Playing: the clock of a step that comes about, and the bar by which it is moved by hand.

import { button, h, markCurrent } from "./dom.js";
import { END, STAGE_NAMES, durations, stageWords, stagesOf } from "./stages.js";

const REST_SECONDS = 1.1; // on a whole step, before the next one
const PACES = [
  ["1×", 1, false],
  ["½×", 0.5, false],
  ["as measured", 1, true],
]; // what they are called, how fast they are, and whether stages last in the proportion of their times

export class Player {
  /** `draw(t)` draws the shown step at a time; `said(name)`: another stage begins, none at the end; `allowed()`: whether a step may be shown. */
  constructor(store, selection, { draw, said, allowed, changed }) {
    Object.assign(this, { store, selection, draw, said, allowed, changed });
    Object.assign(this, { index: null, at: 0, rested: 0, playing: false, through: false, pace: 0, stage: null });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.button = button("▶", { class: "icon play" }, () => this.toggle());
    this.speed = button(
      PACES[0][0],
      {
        class: "small pace",
        title: "Speed (S): as it is, half, or stages as long as they took",
        "aria-label": "Speed of playing",
      },
      () => this.repace(),
    );
    this.slider = h("input", { type: "range", min: 0, step: 0.01, "aria-label": "How this step comes about" });
    this.slider.addEventListener("input", () =>
      this.seek(this.still.matches ? Math.ceil(this.slider.valueAsNumber) : this.slider.valueAsNumber),
    );
    this.slider.addEventListener("keydown", (event) => this.press(event));
    this.names = h("ol", {});
    this.box = h(
      "div",
      { class: "moments", role: "group", "aria-label": "How this step comes about" },
      this.button,
      h("div", { class: "way" }, this.slider, this.names),
      this.speed,
    );
  }

  get step() {
    return this.store.step(this.selection.chosen);
  }

  /** Whether the chosen step is shown at a moment before its end. */
  get on() {
    return this.index !== null;
  }

  /** The time of the step, 0 to END. */
  get time() {
    const stages = stagesOf(this.step);
    const at = this.still.matches ? Math.max(1, Math.ceil(this.at)) : this.at;
    return at >= stages.length ? END : stages[Math.floor(at)] + (at % 1);
  }

  /** Goes on from where it stands, a whole step from its beginning; a step that is not pinned is followed by the next ones. */
  toggle() {
    if (this.playing) this.pause();
    else if (this.step && this.allowed()) {
      this.through = this.on ? this.through : this.selection.pinned === null && !this.store.live;
      this.hold();
      if (this.at >= stagesOf(this.step).length) this.at = 0;
      this.run();
    }
    this.changed();
  }

  /** Plays the chosen step alone. */
  playOnce() {
    this.toggle();
    this.through = false;
  }

  /** Takes the chosen step in hand: a running stream must not replace it. */
  hold() {
    if (this.store.live && this.selection.pinned === null) this.selection.pin(this.selection.chosen);
    if (this.index === this.selection.chosen) return;
    Object.assign(this, { index: this.selection.chosen, at: stagesOf(this.step).length, stage: null });
  }

  run() {
    this.playing = true;
    this.rested = 0;
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
    const [, speed, measured] = PACES[this.pace];
    const lasts = durations(this.step, measured);
    if (this.at < lasts.length) {
      this.at = Math.min(
        lasts.length,
        this.at + (seconds * speed) / lasts[Math.min(lasts.length - 1, Math.floor(this.at))],
      );
      return;
    }
    this.rested += seconds * speed;
    if (!this.through || this.index + 1 >= this.store.length) this.finish();
    else if (this.rested > REST_SECONDS) {
      Object.assign(this, { index: this.index + 1, at: 0, rested: 0, stage: null });
      this.selection.pin(this.index);
    }
  }

  pause() {
    this.playing = false;
    if (this.on && this.at >= stagesOf(this.step).length) this.finish();
  }

  /** Shows the step as it stays. */
  finish() {
    this.reset();
    this.changed();
  }

  /** Moves to a place among the stages of the step, and rests there. */
  seek(at) {
    if (!this.step || !this.allowed()) return;
    this.hold();
    this.playing = false;
    this.at = at;
    if (at >= stagesOf(this.step).length) this.finish();
    else this.showMoment();
    this.changed();
  }

  /** On the slider arrows move by a quarter of a stage, and the space plays as everywhere else. */
  press(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by && event.key !== " ") return;
    event.preventDefault();
    if (by) this.seek(Math.max(0, this.slider.valueAsNumber + by * (this.still.matches ? 1 : 0.25)));
    else this.toggle();
  }

  /** Rests at the end of a stage, by its place in STAGE_NAMES. */
  jump(stage) {
    const at = this.step ? stagesOf(this.step).indexOf(stage) : -1;
    if (at >= 0) this.seek(at + 1);
  }

  repace() {
    this.pace = (this.pace + 1) % PACES.length;
    this.speed.textContent = PACES[this.pace][0];
  }

  /** Leaves a step that is not the chosen one any more, or must not be seen. */
  check() {
    if (this.on && (this.index !== this.selection.chosen || !this.allowed())) this.reset();
  }

  reset() {
    if (!this.on) return;
    Object.assign(this, { index: null, playing: false, stage: null });
    this.draw(END);
    this.said("");
  }

  /** What happens at this moment, in words; null where the shown step is not one that comes about. */
  get words() {
    return this.here && this.stage !== null ? { title: stageWords(this.step, this.stage), more: "" } : null; // TEMPORARY
  }

  get here() {
    return this.on && this.selection.shown === this.index;
  }

  show() {
    this.showBar();
    this.showMoment();
  }

  /** Draws the moment, also after tree or strip were drawn anew. */
  showMoment() {
    if (!this.here) return;
    const stages = stagesOf(this.step);
    this.draw(this.time);
    this.slider.value = this.at;
    const at = Math.min(stages.length - 1, Math.max(0, Math.ceil(this.at - 1e-6) - 1));
    if (this.stage === stages[at]) return;
    this.stage = stages[at];
    this.said(STAGE_NAMES[this.stage]);
    this.mark();
  }

  mark() {
    const stages = this.step ? stagesOf(this.step) : [];
    const at = this.on ? stages.indexOf(this.stage) : -1;
    markCurrent(
      [...this.names.children].map((item) => item.firstChild),
      at,
    );
    this.slider.setAttribute(
      "aria-valuetext",
      at < 0 ? "the whole step" : `${STAGE_NAMES[this.stage]}: ${stageWords(this.step, this.stage)}`,
    );
  }

  /** The bar of the chosen step: its stages, and whether it plays. */
  showBar() {
    const { step } = this;
    const stages = step ? stagesOf(step) : [];
    this.box.hidden = !stages.length || Boolean(step.lacks);
    if (this.named !== stages.join()) {
      this.named = stages.join(); // streamed steps mostly have the same ones
      this.names.replaceChildren(
        ...stages.map((at) =>
          h(
            "li",
            {},
            button(STAGE_NAMES[at], { title: `Rest at the end of this stage (Shift + ${at + 1})` }, () =>
              this.jump(at),
            ),
          ),
        ),
      );
      this.slider.max = stages.length;
      this.box.style.setProperty("--stages", stages.length);
    }
    if (!this.on) this.slider.value = stages.length;
    this.slider.step = this.still.matches ? 1 : 0.01;
    this.button.textContent = this.playing ? "❚❚" : "▶";
    const label = this.playing ? "Pause" : "Play: how this step comes about";
    this.button.setAttribute("aria-label", label);
    this.button.title = `${label} (space)`;
    this.mark();
  }
}
