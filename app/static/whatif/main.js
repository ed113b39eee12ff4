// Builds the what-if view: a chart per setting, and their figures as a table.

function figuresTable(sweeps) {
  const cells = sweeps.flatMap((sweep) =>
    sweep.lines.flatMap((line) => (line.flat ? line.points.slice(0, 1) : line.points).map((p) => [line.flat ? `${sweep.symbol} not used` : `${sweep.symbol} = ${sweep.values[p.at]}`, line.method, p.alpha.toFixed(3), p.nodes.toFixed(2)])),
  );
  const head = ["Setting", "Method", "α", "Nodes per step"];
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...cells.map(([setting, ...rest]) => h("tr", {}, h("th", { scope: "row" }, setting), ...rest.map((words) => h("td", {}, words))))),
  );
}

function start(element, trigger, props, watch) {
  const heading = h("h3", {});
  const status = h("p", { class: "status", role: "status" });
  const legend = h("div", {});
  const charts = h("div", { class: "charts" });
  const table = h("div", { class: "scroll" });
  const behind = h("details", { class: "panel behind" }, h("summary", {}, "Figures as a table"), table);
  const empty = h("p", { class: "empty" }, "Nothing asked yet: choose a recorded run and press Ask.");
  const top = h("div", { class: "panel top" }, h("div", { class: "head" }, heading, status), legend);
  element.replaceChildren(h("section", { class: "panels whatif", "aria-label": "What if" }, empty, top, charts, behind));

  function show() {
    let data;
    try {
      data = JSON.parse(props.value);
    } catch {
      data = null;
    }
    const known = data && typeof data === "object";
    const sweeps = known ? list(data.sweeps).map(readSweep) : [];
    empty.hidden = sweeps.length > 0;
    top.hidden = behind.hidden = !sweeps.length;
    element.dataset.state = !sweeps.length ? "empty" : data.status ? "running" : "done";
    charts.replaceChildren();
    if (!sweeps.length) return;
    const raw = data.run && typeof data.run === "object" ? data.run : {};
    const run = { method: text(raw.method), alpha: number(raw.alpha, 0, 1e6, 0), nodes: number(raw.nodes, 0, 1e6, 0) };
    heading.textContent = `${text(data.source)}${data.recorded ? " (recorded)" : ""}`;
    status.textContent = text(data.status) || `${count(whole(data.tokens, 0, 1e9, 0), "token")}; as run: α ${run.alpha.toFixed(2)}, ${run.nodes.toFixed(1)} nodes per step`;
    const looks = looksOf(sweeps);
    legend.replaceChildren(seriesLegend(looks, run));
    charts.replaceChildren(...sweeps.map((sweep) => new Chart(sweep, looks, run).box));
    table.replaceChildren(figuresTable(sweeps));
  }

  watch("value", show);
  show();
}
