// The second drafter’s confidence where its prefix was right.

const SECOND_BINS = 10; // of equal width

class SecondChart extends ColumnChart {
  constructor(choose, tooltip) {
    super("second", "Second drafter’s confidence", "", choose, tooltip);
    this.unit = "Confidence";
    this.question = this.box.querySelector(".question");
  }

  named(data, [place]) {
    return `Second drafter says ${(place / SECOND_BINS).toFixed(1)}–${((place + 1) / SECOND_BINS).toFixed(1)}`;
  }

  members(data, places) {
    return stepsWhere(data, (row) => data.steps.second[row].some((place) => places.includes(place)));
  }

  placesOf({ steps }, row) {
    return steps.second[row];
  }

  show(data) {
    const { second } = data.report;
    this.box.hidden = !second || !second.positions;
    if (this.box.hidden) return;
    const gap = second.gap.low === null ? "" : `, gap ${signed(second.gap.value)} points (${signed(second.gap.low)} to ${signed(second.gap.high)})`;
    this.question.textContent = `Of ${count(second.redrafts, "re-draft")}, ${second.right} had a right prefix. Of their tokens, up to the first wrong one: it says ${share(second.confidence)} and ${share(second.accepted)} are accepted${gap}; ECE ${figureWords(second.error, decimals)}.`;
    super.show(data);
  }

  columns() {
    return this.data.report.second.uniform.map((bin, i) => columnOf(i, `${bin.left.toFixed(1)}–${bin.right.toFixed(1)}`, bin));
  }

  scale(columns, left, step) {
    return s("g", { class: "axis" }, ...columns.map((c, i) => s("text", { class: "middle", x: left + i * step, y: FLOOR + 13 }, i ? probability(i / columns.length, 1) : 0)));
  }
}
