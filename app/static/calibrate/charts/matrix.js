// Predicted against actual boundaries: one cell for every pair, and bars of their own for wholly accepted drafts.

const LEFT = 52;
const WHOLE = -1; // the place of the bar of wholly accepted drafts

class MatrixChart extends Chart {
  constructor(choose, tooltip) {
    super("matrix", "Boundary: predicted and actual", "Where was the first draft most likely to end, and where did it end? On the diagonal the prediction was right.", choose, tooltip);
  }

  named({ report }, [place]) {
    const size = report.matrix.counts.length;
    const outcome = (i) => (i === size - 1 ? "all" : i);
    return place === WHOLE ? "Whole first draft accepted" : `Predicted ${outcome(place % size)}, actual ${outcome(Math.floor(place / size))}`;
  }

  members(data, places) {
    return stepsWhere(data, (row) => this.placesOf(data, row).some((place) => places.includes(place)));
  }

  placesOf({ steps, report }, row) {
    const size = report.matrix.counts.length;
    const actual = steps.happened[row];
    if (actual < 0) return [];
    return [actual * size + steps.predicted[row], ...(actual === size - 1 ? [WHOLE] : [])];
  }

  /** Outcomes that are drawn: up to the last one that was predicted or happened, then “all” if it did. */
  outcomes() {
    const { counts } = this.data.report.matrix;
    const all = counts.length - 1;
    const used = (i) => counts[i].some(Boolean) || counts.some((row) => row[i]);
    let last = Math.min(all - 1, 5);
    for (let i = 0; i < all; i += 1) if (used(i)) last = Math.max(last, i);
    const shown = Array.from({ length: Math.max(0, last + 1) }, (_, i) => i);
    return { all, shown: all > 0 && used(all) ? [...shown, all] : shown };
  }

  draw(width) {
    const { counts } = this.data.report.matrix;
    const { all, shown } = this.outcomes();
    const gap = (i) => (i === all ? 6 : 0);
    const cell = Math.max(8, Math.min(30, (width - LEFT - PAD.right - 6) / Math.max(1, shown.length)));
    const tall = Math.min(cell, 24);
    const left = LEFT;
    const x = (n) => left + n * cell + gap(shown[n]);
    const y = (n) => 34 + n * tall + gap(shown[n]);
    const most = Math.max(1, ...counts.flat());
    const name = (i) => (i === all ? "all" : i);
    const parts = [s("text", { class: "title", x: left, y: 11 }, "predicted →"), s("text", { class: "title end", x: left - 6, y: 29 }, "actual ↓")];
    const places = [];
    shown.forEach((actual, r) => {
      parts.push(s("text", { class: "middle", x: x(r) + cell / 2, y: 29 }, name(actual)), s("text", { class: "end", x: left - 6, y: y(r) + tall / 2 + 3.5 }, name(actual)));
      shown.forEach((predicted, c) => {
        const n = counts[actual][predicted];
        const box = { x: x(c), y: y(r), width: cell - 1.5, height: tall - 1.5 };
        const words = `Predicted ${name(predicted)}, actual ${name(actual)}: ${count(n, "step")}`;
        const strength = Math.sqrt(n / most);
        const fill = n ? `color-mix(in srgb, var(--first) ${Math.round(12 + 88 * strength)}%, var(--panel))` : "var(--sunken)";
        places.push(actual * counts.length + predicted);
        parts.push(
          this.mark(
            places[places.length - 1],
            words,
            box,
            s("rect", { class: `cell${actual === predicted ? " right" : ""}`, rx: 2, ...box, style: `fill:${fill}` }),
            n && cell >= 15 ? s("text", { class: `middle value${strength > 0.55 ? " on" : ""}`, x: x(c) + cell / 2 - 0.75, y: y(r) + tall / 2 + 3 }, short(n)) : "",
          ),
        );
      });
    });
    const bottom = y(shown.length - 1) + tall + 10;
    parts.push(...this.whole(width, bottom, all * counts.length));
    places.push(WHOLE);
    this.across = shown.length;
    return { parts, height: bottom + 44, places };
  }

  /** The bar of wholly accepted drafts: expected and happened. */
  whole(width, top) {
    const { all_expected: expected, all_happened: happened } = this.data.report.matrix;
    const from = LEFT;
    const room = width - from - PAD.right - 118;
    const bar = (kind, p, y) => s("rect", { class: `share ${kind}`, x: from, y, width: Math.max(1, (p || 0) * room), height: 9 });
    return [
      this.mark(
        WHOLE,
        `Whole first draft accepted: expected in ${share(expected.value)} of the steps, happened in ${figureWords(happened, share)}`,
        { x: 0, y: top - 2, width, height: 44 },
        s("text", { class: "title", x: from, y: top + 8 }, "whole first draft accepted"),
        bar("expected", expected.value, top + 14),
        bar("happened", happened.value, top + 26),
        s("rect", { class: "frame", x: from, y: top + 13, width: room, height: 23 }),
        s("text", { class: "value", x: from + room + 6, y: top + 22 }, `expected ${share(expected.value)}`),
        s("text", { class: "value", x: from + room + 6, y: top + 34.5 }, `happened ${share(happened.value)}`),
      ),
    ];
  }

  neighbour(place, dx, dy) {
    const at = this.places.indexOf(place);
    const last = this.places.length - 1;
    if (at === last) return dy < 0 || dx < 0 ? this.places[Math.max(0, last - this.across)] : place;
    const next = at + dx + dy * this.across;
    if (dx && Math.floor(next / this.across) !== Math.floor(at / this.across)) return place;
    return this.places[next < 0 ? at : Math.min(last, next)];
  }

  table() {
    const { counts } = this.data.report.matrix;
    const { all, shown } = this.outcomes();
    const name = (i) => (i === all ? "all" : String(i));
    return { head: ["Actual \\ predicted", ...shown.map(name)], rows: shown.map((a) => [name(a), ...shown.map((p) => counts[a][p])]) };
  }
}
