// Taking a race along: a link that fills it in, its figures as CSV, and everything that is drawn as JSON.

import { h, list, text } from "../../../assets/viewer/dom.js";
import { saveFile } from "../../../assets/viewer/save.js";
import { STAGES } from "../../../assets/viewer/words.js";

function raceCsv(data) {
  const names = ["tokens", "seconds", "mean_acceptance_length", "tokens_per_second", "nodes_per_step", "speedup", "place", "identical", "differs_at"];
  const cell = (value) => (value === null || value === undefined ? "" : String(value));
  const rows = list(data.lanes)
    .filter(({ row }) => row)
    .map(({ method, state, row }) => [text(method), text(state), ...names.map((name) => cell(row[name])), ...STAGES.map(([stage]) => cell((row.stage_seconds || {})[stage]))]);
  const head = ["method", "state", ...names, ...STAGES.map(([stage]) => `seconds_${stage}`)];
  return [head, ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

export class RaceShare {
  constructor() {
    this.data = null;
    this.said = h("span", { class: "said", role: "status" });
    const button = (words, title, act) => {
      const b = h("button", { type: "button", title }, words);
      b.addEventListener("click", act);
      return b;
    };
    this.box = h(
      "div",
      { class: "sharing", hidden: true },
      this.said,
      button("Copy link", "Fills in prompt, settings and methods", () => this.copy()),
      button("CSV", "The figures", () => saveFile("race.csv", "text/csv", raceCsv(this.data))),
      button("JSON", "Figures, steps and times; whole traces are saved from the list of runs", () => saveFile("race.json", "application/json", JSON.stringify(this.data, null, 1))),
    );
  }

  /** The race, or null while one runs. */
  show(data) {
    this.data = data;
    this.box.hidden = !data || !list(data.lanes).some(({ row }) => row);
  }

  async copy() {
    try {
      const query = text(this.data.query);
      if (query) await navigator.clipboard.writeText(`${location.origin}${location.pathname}?${query}`);
      this.said.textContent = query ? "Link copied." : "The prompt is too long for a link.";
    } catch {
      this.said.textContent = "That did not work in this browser.";
    }
  }
}
