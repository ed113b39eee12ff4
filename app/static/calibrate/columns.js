// Columns that set what the drafter says (diamonds on a dashed line) against what happened (bars with their interval).

const FEW = 30;
const TALL = 248;
const FLOOR = 182;

class ColumnChart extends Chart {
  draw(width) {
    const columns = this.columns();
    const y = (p) => FLOOR - p * (FLOOR - PAD.top);
    const step = (width - PAD.left - PAD.right) / Math.max(1, columns.length);
    const x = (i) => PAD.left + (i + 0.5) * step;
    const most = Math.max(1, ...columns.map((c) => c.count));
    const bar = Math.min(34, step * 0.62);
    const known = columns.map((c, i) => [c, i]).filter(([c]) => c.count);
    const marks = known.map(([c, i]) => this.column(c, x(i), y, step, bar, most));
    const line = s("polyline", { class: "says line", points: known.map(([c, i]) => `${x(i).toFixed(1)},${y(c.says).toFixed(1)}`).join(" ") });
    const diamonds = known.map(([c, i]) => s("path", { class: "says diamond", d: diamond(x(i), y(c.says)) }));
    const counts = s("text", { class: "end", x: PAD.left - 5, y: TALL - 2 }, "n");
    return {
      parts: [yAxis(width, y, [0, 0.25, 0.5, 0.75, 1], (v) => probability(v)), this.scale(columns, PAD.left, step), counts, ...marks, line, ...diamonds],
      height: TALL,
      places: known.map(([c]) => c.place),
    };
  }

  column(c, x, y, step, bar, most) {
    const few = c.count < FEW;
    const [top, bottom] = [Math.max(c.says, c.gets), Math.min(c.says, c.gets)];
    const side = c.says > c.gets ? "over" : "under";
    const tall = Math.max(1, (c.count / most) * 20);
    return this.mark(
      c.place,
      `${c.name}: ${count(c.count, "position")}, says ${share(c.says)}, ${share(c.gets)} accepted (${share(c.low)}–${share(c.high)})${few ? "; too few to say" : ""}`,
      { x: x - step / 2 + 0.5, y: PAD.top - 8, width: step - 1, height: TALL - PAD.top + 6 },
      s("rect", { class: `bar${few ? " few" : ""}`, x: x - bar / 2, y: y(c.gets), width: bar, height: Math.max(1, FLOOR - y(c.gets)) }),
      s("rect", { class: `gap ${side}`, x: x - bar / 2, y: y(top), width: bar, height: Math.max(0, y(bottom) - y(top)) }),
      whisker(x, y(c.high), y(c.low)),
      s("rect", { class: "amount", x: x - bar / 2, y: TALL - 14 - tall, width: bar, height: tall }),
      step >= 20 ? s("text", { class: "middle", x, y: TALL - 2 }, short(c.count)) : "",
    );
  }

  table() {
    return {
      head: [this.unit, "Positions", "Says", "Accepted", "95% interval"],
      rows: this.columns().map((c) => [c.name, c.count, c.count ? decimals(c.says) : "—", c.count ? decimals(c.gets) : "—", c.count ? `${decimals(c.low)}–${decimals(c.high)}` : "—"]),
    };
  }
}

const diamond = (x, y) => `M${x.toFixed(1)} ${(y - 4.5).toFixed(1)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`;
const whisker = (x, high, low) => s("path", { class: "whisker", d: `M${x - 3.5} ${high}h7M${x} ${high}V${low}M${x - 3.5} ${low}h7` });

/** A count in at most four characters. */
const short = (n) => (n < 10000 ? String(n) : n < 1e6 ? Math.round(n / 1000) + "k" : (n / 1e6).toFixed(1) + "M");

function columnOf(place, name, bin) {
  return { place, name, count: bin.count, says: bin.confidence, gets: bin.accepted, low: bin.low, high: bin.high };
}
