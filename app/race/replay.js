// The replay of a race. Each method has a lane: a bar in the overview and a text, both growing at the measured
// speed. A player with controls advances the time of the race, at full speed or slower.

import { button, clamp, h, sum } from "../../assets/viewer/dom.js";
import { showPlaying } from "../../assets/viewer/player.js";
import { count, milliseconds } from "../../assets/viewer/words.js";
import { paceOf } from "./results.js";
import { proposersOf, readSide } from "./texts.js";

export const ordinal = (place) => ["", "1st", "2nd", "3rd"][place] ?? `${place}th`;

/** A lane of `app/race/tab.py` with its steps parsed, its number of tokens (`total`), and its `end` in seconds since the prompt was read. */
export function readLane(raw) {
  const side = readSide(raw);
  const total = sum(side.steps.map((step) => step.tokens.length));
  return { ...raw, ...side, total, end: side.steps.at(-1)?.end ?? 0 };
}

export class LaneView {
  /** `longest`: seconds of the slowest lane, the full width of a bar; `decided`: whether the race is over; `choose()`: chooses the lane for
   *  the text; `open()`: shows the lane's run in Explore. */
  constructor(lane, longest, decided, { choose, open }) {
    Object.assign(this, { lane, decided, longest: Math.max(1e-9, longest) });
    const ready = decided && lane.total > 0;
    this.rail = h("span.rail", { onclick: ready && choose }, ...this.blocks());
    this.result = h("span.result", {});
    this.name = button(
      lane.name,
      { class: "name", title: lane.sentence, disabled: !ready, "aria-pressed": "false" },
      choose,
    );
    this.track = h(
      "li.track",
      { "data-method": lane.method, "data-state": lane.state },
      this.name,
      this.rail,
      this.result,
      ready ? button("Explore →", { class: "explore", "aria-label": `Explore → the run of ${lane.name}` }, open) : "",
      lane.problem ? h("p.problem", {}, lane.problem) : "",
    );
  }

  /** The steps of the bar. The width of a step is its time, divided between the proposers by their numbers of tokens. */
  blocks() {
    const share = (seconds) => `${((100 * seconds) / this.longest).toFixed(3)}%`;
    return this.lane.steps.map(({ tokens, seconds, end }) => {
      const title = `${count(tokens.length, "token")} in ${milliseconds(seconds)}`;
      return h(
        "span.block",
        { title, style: `left:${share(end - seconds)};width:${share(seconds)}` },
        ...proposersOf(tokens).map(([who, n]) => h("span", { class: `segment ${who}`, style: `flex-grow:${n}` })),
      );
    });
  }

  /** Frames some steps of the bar. */
  frame(steps) {
    [...this.rail.children].forEach((block, at) => block.classList.toggle("framed", steps.includes(at)));
  }

  /** `rail`: 0 if the lane is above the text, 1 if below, else -1. */
  choose(rail) {
    this.name.ariaPressed = rail >= 0;
    this.track.dataset.rail = ["above", "below"][rail] ?? "";
    if (rail < 0) this.frame([]);
  }

  /** Shows the steps that ended until `time`. */
  show(time) {
    const { lane, longest } = this;
    this.rail.style.clipPath = `inset(-3px ${Math.max(0, 100 - (100 * time) / longest).toFixed(3)}% -3px 0)`;
    const done = lane.steps.filter(({ end }) => end <= time);
    this.track.dataset.tokens = sum(done.map(({ tokens }) => tokens.length));
    const over = done.length === lane.steps.length && lane.total > 0;
    this.track.classList.toggle("over", over);
    const now = { waiting: "waiting", running: "running now", "not run": "not run" }[lane.state] || "";
    const words = over ? this.verdict() : [done.length ? count(Number(this.track.dataset.tokens), "token") : now];
    if (this.said === String(words)) return;
    this.said = String(words);
    const [main, pace = ""] = words;
    this.result.replaceChildren(main, h("span.pace", {}, pace));
  }

  /** The result in words, and the mean time of a step. */
  verdict() {
    const { row, state, end, steps } = this.lane;
    if (!end) return [`${count(steps.length, "step")}, no times`];
    const time = end < 1 ? `${(end * 1000).toFixed(0)} ms` : `${end.toFixed(2)} s`;
    const place = this.decided && row?.place ? ordinal(row.place) : state;
    return [`${place} · ${time} · ${count(steps.length, "step")}`, ` of ${paceOf(this.lane)} ms`];
  }
}

const SPEEDS = [
  [1, "1×"],
  [0.5, "½×"],
  [0.25, "¼×"],
  [0.1, "1/10×"],
];
const LEAST_SECONDS = 5; // shorter replays start in slow motion
const BETWEEN = 50; // minimum milliseconds between two drawings: drawing every frame keeps a core busy

export class Player {
  /** `changed()` is called when time, speed or playing changes. */
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

  /** Goes to the start of a new race. Sets the fastest speed at which the replay takes at least `LEAST_SECONDS`, or if there is none, the slowest. */
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

  /** Requests a frame unless one is pending; a pending frame arrives even after a stop. */
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

  /** Stops at a time. */
  seek(time) {
    this.playing = false;
    this.time = clamp(time, 0, this.duration);
    this.changed();
  }

  slow(speed) {
    this.speed = speed;
    this.changed();
  }
}

/** Time and duration, with more digits if the race is short. */
export function clockWords({ time, duration }) {
  const digits = duration < 10 ? 3 : 1;
  return `${time.toFixed(digits)} of ${duration.toFixed(digits)} s`;
}

export class Controls {
  constructor(player) {
    this.player = player;
    this.play = button("", { class: "play" }, () => player.toggle());
    this.restart = button("↺", { class: "icon", title: "Restart", "aria-label": "Restart" }, () => player.restart());
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: 1000,
      step: 1,
      value: 0,
      class: "time",
      "aria-label": "Time of the race",
      oninput: () => player.seek((this.slider.valueAsNumber / 1000) * player.duration),
    });
    this.clock = h("output.clock", {});
    this.speeds = SPEEDS.map(([speed, label]) => [
      speed,
      h("input", { type: "radio", name: "race-speed", value: speed }),
      label,
    ]);
    this.box = h(
      "div.controls",
      {},
      this.play,
      this.restart,
      this.slider,
      this.clock,
      h(
        "fieldset.speeds",
        {},
        h("legend.spoken", {}, "Speed of the replay"),
        ...this.speeds.map(([, input, label]) => h("label", {}, input, h("span", {}, label))),
      ),
    );
    for (const [speed, input] of this.speeds)
      input.addEventListener("change", () => input.checked && player.slow(speed));
  }

  show() {
    const { time, duration, playing, speed } = this.player;
    this.box.hidden = duration <= 0;
    showPlaying(this.play, playing, "Play the race");
    this.slider.value = duration > 0 ? Math.round((1000 * time) / duration) : 0;
    const words = clockWords(this.player);
    this.slider.ariaValueText = words;
    this.clock.textContent = words;
    for (const [value, input] of this.speeds) input.checked = value === speed;
  }
}
