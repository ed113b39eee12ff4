// Calibrate: the verdict and its reasons, figures, and lists of the steps of a figure's mark.

import { button, emit, h, oneWait, readJson } from "../../assets/viewer/dom.js";
import { term } from "../../assets/viewer/glossary.js";
import { saveFile } from "../../assets/viewer/share.js";
import { OUTCOMES, capital, count, percent, probability, visible } from "../../assets/viewer/words.js";
import { figureView, plotly } from "../../assets/viewer/figures.js";
import { explorer } from "../static/explorer.js";

const TONES = {
  good: ["✓", "good"],
  bad: ["▼", "warning"],
  mixed: ["◐", "mixed"],
  few: ["…", "too few"],
  note: ["·", "note"],
};

/** The verdict, the sentences that support it, and the headline figures. */
function summaryView(choose) {
  const result = h("h2.result", {});
  const more = h("p.more", {});
  const figures = h("dl.panel.figures", { ariaLabel: "Figures" });
  const reading = h("section.panel.reading", { ariaLabel: "Reading" });
  const spoken = h("p.spoken", { ariaLive: "polite" });
  const line = ({ tone, text, chart, places }) => {
    const [mark, meaning] = TONES[tone];
    const show = { class: "small", ariaLabel: `Show the steps: ${text}` };
    return h(
      "li",
      { class: tone },
      h("i.tone", { title: meaning, ariaHidden: true }, mark),
      h("span.words", {}, text),
      places?.length > 0 && button("steps", show, () => choose(chart, places)),
    );
  };
  const stat = ({ name, value, note, meaning }) =>
    h(
      "div.stat",
      {},
      h("dt", {}, term(name, name, meaning.replace(/\.$/, ""))),
      h("dd", {}, h("span.value", {}, value), h("span.note", { title: note }, note)),
    );

  function show(data) {
    const [verdict, ...rest] = data.reading;
    const [title, reasons, exact] = headingOf(data);
    [result.textContent, more.textContent] = [title, reasons];
    const lines = exact ? [{ text: exact, tone: "note" }, ...rest] : rest;
    reading.replaceChildren(lines.length ? h("ul", {}, ...lines.map(line)) : "");
    if (!data.progress.running && verdict) spoken.textContent = verdict.text;
    figures.replaceChildren(...data.stats.map(stat));
  }

  return { result, more, figures, reading, spoken, show };
}

function closeReport() {
  const close = document.querySelector("#doctor-close");
  if (close?.getClientRects().length) close.click();
}

/** The heading of a measurement, split as by `verdictWords`. */
export const headingOf = ({ progress: { running, done }, reading: [verdict] }) =>
  running && !done ? ["Measuring the first prompt …", "", ""] : verdictWords(verdict?.text ?? "");

/** Splits the verdict into a title (the part before the colon), the reasons, and a sentence about the ECE. */
export function verdictWords(verdict) {
  const colon = verdict.indexOf(":");
  if (colon < 0) return [verdict, "", ""];
  const [says, exact = ""] = verdict
    .slice(colon + 1)
    .trim()
    .split(/; (?=ECE)/);
  return [`${verdict.slice(0, colon)}.`, capital(exact ? `${says}.` : says), capital(exact)];
}

const AT_ONCE = 60; // entries that “Show more” adds to the list

/** The list of the steps of a mark (a bar, cell or row). `open(row, at)` opens a step in Explore; `closed()` is called when the user closes
 *  the list. */
