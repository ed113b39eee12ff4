// The clock of the replay: seconds of the race, running at a chosen share of real time.

import { h, list, text } from "../../assets/viewer/dom.js";
import { PROPOSERS, PROPOSER_NAMES, quoted, visible } from "../../assets/viewer/words.js";
import { CostsView, retimed } from "./costs.js";
import { LaneView, readLane } from "./lane.js";
import { RaceShare } from "./share.js";
import { raceTable, stageLegend, whyWords } from "./table.js";

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
      if (!this.playing) return;
      if (!this.host.isConnected) {
        this.playing = false;
        return;
      }
      if (now - this.before < BETWEEN) {
        this.ask();
        return;
      }
      this.time = Math.min(this.duration, this.time + ((now - this.before) / 1000) * this.speed);
      this.before = now;
      if (this.time >= this.duration) this.playing = false;
      else this.ask();
      this.changed();
    };
  }

  /** A new race: at its start, at the fastest speed that can still be followed. */
  load(duration) {
    this.playing = false;
    this.duration = duration;
    this.time = 0;
    this.speed = (SPEEDS.find(([speed]) => duration / speed >= LEAST_SECONDS) || SPEEDS[SPEEDS.length - 1])[0];
    this.changed();
  }

  play() {
    if (this.playing || this.duration <= 0) return;
    if (this.time >= this.duration) this.time = 0;
    this.playing = true;
    this.before = performance.now();
    this.ask();
    this.changed();
  }

  /** For one frame at a time: one that was asked for before a stop comes all the same. */
  ask() {
    this.frame ??= requestAnimationFrame(this.tick);
  }

  pause() {
    this.playing = false;
    this.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  restart() {
    this.time = 0;
    this.playing = false;
    this.play();
  }

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

// Play, restart, the time slider and the choice of slow motion.

class Controls {
  constructor(player) {
    this.player = player;
    this.play = h("button", { type: "button", class: "play" });
    this.restart = h("button", { type: "button", class: "icon", title: "Restart", "aria-label": "Restart" }, "↺");
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
    this.play.addEventListener("click", () => player.toggle());
    this.restart.addEventListener("click", () => player.restart());
    this.slider.addEventListener("input", () => player.seek((Number(this.slider.value) / 1000) * player.duration));
    for (const [speed, input] of this.speeds) input.addEventListener("change", () => input.checked && player.slow(speed));
  }

  show() {
    const { time, duration, playing, speed } = this.player;
    const seconds = (t) => (duration < 10 ? t.toFixed(3) : t.toFixed(1));
    this.box.hidden = duration <= 0;
    if (this.play.getAttribute("aria-pressed") !== String(playing)) {
      this.play.textContent = playing ? "❚❚ Pause" : "▶ Play";
      this.play.setAttribute("aria-pressed", playing);
    }
    this.slider.value = duration > 0 ? Math.round((1000 * time) / duration) : 0;
    const words = `${seconds(time)} of ${seconds(duration)} s`;
    this.slider.setAttribute("aria-valuetext", words);
    this.clock.textContent = words;
    for (const [value, input] of this.speeds) input.checked = value === speed;
  }
}

// Builds the view; a new value is another state of a running race, or another race.

export function start(element, trigger, props, watch) {
  const heading = h("h3", { class: "title" });
  const status = h("p", { class: "status", role: "status" });
  const spoken = h("p", { class: "spoken", "aria-live": "polite" });
  const tracks = h("ol", { class: "tracks", "aria-label": "How far each method is" });
  const panels = h("div", { class: "lanes" });
  const table = h("div", { class: "panel figures" });
  const empty = h("p", { class: "empty" }, "Nothing to show yet: choose methods and press Race.");
  const player = new Player(element, () => draw());
  const controls = new Controls(player);
  const costs = new CostsView(() => retime());
  const sharing = new RaceShare();
  const legend = h("ul", { class: "legend", "aria-label": "Who proposed a token" }, ...PROPOSERS.map((who) => h("li", {}, h("span", { class: `tok ${who}` }, PROPOSER_NAMES[who]))));
  const stage = h("div", { class: "panel stage" }, h("div", { class: "head" }, heading, status, sharing.box), controls.box, tracks, costs.axis, costs.box, legend);
  const root = h("section", { class: "panels race", "aria-label": "Race" }, empty, stage, panels, table, spoken);
  element.replaceChildren(root);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let lanes = [];
  let waiting = false; // for the first time that a finished race can be seen

  function draw() {
    const grown = lanes.filter((lane) => lane.show(player.time));
    controls.show();
    element.dataset.time = player.time.toFixed(3);
    element.dataset.playing = player.playing;
    for (const lane of grown) lane.follow(); // reads the layout, so after all writes
    if (player.duration > 0 && player.time >= player.duration) tell();
  }

  function tell() {
    const order = lanes.map((view) => view.lane).filter((lane) => lane.row && lane.row.place).sort((a, b) => a.row.place - b.row.place);
    const words = order.length ? `Finish order: ${order.map((lane) => lane.name).join("; ")}.` : "";
    if (spoken.textContent !== words) spoken.textContent = words;
  }

  function show() {
    const data = readJson(props.value) || { lanes: [] };
    const raw = list(data.lanes).map(readLane);
    const running = text(data.status);
    empty.hidden = raw.length > 0;
    for (const part of [stage, panels, table]) part.hidden = !raw.length;
    element.dataset.lanes = raw.filter((lane) => lane.total).length;
    element.dataset.state = running ? "running" : raw.length ? "done" : "empty";
    heading.textContent = running ? "Running, one method after the other" : data.recorded ? "A recorded race" : "Your race";
    // the form beside it may hold another prompt and model by now
    const what = [text(data.prompt) && quoted(data.prompt, 40), text(data.model) && `on ${visible(data.model, 40)}`].filter(Boolean).join(" ");
    const machine = data.machine ? `measured on ${text(data.machine)}` : "";
    const said = [what, machine].filter(Boolean).join(", ");
    status.textContent = running || (data.recorded ? `${said} when this page was made; press Race to run one here` : said);
    const longest = Math.max(0, ...raw.map((lane) => lane.end));
    lanes = raw.map((lane, at) => new LaneView(lane, longest, !running, () => trigger("select", { lane: at })));
    sharing.show(running ? null : data);
    tracks.replaceChildren(...lanes.map((lane) => lane.track));
    panels.replaceChildren(...lanes.map((lane) => lane.panel));
    const measured = raw.some((lane) => lane.row && lane.total);
    table.hidden = !measured;
    costs.load(running ? [] : raw);
    if (measured) table.replaceChildren(h("div", { class: "head" }, h("h3", {}, "Figures"), stageLegend()), h("p", { class: "why" }, whyWords(raw)), h("div", { class: "scroll" }, raceTable(raw, data)), costs.mapBox);
    costs.scale(longest);
    player.load(running ? 0 : longest);
    // While methods still run nothing is replayed: what is there already stands still, the clock is theirs.
    if (running) lanes.filter((lane) => lane.show(Infinity)).forEach((lane) => lane.follow());
    else if (still.matches) player.seek(player.duration);
    else waiting = player.duration > 0;
    begin();
  }

  /** The same race on another machine. */
  function retime() {
    const { machine } = costs;
    const ends = lanes.map((view) => (machine ? retimed(view.lane, machine) : view.lane.steps.map((step) => step.elapsed)));
    const longest = Math.max(0, ...ends.map((of) => (of && of[of.length - 1]) || 0));
    lanes.forEach((view, at) => {
      view.calculated = machine && (ends[at] ? (machine.milliseconds === null ? "plain steps" : "time") : "unknown");
      view.time(ends[at] || view.lane.steps.map(() => longest), longest);
    });
    element.dataset.calculated = Boolean(machine);
    costs.say();
    costs.scale(longest);
    player.load(longest);
    player.seek(longest);
  }

  function begin() {
    if (!waiting || !element.offsetParent) return;
    waiting = false;
    player.play();
  }

  // The tab may be hidden when the race arrives: start when it is first seen.
  new ResizeObserver(begin).observe(root);
  watch("value", show);
  show();
}
