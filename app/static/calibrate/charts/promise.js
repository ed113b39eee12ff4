// What re-drafts promised and what they brought.

/** The range of tokens that a bin of promises stands for. */
function promiseName({ left, right }) {
  return right > 1000 ? `${left} or more` : `${left} to ${right}`;
}

class PromiseChart extends Chart {
  constructor(choose, tooltip) {
    super("promise", "Gained against promised", "A re-draft from prefix i promises r(i) · (c₁ + c₁c₂ + …) tokens. Diamonds: promised on average; bars: gained.", choose, tooltip);
  }

  named({ report }, [place]) {
    const bin = report.second ? report.second.gains[place] : null;
    return bin ? `Re-drafts that promised ${promiseName(bin)} tokens` : "Re-drafts that promised as much";
  }

  members(data, places) {
    return stepsWhere(data, (row) => data.steps.promise[row].some((place) => places.includes(place)));
  }

  placesOf({ steps }, row) {
    return steps.promise[row];
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