function membersView(open, closed) {
  let [data, items, shown, kind] = [null, [], AT_ONCE, "surest"];
  const title = h("h3", { tabindex: -1 });
  const kinds = h("div.kinds", { role: "group", ariaLabel: "Steps worth seeing" });
  const choice = h("select", { ariaLabel: "Group of prompts", onchange: () => showWorth(data) });
  const what = h("p.question", { ariaLive: "polite" });
  const list = h("ol.rows", {});
  const more = button("", { class: "small more" }, () => {
    shown += AT_ONCE;
    draw();
  });
  const close = button("✕", { class: "icon", ariaLabel: "Close the list" }, closed);
  const head = h("div.head", {}, title, h("div.tools", {}, close));
  const box = h("section.panel.members", { ariaLabel: "Steps" }, head, kinds, what, list, more);

  /** Lists steps worth seeing of one kind, in the selected group of prompts. */
  function showWorth(measured, wanted = kind) {
    const groups = [...new Set(measured.runs.map(({ domain }) => domain))].filter(Boolean).sort();
    const group = groups.includes(choice.value) ? choice.value : "";
    kind = wanted;
    choice.replaceChildren(
      h("option", { value: "" }, "all prompts"),
      ...groups.map((name) => h("option", { value: name, selected: name === group }, visible(name, 40, " "))),
    );
    kinds.replaceChildren(
      ...KINDS.map(([id, name]) =>
        button(
          h("span", {}, name, h("b", {}, worthSeeing(measured, id, group).length)),
          { class: "small", ariaPressed: id === kind },
          () => showWorth(data, id),
        ),
      ),
      groups.length > 1 ? choice : "",
    );
    show(measured, null, worthSeeing(measured, kind, group));
  }

  /** Lists items. `name`: name of the mark whose steps these are; null for steps worth seeing. */
  function show(measured, name, members) {
    [data, items, shown] = [measured, members, AT_ONCE];
    const none = name === null;
    title.textContent = none ? "Steps worth seeing" : name;
    close.hidden = none;
    kinds.hidden = !none;
    const steps = count(new Set(items.map(({ row }) => row)).size, "step");
    const positions = items.length > 0 && items[0].at !== null;
    const listed = positions ? `${count(items.length, "position")} in ${steps}, the most surprising first` : steps;
    const click = "Click a line to open its step in Explore.";
    what.textContent = none
      ? `${click} To list other steps, click a mark in a figure, or a number in a figure’s table.`
      : `${listed}. ${click}`;
    draw();
  }

  function draw() {
    list.replaceChildren(...items.slice(0, shown).map(line));
    const rest = Math.max(0, items.length - shown);
    more.hidden = !rest;
    more.textContent = rest > AT_ONCE ? `Show ${AT_ONCE} of the other ${rest}` : `Show the other ${rest}`;
  }

  function line({ row, at }) {
    const { steps, runs } = data;
    const [step, run] = [`Step ${steps.step[row] + 1}`, runs[steps.run[row]].label];
    const where = h("span.where", {}, h("b", {}, step), h("bdi", {}, run));
    const words = h("span.what", {}, ...(at === null ? stepWords(data, row) : positionWords(data, row, at)));
    return h(
      "li",
      {},
      button([where, words], {}, () => open(row, at)),
    );
  }

  return { box, title, show, showWorth };
}

function positionWords({ steps, report }, row, at) {
  const accepted = at < steps.matched[row];
  const chip = (kind, token) => h("bdi", { class: `chip ${kind}` }, visible(token, 14));
  return [
    chip(accepted ? "first" : "rejected", steps.tokens[row][at]),
    ` at ${steps.depths[row][at]}, confidence ${probability(steps.confidence[row][at])}: `,
    ...(accepted
      ? [h("b", {}, "accepted ✓")]
      : report.of_paths
        ? [h("b.reject", {}, "not accepted ✕")]
        : [h("b.reject", {}, "rejected ✕"), ", instead ", chip("target", steps.wanted[row])]),
  ];
}

function stepWords({ steps, report }, row) {
  const all = report.matrix.counts.length - 1;
  if (steps.happened[row] < 0) return ["boundary unknown"];
  const name = (boundary) => (boundary === all ? "all" : boundary);
  const rank = steps.rank[row] ? `, true boundary ranked ${steps.rank[row]}` : "";
  const outcome = OUTCOMES[steps.outcome[row]];
  return [
    `predicted ${name(steps.predicted[row])}, accepted ${name(steps.happened[row])}${rank}`,
    outcome && ": ",
    outcome && h("b", { class: `outcome ${steps.outcome[row]}` }, `${outcome.mark} ${outcome.words}`),
  ];
}

// The steps of a mark of a figure, and the marks of a step. A mark is given by its place in the figure.

/** Items of the list for these places. For a figure that counts positions, these are scored positions, the most surprising first;
 *  for other figures, whole steps. */
export function stepsBehind({ places, steps }, figure, wanted) {
  const among = (place) => wanted.includes(place);
  const positions = places.positions[figure]?.flatMap((marks, row) =>
    marks.flatMap((place, at) => (among(place) ? [{ row, at }] : [])),
  );
  if (positions) return bySurprise(positions, steps);
  return (places.steps[figure] ?? []).flatMap((marks, row) => (marks.some(among) ? [{ row, at: null }] : []));
}

