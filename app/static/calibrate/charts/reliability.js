// The reliability diagram, with bins of equal width or of equal mass.

const BINS = ["uniform", "equal_mass"];

class ReliabilityChart extends ColumnChart {
  constructor(choose, tooltip) {
    super("uniform", "Reliability", "Of the tokens drafted with this confidence, how many does the target accept?", choose, tooltip);
    this.unit = "Confidence";
    this.ids = BINS;
    const button = (id, words) => {
      const b = h("button", { type: "button", class: "small", "data-bins": id, "aria-pressed": String(id === this.id) }, words);
      b.addEventListener("click", () => this.use(id));
      return b;
    };
    this.kinds = h("div", { class: "segmented", role: "group", "aria-label": "Bins" }, button("uniform", "equal width"), button("equal_mass", "equal mass"));
    this.tools.prepend(this.kinds);
  }

  named(data, places) {
    const columns = this.columns();
    return `Confidence ${places.map((place) => columns[place].name).join(", ")}`;
  }

  members(data, places) {
    return positionsWhere(data, (row, at) => places.includes(data.steps[this.id][row][at]));
  }

  placesOf({ steps }, row) {
    return steps[this.id][row];
  }

  use(id) {
    if (id === this.id) return;
    this.id = id;
    for (const b of this.kinds.children) b.setAttribute("aria-pressed", String(b.dataset.bins === id));
    this.chosen.clear();
    this.redraw();
  }

  bins() {
    return this.data.report[this.id];
  }

  columns() {
    const places = this.id === "uniform" ? 1 : 2;
    const edge = (value) => (value === 0 || value === 1 ? String(value) : probability(value, places));
    return this.bins().map((bin, i) => columnOf(i, `${edge(bin.left)}–${edge(bin.right)}`, bin));
  }

  /** The edges between the bins. */
  scale(columns, left, step) {
    const places = this.id === "uniform" ? 1 : 2;
    const edges = [...this.bins().map((b) => b.left), 1];
    return s("g", { class: "axis" }, ...edges.map((e, i) => s("text", { class: i === edges.length - 1 ? "end" : "middle", x: left + i * step + (i === edges.length - 1 ? 6 : 0), y: FLOOR + 13 }, e === 0 || e === 1 ? e : probability(e, places))));
  }
}
