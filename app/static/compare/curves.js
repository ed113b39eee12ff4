// Two reliability curves, and two curves of how often the true boundary is among the K likeliest, each in one chart.

const ROOM = { left: 36, right: 12, top: 12, bottom: 32, height: 236 };
const FEW_POSITIONS = 30;

/** The mark of a side: a circle for A, a square for B. */
function curvePoint(side, x, y, few = false) {
  const kind = `point ${side}${few ? " few" : ""}`;
  return side === "a" ? s("circle", { class: kind, cx: x, cy: y, r: 3.6 }) : s("rect", { class: kind, x: x - 3.4, y: y - 3.4, width: 6.8, height: 6.8 });
}

class CurvesChart {
  /** `kind`: "reliability" or "ranks". */
  constructor(kind) {
    Object.assign(this, { kind, data: null, width: 0 });
    const [title, question] = {
      reliability: ["Reliability, both", "Of the tokens drafted with this confidence, how many does the target accept? On the diagonal the confidence is honest."],
      ranks: ["Boundary, both", "How often is the true boundary among the K likeliest?"],
    }[kind];
    this.svg = s("svg", { role: "img", "aria-label": `${title}: ${question}`, width: "100%", height: ROOM.height });
    this.table = h("div", {});
    this.box = h("figure", { class: `panel curves ${kind}` }, h("figcaption", {}, h("b", {}, title), h("span", {}, question)), this.svg, h("details", {}, h("summary", {}, "Differences with their intervals"), this.table));
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.svg);
  }

  show(data) {
    this.data = data;
    const ranks = this.kind === "ranks";
    const rows = list(ranks ? data.comparison.within : data.comparison.bins);
    const name = (row, n) => (ranks ? `K = ${n + 1}` : `Confidence ${(n / 10).toFixed(1)}–${((n + 1) / 10).toFixed(1)}`);
    const seen = rows.map((row, n) => [row, n]).filter(([row]) => known(row.a.value) || known(row.b.value));
    this.table.replaceChildren(differencesTable("Differences", seen.map(([row, n]) => differenceRow(name(row, n), `${row.count_a} against ${row.count_b}`, row, asShare, asPoints))));
    this.draw();
  }

  /** Points of a side: place on the x axis from 0 to 1, share, its bounds, words, and whether there are too few. */
  points(side) {
    const own = this.data.sides[side === "a" ? 0 : 1];
    if (this.kind === "reliability") {
      return list(own.uniform)
        .filter((bin) => bin.count)
        .map((bin) => ({ x: bin.confidence, y: bin.accepted, low: bin.low, high: bin.high, few: bin.count < FEW_POSITIONS, words: `${side.toUpperCase()}: says ${asShare(bin.confidence)}, ${asShare(bin.accepted)} of ${bin.count} accepted` }));
    }
    const depth = this.depth();
    return list(own.ranks.within)
      .slice(0, depth)
      .map((f, n) => ({ x: (n + 0.5) / depth, y: f.value, low: f.low, high: f.high, words: `${side.toUpperCase()}: among the ${n + 1} likeliest in ${withInterval(f, asShare)} of ${own.ranks.steps} steps` }))
      .filter((p) => known(p.y));
  }

  depth() {
    return Math.max(1, Math.min(12, ...this.data.sides.map((side) => list(side.ranks.within).length || 12)));
  }

  draw() {
    if (!this.data || !this.width) return;
    const bottom = ROOM.height - ROOM.bottom;
    const inner = this.width - ROOM.left - ROOM.right;
    const x = (v) => ROOM.left + inner * v;
    const y = (v) => bottom - (bottom - ROOM.top) * v;
    const parts = [0, 0.25, 0.5, 0.75, 1].map((v) => s("g", { class: "grid" }, s("path", { d: `M${ROOM.left} ${y(v)}H${this.width - ROOM.right}` }), s("text", { x: ROOM.left - 5, y: y(v) + 3.5 }, `${v * 100}%`)));
    if (this.kind === "reliability") {
      parts.push(s("path", { class: "honest", d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }));
      for (const v of [0, 0.2, 0.4, 0.6, 0.8, 1]) parts.push(s("text", { class: "tick", x: x(v), y: bottom + 14 }, v));
    } else for (let n = 0; n < this.depth(); n += 1) parts.push(s("text", { class: "tick", x: x((n + 0.5) / this.depth()), y: bottom + 14 }, n + 1));
    parts.push(s("text", { class: "axis", x: x(0.5), y: bottom + 28 }, this.kind === "ranks" ? "K" : "confidence"));
    for (const side of ["a", "b"]) parts.push(...this.curve(side, x, y));
    this.svg.replaceChildren(...parts);
  }

  curve(side, x, y) {
    const points = this.points(side);
    const shift = side === "a" ? -1.5 : 1.5; // so that whiskers in the same place are both seen
    const at = (p) => [x(p.x) + shift, y(p.y)];
    const path = points.map((p, n) => `${n ? "L" : "M"}${at(p).map((v) => v.toFixed(1)).join(" ")}`).join("");
    const mark = (p) => {
      const [px, py] = at(p);
      const whisker = known(p.low) ? s("path", { class: `reach ${side}`, d: `M${px.toFixed(1)} ${y(p.low).toFixed(1)}V${y(p.high).toFixed(1)}` }) : "";
      return s("g", {}, whisker, curvePoint(side, px, py, p.few), s("circle", { class: "hit", cx: px, cy: py, r: 9 }), s("title", {}, p.words));
    };
    return [s("path", { class: `curve ${side}`, d: path }), ...points.map(mark)];
  }
}
