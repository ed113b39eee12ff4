// One setting: α above, verified nodes per step below, on the same values.

const ROOM = { left: 34, right: 12, top: 8, alpha: 132, nodes: 72, gap: 18, bottom: 34 };
const HEIGHT = ROOM.top + ROOM.alpha + ROOM.gap + ROOM.nodes + ROOM.bottom;

/** Round numbers from `low` up to at least `high`, about `most` of them. */
function ticks(low, high, most) {
  const span = Math.max(1e-6, high - low);
  const unit = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((t) => span / t <= most);
  const out = [low];
  while (out[out.length - 1] < high - 1e-9) out.push(low + step * out.length);
  return out;
}

class Chart {
  constructor(sweep, looks, run) {
    Object.assign(this, { sweep, looks, run, width: 0 });
    this.svg = s("svg", { role: "img", "aria-label": this.reading(), width: "100%", height: HEIGHT });
    this.box = h("figure", { class: "panel chart", "data-symbol": sweep.symbol }, h("figcaption", {}, h("b", {}, sweep.label[0].toUpperCase() + sweep.label.slice(1)), h("span", {}, this.reading())), this.svg);
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.svg);
  }

  /** What the sweep says about the recorded method, in a sentence. */
  reading() {
    const { sweep, run } = this;
    const line = sweep.lines.find(({ method }) => method === run.method) || sweep.lines.find(({ flat }) => !flat) || sweep.lines[0];
    if (!line || !line.points.length) return "no answer yet";
    if (line.flat) return `${line.method} does not use it`;
    const best = line.points.reduce((a, b) => (b.alpha > a.alpha + 1e-9 ? b : a));
    const own = line.points.find(({ at }) => at === sweep.own);
    const words = (point) => `α ${point.alpha.toFixed(2)} with ${point.nodes.toFixed(0)} nodes at ${sweep.symbol} = ${sweep.values[point.at]}`;
    const range = (point) => (point.low === null ? "" : ` (${point.low.toFixed(2)} to ${point.high.toFixed(2)})`);
    if (!own || line.method !== run.method) return `${line.method}: highest ${words(best)}${range(best)}; one text says little`;
    if (own === best) return `${line.method}: ${words(own)}${range(own)} as recorded is the highest on this text`;
    const clear = best.less !== null && (best.less > 0 || best.more < 0);
    const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
    const difference = best.less === null ? "too short a text for an interval" : `${signed(best.less)} to ${signed(best.more)}, ${clear ? "clearly more on this text" : "no clear difference"}`;
    return `${line.method}: ${words(own)} as recorded; highest ${words(best)} (${difference})`;
  }

  draw() {
    const { sweep, width } = this;
    const inner = width - ROOM.left - ROOM.right;
    const slots = Math.max(1, sweep.values.length);
    const x = (at) => ROOM.left + (inner * (at + 0.5)) / slots;
    const points = sweep.lines.flatMap((line) => line.points);
    const bottom = ROOM.top + ROOM.alpha + ROOM.gap + ROOM.nodes;
    const parts = [];
    if (sweep.own !== null) {
      parts.push(s("path", { class: "own", d: `M${x(sweep.own)} ${ROOM.top}V${bottom + 4}` }));
    }
    parts.push(...this.part("alpha", "α", ROOM.top, ROOM.alpha, ticks(1, Math.max(2, this.run.alpha, ...points.map((p) => p.high ?? p.alpha)), 4), x));
    parts.push(...this.part("nodes", "nodes", ROOM.top + ROOM.alpha + ROOM.gap, ROOM.nodes, ticks(0, Math.max(1, this.run.nodes, ...points.map((p) => p.nodes)), 2), x));
    sweep.values.forEach((value, at) => {
      parts.push(s("text", { class: `tick${at === sweep.own ? " recorded" : ""}`, x: x(at), y: bottom + 14 }, value));
    });
    parts.push(s("text", { class: "axis", x: ROOM.left + inner / 2, y: bottom + 29 }, sweep.own === null ? sweep.symbol : `${sweep.symbol} (recorded: ${sweep.values[sweep.own]})`));
    this.svg.replaceChildren(...parts);
  }

  /** One of the two panels: grid, lines, points, and the recorded run's measured figure. */
  part(key, name, top, height, grid, x) {
    const { sweep, looks, run, width } = this;
    const [low, high] = [grid[0], grid[grid.length - 1]];
    const y = (value) => top + height * (1 - (value - low) / (high - low));
    const digits = grid.some((value) => value % 1) ? 1 : 0;
    const parts = grid.map((value) =>
      s("g", { class: "grid" }, s("path", { d: `M${ROOM.left} ${y(value)}H${width - ROOM.right}` }), s("text", { x: ROOM.left - 5, y: y(value) + 3.5 }, value.toFixed(digits))),
    );
    parts.push(s("text", { class: "name", x: ROOM.left + 4, y: top + 10 }, name));
    for (const line of sweep.lines) {
      const look = looks.get(line.method);
      const places = line.points.map((p) => [x(p.at), y(p[key])]);
      parts.push(s("path", { class: `line ${look.colour}`, d: places.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join(""), "stroke-dasharray": look.dash }));
      line.points.forEach((p, i) => {
        if (key === "alpha" && p.low !== null && !line.flat) parts.push(s("path", { class: `reach ${look.colour}`, d: `M${places[i][0].toFixed(1)} ${y(Math.max(low, p.low)).toFixed(1)}V${y(p.high).toFixed(1)}` }));
        const point = marker(look, ...places[i], line.flat ? 0.01 : 3.6);
        point.append(s("circle", { class: "hit", r: 9 }), s("title", {}, `${line.method}, ${sweep.symbol} = ${sweep.values[p.at]}: α ${p.alpha.toFixed(2)}${p.low === null ? "" : ` (95% interval ${p.low.toFixed(2)} to ${p.high.toFixed(2)})`}, ${p.nodes.toFixed(1)} nodes per step`));
        parts.push(point);
      });
    }
    if (sweep.own !== null) parts.push(s("circle", { class: "measured", cx: x(sweep.own), cy: y(run[key]), r: 6.5 }));
    return parts;
  }
}
