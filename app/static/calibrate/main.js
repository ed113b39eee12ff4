// Calibrate: builds the view, keeps one choice for all charts, and hands steps to Explore.

const PATIENCE_MS = 20000;

function start(element, trigger, props, watch) {
  let data = null;
  let choice = { chart: "", places: [] };
  const root = h("section", { class: "panels", "aria-label": "Calibration" });
  const tooltip = new Tooltip(root);
  const choose = (chart, places) => {
    choice = { chart, places };
    showChoice(true);
  };
  const summary = new SummaryView(choose);
  const reliability = new ReliabilityChart(choose, tooltip);
  const more = [new SecondChart(choose, tooltip), new PromiseChart(choose, tooltip), new GroupsView(choose)];
  const charts = [reliability, new PositionChart(choose, tooltip), new MatrixChart(choose, tooltip), new RankChart(choose, tooltip), new GainsView(choose), new AdviceView(choose), ...more];
  const against = new AgainstView();
  const members = new MembersView(open, () => putAway());
  const title = h("span", { class: "what" });
  const bar = h("progress", { max: 1, "aria-label": "Prompts done" });
  const files = downloads(() => data);
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const empty = h("p", { class: "empty" }, "Nothing is measured yet: choose what to measure and press Measure.");
  const legend = h("ul", { class: "legend", "aria-label": "Legend" }, ...legendItems());
  const views = h("div", { class: "grid", hidden: true }, summary.figures, summary.reading, legend, ...charts.filter((c) => !more.includes(c)).map((c) => c.box), members.box);
  const further = h("div", { class: "further", hidden: true }, ...more.map((c) => c.box));
  root.prepend(h("div", { class: "line" }, h("span", { class: "asked" }, "Can the first drafter’s confidence be trusted?"), title, bar, h("div", { class: "tools" }, ...files)), notice, empty, against.box, views, further, summary.spoken, patterns());
  element.replaceChildren(root);

  function show() {
    try {
      data = JSON.parse(props.value || "null");
    } catch {
      data = null;
    }
    const some = Boolean(data && data.report);
    views.hidden = further.hidden = !some;
    against.show(some ? data.against : null);
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
    for (const chart of charts) chart.show(data);
    if (!progress.running && choice.places.length && !membersOf(data, choice.chart, choice.places).length) choice = { chart: "", places: [] };
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
    for (const chart of charts) chart.select(chart.id === choice.chart || (chart.ids && chart.ids.includes(choice.chart)) ? choice.places : [], placesOf(data, chart.id, row), choice.chart);
  }

  function showChoice(asked) {
    if (!data) return;
    if (choice.chart === "uniform" || choice.chart === "equal_mass") reliability.use(choice.chart);
    mark();
    const some = choice.places.length > 0;
    members.show(data, some ? choiceName() : null, some ? membersOf(data, choice.chart, choice.places) : surprises(data));
    if (!asked || !some) return;
    // Where the list is out of sight, as always in one column, go there; come back when it is closed.
    const { top } = members.box.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight * 0.7) {
      members.box.scrollIntoView({ block: "start" });
      members.title.focus({ preventScroll: true });
    }
  }

  function putAway() {
    const from = charts.find((c) => c.id === choice.chart || (c.ids && c.ids.includes(choice.chart)));
    choice = { chart: "", places: [] };
    showChoice(false);
    if (from && from.focus) from.focus(from.at);
    else if (from) from.box.scrollIntoView({ block: "nearest" });
  }

  function choiceName() {
    const { chart, places } = choice;
    const all = data.report.matrix.counts.length - 1;
    const outcome = (i) => (i === all ? "all" : i);
    const first = places[0];
    if (chart === "uniform" || chart === "equal_mass") {
      const columns = reliability.columns();
      return `Confidence ${places.map((p) => columns[p].name).join(", ")}`;
    }
    if (chart === "positions") return `Position ${first}`;
    if (chart === "ranks") return `True boundary ranked ${places.map((p) => p + 1).join(", ")}`;
    if (chart === "gains") return first === 0 ? "First draft brought tokens" : `Re-draft ${first} brought tokens`;
    if (chart === "second") return `Second drafter says ${data.report.second.uniform[first].left.toFixed(1)}–${data.report.second.uniform[first].right.toFixed(1)}`;
    if (chart === "promise") return `Re-drafts that promised ${promiseName(data.report.second.gains[first])} tokens`;
    if (chart === "kind") return `Kind of token: ${data.kinds[first]}`;
    if (chart === "domain") return `Prompts of ${text(data.report.domains[first].name)}`;
    if (chart === "moved") return "Other prefixes with the temperature";
    return first === -1 ? "Whole first draft accepted" : `Predicted ${outcome(first % (all + 1))}, actual ${outcome(Math.floor(first / (all + 1)))}`;
  }

  /** Explore gets the run from the server unless it has it already; then the step is selected there. */
  function open(row, at) {
    const view = document.querySelector("#explorer [data-run]");
    const run = data.runs[data.steps.run[row]];
    const step = data.steps.step[row];
    const node = at === null ? null : (data.steps.nodes[row][at] ?? null);
    trigger("select", { run: data.steps.run[row], step, loaded: Boolean(view && run.run && view.dataset.run === run.run) });
    const began = performance.now();
    const wait = () => {
      const target = document.querySelector("#explorer [data-run]");
      if (target && target.offsetParent && target.dataset.run === run.run.slice(0, 200) && Number(target.dataset.steps) > step) {
        target.dispatchEvent(new CustomEvent("explorer:select", { detail: { step, node } }));
        const { top } = target.getBoundingClientRect();
        if (top < 0 || top > window.innerHeight * 0.6) target.scrollIntoView({ block: "start" });
      } else if (performance.now() - began < PATIENCE_MS) setTimeout(wait, 40);
      else {
        notice.hidden = false;
        notice.textContent = "Explore did not get this run; is the connection lost? Try again.";
      }
    };
    wait();
  }

  const onSelected = () => {
    if (!element.isConnected) document.removeEventListener("explorer:selected", onSelected);
    else if (data) mark();
  };
  document.addEventListener("explorer:selected", onSelected);
  watch("value", show);
  show();
}

