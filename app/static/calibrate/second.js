// The second drafter: its confidence where its prefix was right, and what its re-drafts promised and brought.

class SecondChart extends ColumnChart {
  constructor(choose, tooltip) {
    super("second", "Second drafter’s confidence", "", choose, tooltip);
    this.unit = "Confidence";
    this.question = this.box.querySelector(".question");
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

/** The range of tokens that a bin of promises stands for. */
function promiseName({ left, right }) {
  return right > 1000 ? `${left} or more` : `${left} to ${right}`;
}

class PromiseChart extends Chart {
  constructor(choose, tooltip) {
    super("promise", "Gained against promised", "A re-draft from prefix i promises r(i) · (c₁ + c₁c₂ + …) tokens. Diamonds: promised on average; bars: gained.", choose, tooltip);
  }

  show(data) {
    this.box.hidden = !data.report.second || !this.bins(data).length;
    if (!this.box.hidden) super.show(data);
  }

  bins(data = this.data) {
    return data.report.second.gains.map((bin, place) => ({ ...bin, place })).filter((bin) => bin.count);
  }

  draw(width) {
    const bins = this.bins();
    const most = Math.max(0.1, ...bins.map((b) => Math.max(b.predicted, b.gained.value || 0, b.gained.high || 0)));
    const y = (v) => FLOOR - (v / most) * (FLOOR - PAD.top);
    const step = (width - PAD.left - PAD.right) / Math.max(1, bins.length);
    const x = (i) => PAD.left + (i + 0.5) * step;
    const bar = Math.min(34, step * 0.62);
    const columns = bins.map((b, i) =>
      this.mark(
        b.place,
        `Promised ${promiseName(b)} tokens: ${count(b.count, "re-draft")}, promised ${b.predicted.toFixed(2)} and gained ${figureWords(b.gained, tokensWords)} on average`,
        { x: x(i) - step / 2 + 0.5, y: PAD.top - 8, width: step - 1, height: TALL - PAD.top + 6 },
        s("rect", { class: `bar${b.count < FEW ? " few" : ""}`, x: x(i) - bar / 2, y: y(b.gained.value || 0), width: bar, height: Math.max(1, FLOOR - y(b.gained.value || 0)) }),
        b.gained.low === null ? "" : whisker(x(i), y(b.gained.high), y(b.gained.low)),
        s("path", { class: "says diamond", d: diamond(x(i), y(b.predicted)) }),
        s("text", { class: "middle", x: x(i), y: FLOOR + 13 }, b.right > 1000 ? `${b.left}+` : `–${b.right}`),
        s("text", { class: "middle", x: x(i), y: TALL - 2 }, short(b.count)),
      ),
    );
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * most);
    return { parts: [yAxis(width, y, ticks, (v) => v.toFixed(most < 1 ? 2 : 1)), s("text", { class: "end", x: PAD.left - 5, y: TALL - 2 }, "n"), ...columns], height: TALL, places: bins.map((b) => b.place) };
  }

  table() {
    return { head: ["Promised", "Re-drafts", "Mean promised", "Mean gained"], rows: this.bins().map((b) => [promiseName(b), b.count, b.predicted.toFixed(3), figureWords(b.gained, decimals)]) };
  }
}