/** The data with the predictions that a figure shows: those of the softmax, or of the confidence head. */
export const predictedBy = (data, figure) =>
  figure.startsWith("head-") ? { ...data, steps: { ...data.steps, ...data.head } } : data;

/** The places of a figure that a step belongs to. */
export const placesOf = ({ places }, figure, row) => (places.positions[figure] ?? places.steps[figure])?.[row] ?? [];

/** A common name of these places. */
export function nameOf({ panels }, figure, wanted) {
  const panel = panels.find(({ id }) => id === figure);
  const names = wanted.map((place) => panel?.names[place]).filter(Boolean);
  return names.length > 1 ? `${names[0]} to ${names.at(-1).replace(/^\D+/, "")}` : names.join("") || "Steps";
}

/** Sorts items, the most surprising first: rejected with high confidence, or accepted with low confidence. */
function bySurprise(items, steps) {
  const surprise = ({ row, at }) => Math.abs((at < steps.matched[row]) - steps.confidence[row][at]);
  return items.sort((a, b) => surprise(b) - surprise(a));
}

/** Items of the list before a mark is selected: rejected tokens, the highest confidence first. */
export function surprises({ steps }) {
  const items = steps.matched.map((at, row) => ({ row, at }));
  return bySurprise(
    items.filter(({ row, at }) => at >= 0 && at < steps.confidence[row].length),
    steps,
  );
}

const SURE = 0.9; // confidence above which a rejected first token is worth seeing

/** Kinds of steps worth seeing, as id and name. */
const KINDS = [
  ["surest", "Surest that were rejected"],
  ["first", `Rejected at once, ${percent(SURE)} sure`],
  ...["repaired", "found", "missed"].map((outcome) => [outcome, capital(OUTCOMES[outcome].words)]),
];

/** Items of the list for one kind of steps and one group of prompts (empty: all groups). */
export function worthSeeing(data, kind, group) {
  const { steps, runs } = data;
  const inGroup = ({ row }) => !group || runs[steps.run[row]].domain === group;
  const rejected = surprises(data).filter(inGroup);
  if (kind === "surest") return rejected;
  if (kind === "first") return rejected.filter(({ row, at }) => at === 0 && steps.confidence[row][0] > SURE);
  return steps.outcome.flatMap((outcome, row) => (outcome === kind ? [{ row, at: null }] : [])).filter(inGroup);
}

// The view, with one selection for all charts.

const NOTHING = { chart: "", places: [] };
const PATIENCE_MS = 20000;
const ROOM = 200; // pixels of the list in sight that suffice
// Figures in reading order. MAIN is below the verdict. The first of FURTHER is below the list of steps, the others further down.
const MAIN = ["uniform", "positions", "matrix"];
const FURTHER = ["stops", "ranks", "gains", "second", "domain"];
const HEAD = ["head-uniform", "head-positions", "head-matrix", "head-ranks"];

