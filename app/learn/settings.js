// Sliders for K and γ, and the recorded text, divided into the steps that the selected values would have taken.

import { h, list, s, sum, text, whole } from "../../assets/viewer/dom.js";
import { meanCost, originWords, readWork } from "../../assets/viewer/machine.js";
import { HIDDEN, LONE, count, fixed, milliseconds } from "../../assets/viewer/words.js";
import { PAPER } from "../../assets/viewer/constants.js";

/** Cost of decoding the text with the settings of a point, in plain decoding steps of the machine; null if unknown. */
export function costOf({ k, works }, machine, method) {
  const mean = meanCost(machine, k ? method : "dflash", works);
  return mean === null ? null : mean * works.length;
}

const LINE = 13; // pixels between two lines of text

/** Moves heights up, beginning with the lowest, until no two are closer than `least`. Their order stays the same. */
export function apart(heights, least) {
  const out = [...heights];
  const order = out.map((_, at) => at).sort((a, b) => out[b] - out[a]);
  order.slice(1).forEach((at, below) => (out[at] = Math.min(out[at], out[order[below]] - least)));
  return out;
}

/** Sliders and results. Every setting was replayed when the run was recorded, so results are immediate. */
export class SettingsView {
  /** `chosen(k)` is called when a slider moves; `k` is null if γ differs from the recorded value. */
  constructor(chosen) {
    Object.assign(this, { chosen, live: null });
    this.inputs = {};
    const slider = (id, words) => {
      const input = h("input", { type: "range", min: 0, step: 1, id: `live-${id}` });
      const value = h("output", {});
      input.addEventListener("input", () => this.show());
      this.inputs[id] = { input, value };
      return h("label", {}, h("span", {}, words), input, value);
    };
    this.task = h(
      "p",
      { class: "task" },
      "Task: find the K with the fewest steps for this text, then the K with the least time on the machine of the recording. Why do these differ?",
    );
    this.time = h("p", { class: "figures", role: "status" });
    this.there = h("p", { class: "figures", role: "status" });
    this.figures = h("p", { class: "figures", role: "status" });
    this.reading = h("p", { class: "reading" });
    this.chart = s("svg", { class: "alphas", viewBox: "0 0 340 120", role: "img" });
    this.box = h(
      "div",
      { class: "live" },
      slider("k", "Branches K"),
      slider("gamma", "Block γ"),
      this.task,
      this.figures,
      this.time,
      this.chart,
      this.reading,
      this.there,
    );
    this.cut = h(
      "div",
      { class: "cut", role: "group", "aria-label": "The text, divided into steps" },
      h("h4", {}),
      h("p", { tabindex: 0 }),
      (this.said = h("p", { class: "otherwise", role: "status", hidden: true })),
    );
  }

  /** Shows how many tokens the step below the text would have brought with `k` re-drafts; hides this sentence if `tokens` is null. */
  showStep(tokens, k) {
    this.said.hidden = tokens === null;
    this.said.textContent = `With K = ${k} the step below would have brought ${count(tokens ?? 0, "token")}.`;
  }

  /** `live`: the replayed settings; `here`: costs of passes on the machine of the recording, null if not measured. */
  load(live, here, opening) {
    this.here = here && typeof here === "object" ? here : null;
    this.task.hidden = !this.here;
    if (!live || !list(live.points).length) return;
    const points = list(live.points).map(([k, gamma, committed, works]) => ({
      k: whole(k, 0, 64, 1),
      gamma: whole(gamma, 2, 64, 2),
      committed: list(committed).map((n) => whole(n, 1, 1e6, 1)),
      works: list(works).map(readWork).filter(Boolean),
    }));
    const mean = (values) => sum(values) / Math.max(1, values.length);
    for (const point of points)
      Object.assign(point, { alpha: mean(point.committed), nodes: mean(point.works.map(({ nodes }) => nodes)) });
    const values = (name) => [...new Set(points.map((point) => point[name]))].sort((a, b) => a - b);
    this.live = {
      points,
      tokens: list(live.tokens).map(text),
      own: list(live.own),
      budget: live.budget ?? null,
      method: text(live.method),
      opening: text(opening),
      k: values("k"),
      gamma: values("gamma"),
    };
    for (const [id, at] of [
      ["k", 0],
      ["gamma", 1],
    ]) {
      const { input } = this.inputs[id];
      input.max = this.live[id].length - 1;
      input.value = Math.max(0, this.live[id].indexOf(this.live.own[at]));
    }
    this.show();
  }

  /** The K of the slider (`wantedK`), and the `point` with the selected γ and the largest K up to `wantedK` that this γ allows. */
  at() {
    const { points, k, gamma } = this.live;
    const [wantedK, wantedGamma] = [k[this.inputs.k.input.value], gamma[this.inputs.gamma.input.value]];
    const here = points.filter((point) => point.gamma === wantedGamma && point.k <= wantedK);
    return { point: here.reduce((a, b) => (b.k > a.k ? b : a), here[0]), wantedK };
  }

