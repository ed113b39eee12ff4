// Calibrate: builds the view, keeps one choice for all charts, and hands steps to Explore.

import { h, oneWait, text } from "../../assets/viewer/dom.js";
import { FigureView, plotly } from "../../assets/viewer/figures.js";
import { SidesView } from "../static/compare/sides.js";
import { downloads } from "../static/calibrate/download.js";
import { MembersView } from "../static/calibrate/members.js";
import { nameOf, placesOf, stepsBehind, surprises } from "../static/calibrate/places.js";
import { SummaryView } from "../static/calibrate/summary.js";

const PATIENCE_MS = 20000;
// In reading order; the first stand beside the list of steps.
const MAIN = ["uniform", "positions", "matrix", "ranks", "gains", "moved"];
const FURTHER = ["equal_mass", "head", "second", "promise", "domain", "kind"];

export function start(element, trigger, props, watch, server, given) {
  let data = null;
  let choice = { chart: "", places: [] };
  const whenShown = oneWait(PATIENCE_MS); // of two steps that are opened, the later one is selected
  const root = h("section", { class: "panels calibrate", "aria-label": "Calibration" });
  const choose = (chart, places) => {
    choice = { chart, places };
    showChoice(true);
  };
  const summary = new SummaryView(choose);
  const [main, more] = [MAIN, FURTHER].map((ids) => ids.map((id) => new FigureView(id, given, choose)));
  const figures = [...main, ...more];
  const against = new SidesView(given);
  const compared = h("section", { class: "compared", "aria-label": "Comparison", hidden: true }, against.top, against.pair);
  const members = new MembersView(open, () => putAway());
  const title = h("span", { class: "what" });
  const bar = h("progress", { max: 1, "aria-label": "Prompts done" });
  const files = downloads(() => data);
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const empty = h("p", { class: "empty" }, "Nothing is measured yet: choose what to measure and press Measure.");
  const hint = h("p", { class: "hint" }, "Drag to zoom, double-click to see all, click a name in a legend to hide it, a mark to list its steps. A dashed frame marks the step pinned in Explore.");
  const views = h("div", { class: "grid", hidden: true }, summary.figures, summary.reading, hint, ...main.map((c) => c.box), members.box);
  const further = h("div", { class: "further", hidden: true }, ...more.map((c) => c.box));
  root.prepend(h("div", { class: "line" }, h("span", { class: "asked" }, "Can the first drafter’s confidence be trusted?"), title, bar, h("div", { class: "tools" }, ...files)), notice, empty, compared, views, further, summary.spoken);
  new ResizeObserver(([entry]) => entry.contentRect.width && plotly(given.plotly).catch(() => {})).observe(element); // once the tab is open
  element.replaceChildren(root);

  function show() {
    try {
      data = JSON.parse(props.value || "null");
    } catch {
      data = null;
    }
    const some = Boolean(data && data.report);
    views.hidden = further.hidden = !some;
    compared.hidden = !some || !data.against;
    if (!compared.hidden) against.show(data.against);
    empty.hidden = some;
    notice.hidden = true;
    if (!some) return;
    const { progress } = data;
    title.textContent = progress.running || progress.done < progress.total ? `${text(progress.title)}: ${progress.done} of ${progress.total} done` : text(progress.title);
    bar.hidden = !progress.running;
    Object.assign(bar, { max: Math.max(1, progress.total), value: progress.done });
    element.dataset.positions = data.report.positions;
    element.dataset.done = progress.running ? "" : progress.done;
    summary.show(data);
    for (const figure of figures) figure.show(data.panels.find(({ id }) => id === figure.id) || null, progress.title);
    if (!progress.running && !stepsBehind(data, choice.chart, choice.places).length) choice = { chart: "", places: [] };
    showChoice(false);
  }

  /** The row of the step that is pinned in Explore. */
  function pinnedRow() {
    const view = document.querySelector("#explorer [data-run]");
    if (!view || !view.dataset.pinned) return null;
    const row = data.steps.run.findIndex((run, at) => data.runs[run].run === view.dataset.run && data.steps.step[at] === Number(view.dataset.pinned));
    return row < 0 ? null : row;
  }

  /** Marks what is chosen here, and where the step is that is pinned in Explore. */
  function mark() {
    const row = pinnedRow();
    for (const figure of figures) figure.select(figure.id === choice.chart ? choice.places : [], row === null ? [] : placesOf(data, figure.id, row));
  }

  function showChoice(asked) {
    if (!data) return;
    const { chart, places } = choice;
    mark();
    if (places.length) members.show(data, nameOf(data, chart, places), stepsBehind(data, chart, places));
    else members.show(data, null, surprises(data));
    if (!asked || !places.length) return;
    // Where the list is out of sight, as always in one column, go there; come back when it is closed.
    const { top } = members.box.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight * 0.7) {
      members.box.scrollIntoView({ block: "start" });
      members.title.focus({ preventScroll: true });
    }
  }

  function putAway() {
    const from = figures.find(({ id }) => id === choice.chart);
    const [place] = choice.places;
    choice = { chart: "", places: [] };
    showChoice(false);
    if (!from) return;
    from.box.scrollIntoView({ block: "nearest" });
    const button = from.numbers.querySelector(`button[data-place="${place}"]`);
    if (button) button.focus();
  }

  /** Explore gets the run from the server unless it has it already; then the step is selected there. */
  function open(row, at) {
    const view = document.querySelector("#explorer [data-run]");
    const run = data.runs[data.steps.run[row]];
    const step = data.steps.step[row];
    const node = at === null ? null : (data.steps.nodes[row][at] ?? null);
    trigger("select", { run: data.steps.run[row], step, loaded: Boolean(view && run.run && view.dataset.run === run.run) });
    const find = () => {
      const target = document.querySelector("#explorer [data-run]");
      return target && target.offsetParent && target.dataset.run === run.run.slice(0, 200) && Number(target.dataset.steps) > step ? target : null;
    };
    const select = (target) => {
      target.dispatchEvent(new CustomEvent("explorer:select", { detail: { step, node } }));
      const { top } = target.getBoundingClientRect();
      if (top < 0 || top > window.innerHeight * 0.6) target.scrollIntoView({ block: "start" });
    };
    whenShown(find, select, () => {
      notice.hidden = false;
      notice.textContent = "Explore did not get this run; is the connection lost? Try again.";
    });
  }

  const onSelected = () => {
    if (!element.isConnected) document.removeEventListener("explorer:selected", onSelected);
    else if (data) mark();
  };
  document.addEventListener("explorer:selected", onSelected);
  watch("value", show);
  show();
}