function legendItems() {
  const icon = (...parts) => s("svg", { width: 24, height: 14, viewBox: "-12 -7 24 14", "aria-hidden": "true" }, ...parts);
  const item = (picture, words) => h("li", {}, picture, words);
  return [
    item(icon(s("path", { class: "says line", d: "M-12 0H12" }), s("path", { class: "says diamond", d: diamond(0, 0) })), "what the drafter says"),
    item(icon(s("rect", { class: "bar", x: -7, y: -5, width: 14, height: 12 })), "what the target accepts"),
    item(icon(s("path", { class: "whisker", d: "M-3.5-6h7M0-6V6M-3.5 6h7" })), "95% interval"),
    item(icon(s("rect", { class: "gap over", x: -8, y: -6, width: 16, height: 12 })), "over-confident"),
    item(icon(s("rect", { class: "gap under", x: -8, y: -6, width: 16, height: 12 })), "under-confident"),
    item(icon(s("rect", { class: "bar few", x: -7, y: -5, width: 14, height: 12 })), `fewer than ${FEW} tokens`),
    item(icon(s("circle", { class: "herering", r: 4.5 })), "step pinned in Explore"),
  ];
}

/** Fills that tell over- from under-confidence without colour. */
function patterns() {
  const pattern = (id, size, ...parts) => s("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse" }, ...parts);
  return s(
    "svg",
    { width: 0, height: 0, "aria-hidden": "true", class: "spoken" },
    s("defs", {}, pattern("calibrate-over", 5, s("path", { class: "hatch", d: "M-1 6L6-1M-1 1L1-1M4 6L6 4" })), pattern("calibrate-under", 5, s("circle", { class: "speck", cx: 2.5, cy: 2.5, r: 1.2 }))),
  );
}
