// How the methods are told apart in the charts: colour, line pattern and the shape of the points.

const LOOKS = [
  { colour: "first", dash: "7 3" },
  { colour: "second", dash: null },
  { colour: "target", dash: "2 3" },
  { colour: "reject", dash: "9 3 2 3" },
  { colour: "ink", dash: null },
  { colour: "muted", dash: "4 4" },
];

/** The same method looks the same in every chart, and no two of up to 30 alike: there is one shape fewer than there are lines. */
function looksOf(sweeps) {
  const shapes = Object.keys(SHAPES);
  const methods = [...new Set(sweeps.flatMap((sweep) => sweep.lines.map((line) => line.method)))];
  return new Map(methods.map((method, at) => [method, { ...LOOKS[at % LOOKS.length], shape: shapes[at % shapes.length] }]));
}

const SHAPES = {
  square: (r) => s("rect", { x: -r * 0.9, y: -r * 0.9, width: r * 1.8, height: r * 1.8 }),
  circle: (r) => s("circle", { r }),
  triangle: (r) => s("path", { d: `M0 ${-r * 1.2}L${r * 1.1} ${r * 0.9}H${-r * 1.1}Z` }),
  diamond: (r) => s("path", { d: `M0 ${-r * 1.3}L${r * 1.3} 0L0 ${r * 1.3}L${-r * 1.3} 0Z` }),
  cross: (r) => s("path", { class: "open", d: `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}` }),
};

function marker(look, x, y, r = 3.6) {
  const shape = SHAPES[look.shape](r);
  return s("g", { class: `marker ${look.colour}`, transform: `translate(${x.toFixed(1)},${y.toFixed(1)})` }, shape);
}

function seriesLegend(looks, run) {
  const item = (picture, words) => h("li", {}, s("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, ...picture), words);
  const lines = [...looks].map(([method, look]) => item([s("path", { class: `line ${look.colour}`, d: "M1 7H33", "stroke-dasharray": look.dash }), marker(look, 17, 7)], method));
  const own = item([s("path", { class: "own", d: "M17 0V14" }), s("circle", { class: "measured", cx: 17, cy: 7, r: 5.5 })], `the recorded run (${run.method}), as measured`);
  return h("ul", { class: "legend", "aria-label": "Legend" }, ...lines, own);
}

/** A sweep as the page trusts it. */
function readSweep(raw) {
  const values = list(raw.values).map((value) => text(value).slice(0, 12));
  const point = (p) => {
    const [at, alpha, nodes, ...interval] = list(p);
    const [low, high, less, more] = interval.map((end) => number(end, -1e6, 1e6, null));
    return { at: whole(at, 0, Math.max(0, values.length - 1), 0), alpha: number(alpha, 0, 1e6, 0), nodes: number(nodes, 0, 1e6, 0), low: low ?? null, high: high ?? null, less: less ?? null, more: more ?? null };
  };
  const lines = list(raw.lines).map((line) => ({ method: text(line.method), flat: Boolean(line.flat), points: list(line.points).map(point) }));
  return { symbol: text(raw.symbol), label: text(raw.label), values, own: whole(raw.own, 0, values.length - 1, null), lines };
}
