// How often the token at each position of the draft is accepted.

class PositionChart extends ColumnChart {
  constructor(choose, tooltip) {
    super("positions", "By position", "Of the drafts that got as far as this position, how many had this token accepted?", choose, tooltip);
    this.unit = "Position";
  }

  named(data, [position]) {
    return `Position ${position}`;
  }

  members(data, places) {
    return positionsWhere(data, (row, at) => places.includes(data.steps.depths[row][at]));
  }

  placesOf({ steps }, row) {
    return steps.depths[row];
  }

  columns() {
    return this.data.report.by_position.map((p) => columnOf(p.position, `Position ${p.position}`, p));
  }

  scale(columns, left, step) {
    const every = step < 13 ? 4 : 1;
    return s("g", { class: "axis" }, ...columns.map((c, i) => (i % every ? "" : s("text", { class: "middle", x: left + (i + 0.5) * step, y: FLOOR + 13 }, c.place))));
  }
}
