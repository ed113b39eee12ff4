// How high the true boundary ranked among all r(i), and the hit rate of the K likeliest prefixes.

class RankChart extends Chart {
  constructor(choose, tooltip) {
    super("ranks", "Rank of the true boundary", "Bars: how often it was the 1st, 2nd … likeliest. Line: how often it is among the K likeliest; dashed: among K drawn at random.", choose, tooltip);
  }

  named(data, places) {
    return `True boundary ranked ${places.map((place) => place + 1).join(", ")}`;
  }

  members(data, places) {
    return stepsWhere(data, (row) => places.includes(data.steps.rank[row] - 1));
  }

  placesOf({ steps }, row) {
    return steps.rank[row] ? [steps.rank[row] - 1] : [];
  }

  shown() {
    const { counts } = this.data.report.ranks;
    const last = counts.reduce((most, n, i) => (n ? i : most), 0);
    return counts.slice(0, Math.max(8, last + 1, this.used() || 0));
  }

  /** The K that the runs used, if it was the same one throughout. */
  used() {
    const { mean_used: mean } = this.data.report.ranks;
    return mean && Number.isInteger(mean) ? mean : null;
  }

  draw(width) {
    const { steps, within, chance } = this.data.report.ranks;
    const counts = this.shown();
    const y = (p) => FLOOR - p * (FLOOR - PAD.top);
    const step = (width - PAD.left - PAD.right) / Math.max(1, counts.length);
    const x = (i) => PAD.left + (i + 0.5) * step;
    const bar = Math.min(34, step * 0.62);
    const used = this.used();
    const line = (values, kind) => s("polyline", { class: kind, points: values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ") });
    const parts = [yAxis(width, y, [0, 0.25, 0.5, 0.75, 1], percent)];
    counts.forEach((n, i) => {
      const p = steps ? n / steps : 0;
      parts.push(
        this.mark(
          i,
          `True boundary ranked ${i + 1}: ${count(n, "step")} of ${steps}; among the ${i + 1} likeliest in ${figureWords(within[i], share)}, at random ${share(chance[i])}`,
          { x: x(i) - step / 2 + 0.5, y: PAD.top - 8, width: step - 1, height: FLOOR + 20 - PAD.top },
          s("rect", { class: `bar${used && i < used ? " used" : ""}`, x: x(i) - bar / 2, y: y(p), width: bar, height: Math.max(1, FLOOR - y(p)) }),
          within[i] && within[i].low !== null ? whisker(x(i), y(within[i].high), y(within[i].low)) : "",
          step >= 12 ? s("text", { class: "middle", x: x(i), y: FLOOR + 13 }, i + 1) : "",
        ),
      );
    });
    parts.push(line(chance.slice(0, counts.length), "chance line"));
    const hits = within.slice(0, counts.length).map((f) => f.value || 0);
    parts.push(line(hits, "hits line"), ...hits.map((v, i) => s("circle", { class: "hits dot", cx: x(i), cy: y(v), r: 3 })));
    if (used && hits[used - 1] !== undefined && steps) parts.push(...this.flag(used, x(used - 1) + step / 2, y, hits[used - 1]));
    return { parts, height: FLOOR + 22, places: counts.map((_, i) => i) };
  }

  flag(k, x, y, hit) {
    const words = `K = ${k}: ${share(hit)}`;
    return [s("line", { class: "used", x1: x, x2: x, y1: y(1) - 6, y2: FLOOR }), s("text", { class: "used", x: x + 5, y: y(0.5) }, words)];
  }

  table() {
    const { counts, within, chance, steps } = this.data.report.ranks;
    return { head: ["Rank = K", "Steps", "Share", "Among the K likeliest", "At random"], rows: counts.map((n, i) => [i + 1, n, steps ? share(n / steps) : "—", figureWords(within[i], share), share(chance[i])]) };
  }
}
