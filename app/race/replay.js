// The replay of a race. Each method has a lane: a bar in the overview and a text, both growing at the measured
// speed. A player with controls advances the time of the race, at full speed or slower.

import { button, h, list, number, sum, text, whole } from "../../assets/viewer/dom.js";
import { playIcon } from "../../assets/viewer/player.js";
import { readToken } from "../../assets/viewer/step.js";
import { tokenSpan } from "../../assets/viewer/text.js";
import { count, methodName, milliseconds, PROPOSERS } from "../../assets/viewer/words.js";

const ORDINALS = ["", "1st", "2nd", "3rd"];
export const ordinal = (place) => ORDINALS[place] || `${place}th`;

/** Parses a lane; `elapsed` and `end` are in seconds since the end of prefill. */
export function readLane(raw) {
  const steps = list(raw.steps).map((step) => {
    const [elapsed, tokens] = list(step);
    return { elapsed: number(elapsed, 0, 1e6, 0), tokens: list(tokens).map(readToken) };
  });
  const row = raw.row && typeof raw.row === "object" ? raw.row : null;
  const total = sum(steps.map((step) => step.tokens.length));
  return {
    method: text(raw.method),
    name: methodName(text(raw.method)),
    sentence: text(raw.sentence),
    state: text(raw.state),
    problem: text(raw.problem),
    steps,
    row,
    total,
    opening: whole(raw.opening, 0, 1, 0), // tokens of the pass over the prompt, which belong to no step
    end: steps.at(-1)?.elapsed ?? 0,
  };
}

const LINE = 22; // pixels: line height in race.css

export class LaneView {
  /** `longest`: seconds of the slowest lane, the full width of a bar; `decided`: whether the race is over; `open()`: shows the lane's
   *  run in Explore. */
  constructor(lane, longest, decided, open) {
    const ends = lane.steps.map((step) => step.elapsed);
    Object.assign(this, { lane, decided, ends, longest: Math.max(1e-9, longest), shown: 0, painted: false });
    this.rail = h("span", { class: "rail" });
    this.result = h("span", { class: "result" });
    this.track = h(
      "li",
      { class: "track", "data-method": lane.method },
      h("span", { class: "name", title: lane.name }, lane.name),
      this.rail,
      this.result,
    );
    this.note = h("span", { class: "note" });
    this.words = h("div", { class: "words", tabindex: 0, role: "region", "aria-label": `Text of ${lane.name}` });
    const opener =
      decided && lane.total
        ? button("Explore →", { class: "explore", "aria-label": `Explore → the run of ${lane.name}` }, open)
        : null;
    this.panel = h(
      "article",
      { class: `panel lane ${lane.state.replace(/ /g, "-")}`, "data-method": lane.method, "data-state": lane.state },
      h("div", { class: "head" }, h("h3", { title: lane.sentence }, lane.name), this.note, opener),
      this.words,
    );
    new ResizeObserver(() => this.follow()).observe(this.words); // also when first visible
    if (lane.problem) this.words.append(h("p", { class: "problem" }, lane.problem));
    this.tokens = lane.steps.flatMap((step, number) =>
      step.tokens.map((token, at) => this.addToken(token, at, number)),
    );
    this.rail.append(...this.blocks());
  }

  /** The steps of the bar. The width of a step is its time, divided between the proposers by their numbers of tokens. */
  blocks() {
    const { ends } = this;
    const share = (seconds) => `${((100 * seconds) / this.longest).toFixed(3)}%`;
    return this.lane.steps.map((step, at) => {
      const from = at ? ends[at - 1] : 0;
      const counts = PROPOSERS.map((who) => [who, step.tokens.filter((token) => token.proposer === who).length]).filter(
        ([, n]) => n,
      );
      const title = `${count(step.tokens.length, "token")} in ${milliseconds(ends[at] - from)}`;
      return h(
        "span",
        { class: "block", title, style: `left:${share(from)};width:${share(ends[at] - from)}` },
        ...counts.map(([who, n]) => h("span", { class: `segment ${who}`, style: `flex-grow:${n}` })),
      );
    });
  }

  addToken(token, at, step) {
    const node = tokenSpan(token, at === 0);
    node.hidden = true;
    this.words.append(node);
    return { node, step };
  }

  /** Shows the tokens committed until `time`; returns whether their number changed, so that `follow` has to scroll. */
  show(time) {
    const { tokens, lane, ends } = this;
    const before = this.shown;
    this.rail.style.clipPath = `inset(0 ${Math.max(0, 100 - (100 * time) / this.longest).toFixed(3)}% 0 0)`;
    while (this.shown < tokens.length && ends[tokens[this.shown].step] <= time)
      tokens[this.shown++].node.hidden = false;
    while (this.shown > 0 && ends[tokens[this.shown - 1].step] > time) tokens[--this.shown].node.hidden = true;
    if (before === this.shown && this.painted) return false;
    this.painted = true;
    const over = this.shown === tokens.length && tokens.length > 0;
    this.panel.classList.toggle("over", over);
    this.note.textContent = this.shown
      ? count(this.shown - lane.opening, "token")
      : { waiting: "waiting", running: "running now", "not run": "not run" }[lane.state] || "";
    this.result.textContent = over ? this.verdict() : "";
    return true;
  }

  verdict() {
    const { row, state, end } = this.lane;
    const time = end < 1 ? `${(end * 1000).toFixed(0)} ms` : `${end.toFixed(2)} s`;
    const place = row && this.decided && whole(row.place, 1, 99, null);
    return place ? `${ordinal(place)} · ${time}` : `${state} · ${time}`;
  }

  follow() {
    const { words } = this;
    if (!this.shown) return;
    const token = this.tokens[this.shown - 1].node;
    const below = token.offsetTop + token.offsetHeight - words.clientHeight;
    words.scrollTop = LINE * Math.ceil(Math.max(0, below) / LINE); // scrolls by whole lines
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
    this.time = Math.min(this.duration, Math.max(0, time));
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
    this.playing = null;
    this.restart = button("↺", { class: "icon", title: "Restart", "aria-label": "Restart" }, () => player.restart());
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: 1000,
      step: 1,
      value: 0,
      class: "time",
      "aria-label": "Time of the race",
    });
    this.clock = h("output", { class: "clock" });
    this.speeds = SPEEDS.map(([speed, label]) => [
      speed,
      h("input", { type: "radio", name: "race-speed", value: speed }),
      label,
    ]);
    this.box = h(
      "div",
      { class: "controls" },
      this.play,
      this.restart,
      this.slider,
      this.clock,
      h(
        "fieldset",
        { class: "speeds" },
        h("legend", { class: "spoken" }, "Speed of the replay"),
        ...this.speeds.map(([, input, label]) => h("label", {}, input, h("span", {}, label))),
      ),
    );
    this.slider.addEventListener("input", () => player.seek((Number(this.slider.value) / 1000) * player.duration));
    for (const [speed, input] of this.speeds)
      input.addEventListener("change", () => input.checked && player.slow(speed));
  }

  show() {
    const { time, duration, playing, speed } = this.player;
    this.box.hidden = duration <= 0;
    if (this.playing !== playing) {
      this.playing = playing;
      this.play.replaceChildren(playIcon(playing));
      this.play.setAttribute("aria-label", playing ? "Pause" : "Play the race");
    }
    this.slider.value = duration > 0 ? Math.round((1000 * time) / duration) : 0;
    const words = clockWords(this.player);
    this.slider.setAttribute("aria-valuetext", words);
    this.clock.textContent = words;
    for (const [value, input] of this.speeds) input.checked = value === speed;
  }
}