export function start(element, trigger, props, watch, server, options) {
  let data = null;
  let choice = NOTHING;
  const whenShown = oneWait(PATIENCE_MS); // opening another step ends the wait for an earlier one
  const root = h("section.panels.calibrate", { ariaLabel: "Calibration" });
  const choose = (chart, places) => {
    choice = { chart, places };
    showChoice(true);
  };
  const summary = summaryView(choose);
  const [main, more] = [MAIN, [...FURTHER, ...HEAD]].map((ids) => ids.map((id) => figureView(id, options, choose)));
  const figures = [...main, ...more];
  const [stops, ...others] = more.map((c) => c.box);
  const members = membersView(open, putAway);
  const title = h("span.what", {});
  const here = h("span.here", { hidden: true });
  const bar = h("progress", { max: 1, ariaLabel: "Prompts done", hidden: true });
  const save = () => {
    const { progress, runs, reading, report } = data;
    const saved = { title: progress.title, runs, reading, report };
    saveFile("calibration.json", "application/json", JSON.stringify(saved, null, 1));
  };
  const tools = h("div.tools", { hidden: true }, button("JSON", { class: "small", "data-save": "json" }, save));
  const notice = h("p.notice", { role: "alert", hidden: true });
  const empty = h(
    "p.empty",
    {},
    "Press Measure to run the prompts of the set one by one. The verdict is updated during the measurement.",
  );
  const hint = h(
    "p.hint",
    {},
    "In a figure, drag to zoom, and double-click to see all. If a figure has a legend of its own, click a name in it to hide its marks. Click a mark to list its steps.",
  );
  const views = h("div.grid", { hidden: true }, main[0].legend, ...main.map((c) => c.box), members.box, stops);
  const further = h(
    "details.further",
    { hidden: true },
    h("summary", {}, "How sure is this?"),
    summary.reading,
    summary.figures,
    hint,
    h("div.charts", {}, ...others),
  );
  root.prepend(
    summary.result,
    summary.more,
    h("div.line", {}, title, bar, here, tools),
    notice,
    empty,
    views,
    further,
    summary.spoken,
  );
  new ResizeObserver(([entry]) => entry.contentRect.width && plotly(options.plotly).catch(() => {})).observe(element); // loads Plotly when the tab is opened for the first time
  element.replaceChildren(root);

  function show() {
    data = readJson(props.value);
    const some = Boolean(data?.report);
    views.hidden = further.hidden = tools.hidden = summary.result.hidden = summary.more.hidden = !some;
    empty.hidden = some;
    notice.hidden = true;
    if (!some) return;
    const { progress } = data;
    const unfinished = progress.running || progress.done < progress.total;
    const done = unfinished ? `: ${progress.done} of ${progress.total} done` : "";
    title.textContent = progress.title + done;
    bar.hidden = !progress.running;
    Object.assign(bar, { max: Math.max(1, progress.total), value: progress.done });
    element.dataset.positions = data.report.positions;
    element.dataset.done = progress.running ? "" : progress.done;
    summary.show(data);
    for (const figure of figures)
      figure.show(
        data.panels.find(({ id }) => id === figure.id),
        progress.title,
      );
    if (!progress.running && !stepsBehind(data, choice.chart, choice.places).length) choice = NOTHING;
    showChoice(false);
  }

  /** The row of the step pinned in Explore; -1 if there is none. */
  function pinnedRow() {
    const { run, pinned } = explorer()?.dataset ?? {};
    const { steps, runs } = data;
    return pinned ? steps.run.findIndex((n, row) => runs[n].run === run && steps.step[row] === Number(pinned)) : -1;
  }

  function mark() {
    const row = pinnedRow();
    here.hidden = row < 0;
    here.textContent = row < 0 ? "" : `Dashed frame: step ${data.steps.step[row] + 1}, chosen in Explore`;
    for (const figure of figures)
      figure.select(figure.id === choice.chart ? choice.places : [], placesOf(data, figure.id, row));
  }

  function showChoice(chosen) {
    if (!data) return;
    const { chart, places } = choice;
    mark();
    const seen = predictedBy(data, chart);
    if (places.length) members.show(seen, nameOf(data, chart, places), stepsBehind(seen, chart, places));
    else members.showWorth(data);
    if (!chosen || !places.length) return;
    // Scroll to the list unless some of its rows are in sight; in a single column they never are. Closing the list scrolls back.
    const { top } = members.box.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight - ROOM) {
      members.box.scrollIntoView({ block: "start" });
      members.title.focus({ preventScroll: true });
    }
  }

  function putAway() {
    const from = figures.find(({ id }) => id === choice.chart);
    const [place] = choice.places;
    choice = NOTHING;
    showChoice(false);
    if (!from) return;
    from.box.scrollIntoView({ block: "nearest" });
    from.numbers.querySelector(`button[data-place="${place}"]`)?.focus();
  }

  /** Opens a step in Explore. The server sends the run unless Explore already shows it. */
  function open(row, at) {
    const { steps, runs } = data;
    const { run } = runs[steps.run[row]];
    const step = steps.step[row];
    const node = at === null ? null : (steps.nodes[row][at] ?? null);
    trigger("select", { run: steps.run[row], step, loaded: Boolean(run) && explorer()?.dataset.run === run });
    const find = () => {
      const view = explorer();
      return view?.offsetParent && view.dataset.run === run.slice(0, 200) && Number(view.dataset.steps) > step && view;
    };
    const select = (target) => {
      emit(target, "explorer:select", { step, node });
      const { top } = target.getBoundingClientRect();
      if (top < 0 || top > window.innerHeight * 0.6) target.scrollIntoView({ block: "start" });
    };
    whenShown(find, select, () => {
      notice.hidden = false;
      notice.textContent = "Explore could not load this run. Is the connection lost? Try again.";
    });
  }

  const onSelected = () => {
    if (!element.isConnected) document.removeEventListener("explorer:selected", onSelected);
    else if (data) mark();
  };
  document.addEventListener("explorer:selected", onSelected);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && closeReport());
  watch("value", show);
  show();
}