  show() {
    const { live } = this;
    if (!live) return;
    const { point, wantedK } = this.at();
    const said = { k: point.k, gamma: point.gamma };
    for (const [id, { input, value }] of Object.entries(this.inputs)) {
      value.textContent = said[id];
      input.setAttribute("aria-valuetext", said[id]);
    }
    this.figures.replaceChildren(
      h("b", {}, count(point.committed.length, "step")),
      ` for ${count(live.tokens.length, "token")}: `,
      h("b", {}, `${point.alpha.toFixed(2)} tokens per step`),
      `, ${point.nodes.toFixed(0)} nodes verified per step${live.budget ? `; B = ${live.budget} for all, as recorded` : ""}`,
    );
    this.showTimes(point);
    const most =
      point.k < wantedK ? `A block of ${point.gamma} allows ${point.k} re-drafts at most, not ${wantedK}. ` : "";
    this.reading.textContent = most + this.compared(point);
    this.drawChart(point);
    this.drawCut(point);
    this.chosen(point.gamma === live.own[1] ? point.k : null);
  }

  /** Shows the time of the text on the machine of the recording, and its cost with an 8B model on the paper's H200. Both are calculated
   *  from the costs of the passes. */
  showTimes(point) {
    const { live, here } = this;
    const plain = live.tokens.length;
    const gain = (cost) => `${fixed(plain / cost, 2)}× as fast as without drafting`;
    const [own, there] = [here && costOf(point, here, live.method), costOf(point, PAPER, live.method)];
    this.time.hidden = !own;
    if (own)
      this.time.replaceChildren(
        h("b", {}, milliseconds((own * here.milliseconds) / 1000)),
        ` on the machine of the recording, ${gain(own)}, calculated from the time of each pass on that machine.`,
      );
    const price =
      there === null
        ? ["not known."]
        : [
            h("b", {}, `${there.toFixed(0)} plain steps`),
            ` for ${count(plain, "token")}, ${gain(there)}, ${originWords()}.`,
          ];
    this.there.replaceChildren(`With an 8B model on ${PAPER.name}: `, ...price);
  }

  compared(point) {
    const { points, own } = this.live;
    const same = (other) => other.alpha.toFixed(2) === point.alpha.toFixed(2);
    const recorded = points.find((p) => p.k === own[0] && p.gamma === own[1]);
    const first =
      recorded && recorded !== point
        ? `The run was recorded with K = ${own[0]}, γ = ${own[1]}: ${count(recorded.committed.length, "step")}, with ${recorded.nodes.toFixed(0)} nodes per step. `
        : "The run was recorded with these values. ";
    const more = points.filter((p) => p.gamma === point.gamma && p.k > point.k);
    const rest = !more.length
      ? "No larger K was replayed. "
      : more.every(same)
        ? "More re-drafts do not raise α on this text. "
        : `K = ${more[more.length - 1].k} would bring ${more[more.length - 1].alpha.toFixed(2)} tokens per step, with ${more[more.length - 1].nodes.toFixed(0)} nodes per step. `;
    return `${first}${rest}Every node costs a little time. K and γ do not change the text. For another text, other values may be best.`;
  }

  /** Draws α against K, with a line for every γ; the line of the selected γ is emphasised. */
  drawChart(point) {
    const { points, k, gamma } = this.live;
    const most = Math.max(...points.map((p) => p.alpha));
    const x = (value) => 36 + (k.indexOf(value) * 250) / Math.max(1, k.length - 1);
    const y = (alpha) => 92 - ((alpha - 1) / Math.max(0.25, most - 1)) * 78;
    const own = gamma.map((g) => points.filter((p) => p.gamma === g).sort((a, b) => a.k - b.k));
    const names = apart(
      own.map((line) => y(line.at(-1).alpha) + 3.5),
      LINE,
    );
    const lines = own.map((line, at) => {
      const set = gamma[at] === point.gamma;
      return s(
        "g",
        { class: set ? "set" : "other" },
        s("polyline", { points: line.map((p) => `${x(p.k)},${y(p.alpha).toFixed(1)}`).join(" ") }),
        s("text", { x: x(line.at(-1).k) + 8, y: names[at].toFixed(1) }, `γ ${gamma[at]}`),
      );
    });
    const ticks = k.map((value) => s("text", { class: "tick", x: x(value), y: 108 }, value ? `K ${value}` : "no K"));
    this.chart.replaceChildren(
      s("line", { x1: 30, x2: 292, y1: y(1), y2: y(1) }),
      s("text", { class: "side", x: 28, y: y(most) + 3 }, most.toFixed(1)),
      s("text", { class: "side", x: 28, y: y(1) + 3 }, "1"),
      s("text", { class: "name", x: 36, y: 9 }, "tokens per step"),
      ...lines.filter((g) => !g.classList.contains("set")),
      ...lines.filter((g) => g.classList.contains("set")),
      s("circle", { cx: x(point.k), cy: y(point.alpha), r: 5 }),
      ...ticks,
    );
    const said = points.filter((p) => p.gamma === point.gamma).map((p) => `${p.alpha.toFixed(2)} with K ${p.k}`);
    this.chart.setAttribute("aria-label", `Tokens per step with γ ${point.gamma}: ${said.join(", ")}`);
  }

  drawCut(point) {
    const { tokens } = this.live;
    const pieces = [];
    let from = 0;
    point.committed.forEach((size, step) => {
      const words = tokens.slice(from, from + size).join("");
      pieces.push(
        h(
          "span",
          { class: step % 2 ? "odd" : "even", title: `Step ${step + 1}: ${count(size, "token")}` },
          words.replace(LONE, "\ufffd").replace(HIDDEN, "◌"),
        ),
      );
      from += size;
    });
    this.cut.firstChild.textContent = `The same text in ${count(point.committed.length, "step")}; each piece is a step`;
    this.cut.children[1].replaceChildren(this.live.opening, ...pieces);
  }
}
