// Finding steps: by what came of their prediction, by length, by time; and the totals of a range of steps.

import { h, s } from "./dom.js";
import { judged } from "./store.js";
import { capital, count, milliseconds, OUTCOMES, percent, probability } from "./words.js";

const SURE = 0.8;
const MOST = 10;

/** What steps can be looked for: words, and which of the summaries are meant. */
const FILTERS = {
  any: ["any step", null],
  sure: [`rejected though sure (c ≥ ${probability(SURE)})`, (all) => where(all, (s) => s.sureOfWrong !== null && s.sureOfWrong >= SURE)],
  longest: [`the ${MOST} longest`, (all) => largest(all, (s) => s.total)],
  slowest: [`the ${MOST} slowest`, (all) => largest(all, (s) => Object.values(s.seconds).reduce((a, b) => a + b, 0))],
};
FILTERS.undrafted = ["nothing drafted (cost-aware)", (all) => where(all, (s) => s.undrafted)];
for (const [id, { words }] of Object.entries(OUTCOMES)) FILTERS[id] = [words, (all) => where(all, (s) => s.verdict === id)];

export const where = (all, test) => all.flatMap((summary, at) => (test(summary) ? [at] : []));
const largest = (all, size) => all.map((summary, at) => [size(summary), at]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, MOST).map(([, at]) => at).sort((a, b) => a - b);

export const icon = (path) => s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true", class: "drawn" }, s("path", { d: path }));

export class FinderView {
  constructor(timeline, store, selection) {
    Object.assign(this, { timeline, store, selection, found: null, counted: -1 });
    const button = (words, title, act) => {
      const made = h("button", { type: "button", class: "icon", title, "aria-label": title }, words);
      made.addEventListener("click", act);
      return made;
    };
    const options = ["any", ...Object.keys(OUTCOMES), "undrafted", "sure", "longest", "slowest"].map((id) => h("option", { value: id }, capital(FILTERS[id][0])));
    this.choice = h("select", { id: "step-filter", "aria-label": "Which steps to look for" }, ...options);
    this.count = h("span", { class: "count", role: "status" });
    this.marks = h("ul", { class: "glyphs", "aria-label": "Marks under the steps: outcome of the predicted boundary" });
    this.marks.append(...Object.entries(OUTCOMES).map(([id, { mark, words }]) => this.markOf(id, mark, words)));
    const before = button("‹", "Previous of these steps (P)", () => this.go(-1));
    const next = button("›", "Next of these steps (N)", () => this.go(1));
    this.rangeButton = button(icon("M-6-5V5M6-5V5M-4 0H4M-2-2L-4 0L-2 2M2-2L4 0L2 2"), "Select a range of steps: drag over them (or Shift + drag)", () => this.toggleRanging());
    this.totals = h("p", { class: "range", role: "status", hidden: true });
    const zooms = [button("−", "Narrower bars", () => timeline.zoom(0.7)), button("+", "Wider bars (Ctrl + wheel)", () => timeline.zoom(1.4)), this.rangeButton];
    this.box = h("div", { class: "finder" }, h("div", { class: "row" }, this.choice, before, next, this.count), this.marks);
    this.zooms = h("div", { class: "zooms", role: "group", "aria-label": "Zoom of the steps" }, ...zooms);
    this.choice.addEventListener("change", () => this.visit());
    timeline.ranged = () => this.showRange();
  }

  markOf(id, mark, words) {
    const made = h("button", { type: "button", class: id, "data-outcome": id, title: `Show only these steps: ${words}` }, h("i", { "aria-hidden": "true" }, mark), words, h("b", {}));
    made.addEventListener("click", () => {
      this.choice.value = this.choice.value === id ? "any" : id;
      this.visit();
    });
    return h("li", { class: id }, made);
  }

  /** Finds the steps that are asked for, and goes to the next of them unless one of them is shown. */
  visit() {
    this.show();
    if (this.found && !this.found.includes(this.selection.shown)) this.go(1);
  }

  /** Finds the steps anew; called when steps arrive as well. */
  show() {
    const [, test] = FILTERS[this.choice.value];
    this.found = test ? test(this.store.summaries) : null;
    this.timeline.matching = this.found && new Set(this.found);
    this.counted = this.store.length;
    for (const button of this.marks.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", this.choice.value === button.dataset.outcome);
      button.lastChild.textContent = this.store.sums.outcomes[button.dataset.outcome];
    }
    this.place();
    this.timeline.draw();
  }

  /** Where among the found steps the shown one is. */
  place() {
    if (this.counted !== this.store.length) return this.show();
    const at = this.found ? this.found.indexOf(this.selection.shown) : -1;
    this.count.textContent = !this.found ? "" : this.found.length ? `${at < 0 ? "" : `${at + 1} of `}${this.found.length}` : "none";
  }

  /** The next or previous of the found steps, around the end. */
  go(by) {
    const found = this.found || this.store.summaries.map((_, at) => at);
    if (!found.length) return;
    const here = this.selection.shown ?? -1;
    const beyond = by > 0 ? found.find((at) => at > here) : found.findLast((at) => at < here);
    this.selection.pause();
    this.selection.pin(beyond ?? (by > 0 ? found[0] : found[found.length - 1]));
  }

  reset() {
    this.choice.value = "any";
    this.timeline.zoomed = 1;
    this.timeline.select(null);
    this.show();
  }

  toggleRanging() {
    const { timeline } = this;
    timeline.ranging = !timeline.ranging;
    this.rangeButton.setAttribute("aria-pressed", timeline.ranging);
    if (!timeline.ranging) timeline.select(null);
  }

  showRange() {
    const { range } = this.timeline;
    this.totals.hidden = !range;
    if (!range) return this.totals.replaceChildren();
    const sums = this.store.sumsOf(...range);
    const cases = judged(sums);
    const seconds = Object.values(sums.seconds).reduce((a, b) => a + b, 0);
    const zoom = h("button", { type: "button" }, "Zoom to them");
    const clear = h("button", { type: "button" }, "Clear");
    zoom.addEventListener("click", () => this.timeline.zoomToRange());
    clear.addEventListener("click", () => this.timeline.select(null));
    const words = [`${count(sums.tokens, "token")}, ${(sums.tokens / sums.steps).toFixed(2)} per step`, `${(sums.nodes / sums.steps).toFixed(1)} nodes per step`, cases ? `${percent(sums.outcomes.repaired / cases)} of ${cases} repaired` : "", seconds ? milliseconds(seconds) : ""];
    const name = range[0] === range[1] ? `Step ${range[0] + 1}` : `Steps ${range[0] + 1} to ${range[1] + 1}`;
    return this.totals.replaceChildren(h("b", {}, name), " " + words.filter(Boolean).join(" · "), zoom, clear);
  }
}
