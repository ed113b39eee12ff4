// Play, restart, the time slider and the choice of slow motion.

import { h } from "../../../assets/viewer/dom.js";
import { SPEEDS } from "./player.js";

export class Controls {
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
