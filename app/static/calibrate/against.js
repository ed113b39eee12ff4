// What is measured (B) against what it is compared with (A).

class AgainstView {
  constructor() {
    this.legend = h("div", {});
    this.reading = h("ul", {});
    this.how = h("p", { class: "fine" });
    this.figures = h("div", {});
    this.curves = ["reliability", "ranks"].map((kind) => new CurvesChart(kind));
    const pair = h("div", { class: "pair" }, ...this.curves.map((c) => c.box));
    this.box = h("section", { class: "compared", "aria-label": "Comparison", hidden: true }, h("div", { class: "panel top" }, this.legend, this.reading, this.how), pair, h("div", { class: "panel" }, this.figures));
  }

  show(data) {
    this.box.hidden = !data;
    if (!data) return;
    this.legend.replaceChildren(sidesLegend(data.titles));
    this.reading.replaceChildren(...list(data.reading).map((words) => h("li", {}, text(words))));
    this.how.textContent = howCompared(data.comparison);
    this.figures.replaceChildren(figuresTable(data.comparison));
    for (const chart of this.curves) chart.show(data);
  }
}
