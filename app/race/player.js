// The clock of the replay, seconds of the race at a chosen share of real time, and its controls.

import { button, h } from "../../assets/viewer/dom.js";

const SPEEDS = [
  [1, "1×"],
  [0.5, "½×"],
  [0.25, "¼×"],
  [0.1, "1/10×"],
];
const LEAST_SECONDS = 5; // a replay shorter than this is shown in slow motion to begin with
const BETWEEN = 50; // least milliseconds between two drawings of a replay: drawing every frame takes a whole core

export class Player {
  /** `changed()` is called whenever time, speed or playing change. */
  constructor(host, changed) {
    Object.assign(this, { host, changed, time: 0, duration: 0, speed: 1, playing: false, before: 0, frame: null });
    this.tick = (now) => {
      this.frame = null;
      this.playing &&= this.host.isConnected;
      if (!this.playing) return;
      const due = now - this.before >= BETWEEN;
      if (due) {
        this.time = Math.min(this.duration, this.time + ((now - this.before) / 1000) * this.speed);
        this.before = now;
        this.playing = this.time < this.duration;
      }
      if (this.playing) this.request();
      if (due) this.changed();
    };
  }

  /** A new race: at its start, at the fastest speed that can still be followed. */
  load(duration) {
    this.duration = duration;
    this.speed = (SPEEDS.find(([speed]) => duration / speed >= LEAST_SECONDS) || SPEEDS.at(-1))[0];
    this.seek(0);
  }

  play() {
    if (this.playing || this.duration <= 0) return;
    if (this.time >= this.duration) this.time = 0;
    this.playing = true;
    this.before = performance.now();
    this.request();
    this.changed();
  }

  /** Requests one frame at a time: one that was requested before a stop comes all the same. */
  request() {
    this.frame ??= requestAnimationFrame(this.tick);
  }

  toggle() {
    if (this.playing) this.seek(this.time);
    else this.play();
  }

  restart() {
    this.seek(0);
    this.play();
  }

  /** Stands still at a time. */
  seek(time) {
    this.playing = false;
    this.time = Math.min(this.duration, Math.max(0, time));
    this.changed();
  }

  slow(speed) {
    this.speed = speed;
    this.changed();
  }
}

/** How far the clock is, as finely as a short race needs. */
export function clockWords({ time, duration }) {
  const digits = duration < 10 ? 3 : 1;
  return `${time.toFixed(digits)} of ${duration.toFixed(digits)} s`;
}

/** Play, restart, the time slider and the choice of slow motion. */
export class Controls {
  constructor(player) {
    this.player = player;
    this.play = button("", { class: "play" }, () => player.toggle());
    this.restart = button("↺", { class: "icon", title: "Restart", "aria-label": "Restart" }, () => player.restart());
    this.slider = h("input", { type: "range", min: 0, max: 1000, step: 1, value: 0, class: "time", "aria-label": "Time of the race" });
    this.clock = h("output", { class: "clock" });
    this.speeds = SPEEDS.map(([speed, label]) => [speed, h("input", { type: "radio", name: "race-speed", value: speed }), label]);
    this.box = h(
      "div",
      { class: "controls" },
      this.play,
      this.restart,
      this.slider,
      this.clock,
      h("fieldset", { class: "speeds" }, h("legend", { class: "spoken" }, "Speed of the replay"), ...this.speeds.map(([, input, label]) => h("label", {}, input, h("span", {}, label)))),
    );
    this.slider.addEventListener("input", () => player.seek((Number(this.slider.value) / 1000) * player.duration));
    for (const [speed, input] of this.speeds) input.addEventListener("change", () => input.checked && player.slow(speed));
  }

  show() {
    const { time, duration, playing, speed } = this.player;
    this.box.hidden = duration <= 0;
    if (this.play.getAttribute("aria-pressed") !== String(playing)) {
      this.play.textContent = playing ? "❚❚ Pause" : "▶ Play";
      this.play.setAttribute("aria-pressed", playing);
    }
    this.slider.value = duration > 0 ? Math.round((1000 * time) / duration) : 0;
    const words = clockWords(this.player);
    this.slider.setAttribute("aria-valuetext", words);
    this.clock.textContent = words;
    for (const [value, input] of this.speeds) input.checked = value === speed;
  }
}
