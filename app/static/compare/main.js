// Compare: what differs, the curves of both sides, and their texts place by place.

function start(element, trigger, props, watch) {
  const legend = h("div", {});
  const reading = h("ul", {});
  const how = h("p", { class: "fine" });
  const figures = h("div", {});
  const curves = ["reliability", "ranks"].map((kind) => new CurvesChart(kind));
  const texts = new TextsView((side, run, step) => trigger("select", { side, run, step }));
  const empty = h("p", { class: "empty" }, "Choose two runs, or two sets of runs: what you run, open or measure is offered here.");
  const top = h("div", { class: "panel top" }, legend, reading, how);
  const table = h("div", { class: "panel" }, figures);
  const pair = h("div", { class: "pair" }, ...curves.map((c) => c.box));
  const save = h("button", { type: "button", class: "small" }, "JSON");
  const parts = [top, texts.box, table, pair];
  element.replaceChildren(h("section", { class: "panels compared", "aria-label": "Compare" }, empty, ...parts));
  let data = null;

  save.addEventListener("click", () => {
    const { titles, comparison, reading: said, sides } = data;
    const link = h("a", { download: "comparison.json", href: URL.createObjectURL(new Blob([JSON.stringify({ titles, reading: said, comparison, sides }, null, 1)], { type: "application/json" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });

  function show() {
    try {
      data = JSON.parse(props.value || "null");
    } catch {
      data = null;
    }
    const some = Boolean(data && data.comparison);
    empty.hidden = some;
    for (const part of parts) part.hidden = !some;
    element.dataset.state = some ? "done" : "empty";
    if (!some) return;
    legend.replaceChildren(sidesLegend(data.titles));
    reading.replaceChildren(...list(data.reading).map((words) => h("li", {}, text(words))));
    how.replaceChildren(howCompared(data.comparison), " ", save);
    figures.replaceChildren(figuresTable(data.comparison));
    for (const chart of curves) chart.show(data);
    texts.show(data.pairs);
  }

  watch("value", show);
  show();
}
