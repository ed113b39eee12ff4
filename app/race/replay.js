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

/** A lane. `longest`: seconds of the slowest lane, the full width of a bar; `decided`: whether the race is over; `choose()`: chooses the lane
 *  for the text; `open()`: shows the lane's run in Explore. */
export function laneView(lane, longest, decided, { choose, open }) {
  const { method, state, steps, total, problem } = lane;
  const ready = decided && total > 0;
  const width = (seconds) => `${((100 * seconds) / Math.max(1e-9, longest)).toFixed(3)}%`;
  /** A step of the bar. Its width is its time, divided between the proposers by their numbers of tokens. */
  const block = ({ tokens, seconds, end }) =>
    h(
      "span.block",
      {
        title: `${count(tokens.length, "token")} in ${milliseconds(seconds)}`,
        style: `left:${width(end - seconds)};width:${width(seconds)}`,
      },
      ...proposersOf(tokens).map(([who, n]) => h("span", { class: `segment ${who}`, style: `flex-grow:${n}` })),
    );
  const rail = h("span.rail", { onclick: ready && choose }, ...steps.map(block));
  const result = h("span.result", {});
  const names = { class: "name", title: lane.sentence, disabled: !ready, ariaPressed: false };
  const name = button(lane.name, names, choose);
  const track = h(
    "li.track",
    { "data-method": method, "data-state": state },
    name,
    rail,
    result,
    ready && button("Explore →", { class: "explore", ariaLabel: `Explore → the run of ${lane.name}` }, open),
    problem && h("p.problem", {}, problem),
  );
  let said = "";

  /** Frames some steps of the bar. */
  const frame = (framed) =>
    [...rail.children].forEach((part, at) => part.classList.toggle("framed", framed.includes(at)));

  /** Marks the lane as chosen. `place`: 0 if it is above the text, 1 if below, else -1. */
  function mark(place) {
    name.ariaPressed = place >= 0;
    track.dataset.rail = ["above", "below"][place] ?? "";
    if (place < 0) frame([]);
  }

  /** Shows the steps that ended until `time`. */
  function show(time) {
    rail.style.clipPath = `inset(-3px ${Math.max(0, 100 - (100 * time) / Math.max(1e-9, longest)).toFixed(3)}% -3px 0)`;
    const done = steps.filter(({ end }) => end <= time);
    const tokens = sum(done.map((step) => step.tokens.length));
    const over = done.length === steps.length && total > 0;
    track.dataset.tokens = tokens;
    track.classList.toggle("over", over);
    const now = { waiting: "waiting", running: "running now", "not run": "not run" }[state] || "";
    const words = over ? verdict() : [done.length ? count(tokens, "token") : now];
    if (said === String(words)) return;
    said = String(words);
    const [main, pace = ""] = words;
    result.replaceChildren(main, h("span.pace", {}, pace));
  }

  /** The result in words, and the mean time of a step. */
  function verdict() {
    const { row, end } = lane;
    if (!end) return [`${count(steps.length, "step")}, no times`];
    const time = end < 1 ? `${(end * 1000).toFixed(0)} ms` : `${end.toFixed(2)} s`;
    const place = decided && row?.place ? ordinal(row.place) : state;
    return [`${place} · ${time} · ${count(steps.length, "step")}`, ` of ${paceOf(lane)} ms`];
  }

  return { lane, track, frame, mark, show };
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

export function playerControls(player) {
  const play = button("", { class: "play" }, () => player.toggle());
  const restart = button("↺", { class: "icon", title: "Restart", ariaLabel: "Restart" }, () => player.restart());
  const slider = h("input.time", {
    type: "range",
    min: 0,
    max: 1000,
    step: 1,
    value: 0,
    ariaLabel: "Time of the race",
    oninput: () => player.seek((slider.valueAsNumber / 1000) * player.duration),
  });
  const clock = h("output.clock", {});
  const speeds = SPEEDS.map(([value]) =>
    h("input", { type: "radio", name: "race-speed", value, onchange: () => player.slow(value) }),
  );
  const labels = SPEEDS.map(([, label], at) => h("label", {}, speeds[at], h("span", {}, label)));
  const choice = h("fieldset.speeds", {}, h("legend.spoken", {}, "Speed of the replay"), ...labels);
  const box = h("div.controls", {}, play, restart, slider, clock, choice);

  function show() {
    const { time, duration, playing, speed } = player;
    box.hidden = duration <= 0;
    showPlaying(play, playing, "Play the race");
    slider.value = duration > 0 ? Math.round((1000 * time) / duration) : 0;
    slider.ariaValueText = clock.textContent = clockWords(player);
    for (const input of speeds) input.checked = Number(input.value) === speed;
  }

  return { box, show };
}
