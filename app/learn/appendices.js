// The appendices of Learn: sliders for K and γ, the cost of a pass, and sampling.

import { MEASURED } from "../../assets/viewer/constants.js";
import { button, h, s } from "../../assets/viewer/dom.js";
import { stepCost } from "../../assets/viewer/machine.js";
import { clockOf } from "../../assets/viewer/numbers.js";
import { drawnAfter, oddsAfter } from "../../assets/viewer/sampling.js";
import { count, fixed, percent, probability, quoted, visible } from "../../assets/viewer/words.js";

const [WIDE, HIGH] = [340, 160];
const EDGE = { left: 44, right: 12, top: 14, bottom: 34 };
const ROWS = [1, 4, 16, 64, 256];
const [MOST_ROWS] = MEASURED.verify.at(-1); // largest measured number of tokens in a pass

/** Cost of a pass over `nodes` tokens on the H200, in plain steps. */
export const passCost = (nodes) => stepCost(MEASURED, "autoregressive", { first: 0, again: [], nodes });

export function passWords(nodes) {
  const cost = passCost(nodes);
  const more = cost < 1.05 ? "no more than a pass over one" : `${fixed(cost, 1)} times as much as a pass over one`;
  return `With an 8B model on ${MEASURED.name} a pass over ${count(nodes, "token")} costs ${more}.`;
}

/** A chart of the cost of a pass against its number of tokens, with a slider. */
class PassView {
  /** `nodes`, `ratio`: size of the pass that verified the step, and its cost in passes over one token, null if not timed. */
  constructor(nodes, ratio) {
    this.own = { nodes, ratio };
    this.slider = h("input", { type: "range", min: 1, max: MOST_ROWS, step: 1, "aria-label": "Tokens in the pass" });
    this.value = h("output", {});
    this.chart = s("svg", { class: "pass", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
    this.said = h("p", { class: "said", role: "status" });
    this.slider.addEventListener("input", () => this.show());
    this.box = h(
      "div",
      { class: "passes" },
      h("label", {}, h("span", {}, "tokens in the pass"), this.slider, this.value),
      this.said,
      this.chart,
    );
    this.slider.value = nodes;
    this.show();
  }

  show() {
    const nodes = Number(this.slider.value);
    this.value.textContent = nodes;
    const here =
      this.own.ratio && this.own.nodes > 1
        ? ` ✕ marks this step’s pass over ${this.own.nodes} tokens on the machine of the recording. It took ${fixed(this.own.ratio, 1)} times as long as a pass over one token.`
        : "";
    this.said.textContent = passWords(nodes) + here;
    this.draw(nodes);
  }

  draw(nodes) {
    const most = Math.max(4, this.own.ratio || 0);
    const x = (n) =>
      EDGE.left + (Math.log2(Math.min(n, ROWS.at(-1))) / Math.log2(ROWS.at(-1))) * (WIDE - EDGE.left - EDGE.right);
    const y = (c) =>
      HIGH - EDGE.bottom - (Math.log2(Math.max(0.5, c) * 2) / Math.log2(most * 2)) * (HIGH - EDGE.top - EDGE.bottom);
    const points = MEASURED.verify.map(([n]) => `${x(n).toFixed(1)},${y(passCost(n)).toFixed(1)}`).join(" ");
    const ticks = [
      ...ROWS.map((n) => s("text", { x: x(n), y: HIGH - 19, "text-anchor": "middle" }, n)),
      ...[1, 2, 4, 8, 16, 32, 64]
        .filter((c) => c <= most)
        .map((c) => s("text", { x: EDGE.left - 6, y: y(c) + 4, "text-anchor": "end" }, c)),
      s("text", { x: (EDGE.left + WIDE) / 2, y: HIGH - 4, "text-anchor": "middle" }, "tokens in one pass"),
      s("text", { x: EDGE.left + 8, y: 11 }, "cost, in plain steps"),
    ];
    const own = this.own.ratio
      ? s("text", { class: "own", x: x(this.own.nodes), y: y(this.own.ratio) + 5, "text-anchor": "middle" }, "✕")
      : null;
    const memory = s("line", { class: "memory", x1: x(1), x2: x(ROWS.at(-1)), y1: y(1), y2: y(1) });
    const name = s("text", { class: "memory", x: x(1) + 4, y: y(1) + 14 }, "a plain step");
    this.chart.replaceChildren(
      ...[
        memory,
        s("polyline", { class: "time", points }),
        ...ticks,
        name,
        s("circle", { cx: x(nodes), cy: y(passCost(nodes)), r: 5 }),
        own,
      ].filter(Boolean),
    );
    this.chart.setAttribute("aria-label", passWords(nodes));
  }
}

/** The node after which the target decides at the boundary of the first draft, or the anchor if there is no boundary. */
export const placeOf = ({ boundary, accepted }) => [0, ...accepted][boundary ?? 0] ?? 0;

/** Draws the step again with other seeds, and counts what the target draws at one place. */
class DrawsView {
  /** `redraw(seed)` draws the step with another seed, or as recorded (null). */
  constructor(step, redraw) {
    Object.assign(this, { step, place: placeOf(step), redraw, seed: 0, counts: new Map() });
    this.odds = oddsAfter(step, this.place);
    this.rows = h("tbody", {});
    this.said = h("p", { class: "said", role: "status" });
    const drawer = (words, times) => button(words, { class: "small", "data-times": times }, () => this.draw(times));
    const head = h(
      "tr",
      {},
      ...["the large model may write", "p", "drawn"].map((words) => h("th", { scope: "col" }, words)),
    );
    this.box = h(
      "div",
      { class: "draws" },
      h("div", { class: "row" }, drawer("Draw again", 1), drawer("Draw 100 times", 100)),
      this.said,
      h("table", {}, h("thead", {}, head), this.rows),
    );
    this.show();
  }

  draw(times) {
    for (let n = 0; n < times; n += 1) {
      this.seed += 1;
      const { id } = drawnAfter(this.step, this.place, this.seed);
      this.counts.set(id, 1 + (this.counts.get(id) ?? 0));
    }
    this.redraw(this.seed);
    this.show();
  }

  show() {
    const { step, place, seed, counts } = this;
    const after = quoted(place ? step.nodes.get(place).text : step.anchorText);
    this.said.textContent = seed
      ? `The drawing shows draw ${seed}${step.sampled ? "" : ", at temperature 1"}. After ${after}, each token is drawn as often as its probability p says.`
      : `What the large model may draw after ${after}; “(another)”: any token whose probability was not recorded.`;
    const drafted = new Set(
      [...step.nodes.values()].filter(({ parent }) => parent === place).map(({ token }) => token),
    );
    const row = ({ id, text, p }) =>
      h(
        "tr",
        { class: drafted.has(id) ? "drafted" : null },
        h(
          "th",
          { scope: "row" },
          h("bdi", {}, visible(text.replace(/^ (?=\S)/, ""), 16, " ")),
          drafted.has(id) ? " ✓ drafted" : "",
        ),
        h("td", {}, probability(p)),
        h("td", {}, seed ? `${counts.get(id) ?? 0}, ${percent((counts.get(id) ?? 0) / seed)}` : "—"),
      );
    this.rows.replaceChildren(...this.odds.map(row));
  }
}

/** The appendices of a step: chapters that have a `box`. `settings`: view with sliders for K and γ, null if nothing was replayed.
 *  `redraw(seed)` draws the step with another seed. */
export function appendices(step, store, settings, redraw) {
  const pass = new PassView(step.nodes.size, clockOf(store, step)?.pass ?? null);
  const shared = { formula: [], numbers: [], asked: [], from: Infinity, to: Infinity }; // the whole step
  return [
    settings?.live && {
      ...shared,
      id: 8,
      name: "Try it",
      title: "Change K and γ",
      say: [
        "K is the number of second drafts, γ the length of a block. Move the sliders to see into which steps other values would have divided the text.",
      ],
      box: settings.box,
    },
    {
      ...shared,
      id: 9,
      name: "Hardware",
      title: "What a pass costs",
      say: [
        // Qwen3-8B without its embedding table, 7.57 billion weights in bfloat16; NVIDIA H100 Tensor Core GPU Datasheet: 3.35 TB/s, 989 TFLOPS
        "A pass reads all weights from memory once, for one token or many: 15 GB for 8 billion weights. An H100 GPU reads 15 GB in 4.5 ms and needs 0.015 ms of arithmetic per token (data sheet). So at best, a pass over 295 tokens takes no longer than a pass over one.",
        "A laptop’s processor reaches its limit with a few tokens, and every further token takes more time. So drafting may lose on a laptop what it gains on a large GPU.",
      ],
      box: pass.box,
      formula: ["t(n) = max( bytes of weights ÷ bandwidth,  n · 2 · weights ÷ peak )"],
    },
    oddsAfter(step, 0).length && {
      ...shared,
      id: 10,
      name: "Sampling",
      title: "Draw instead of taking the likeliest",
      say: [
        `${step.sampled ? "At temperature 0 the large model takes" : "At temperature 0, as in this run, the large model takes"} the likeliest token at every position. At a higher temperature it draws a token at random, by its probabilities.`,
        "The token is drawn first, as if nothing had been drafted. Only then is it compared with the nodes of the tree. So drafting does not change how the text is drawn.",
      ],
      box: new DrawsView(step, redraw).box,
      formula: [["var", "x"], " ~ ", ["var", "p"], "( · | text, path ),   accepted if ", ["var", "x"], " was drafted"],
      asked: [
        [
          "Textbooks accept a guess with probability min(1, p/q). Why not here?",
          "In textbooks, the drafter draws its guess at random from its probabilities q. The guess is accepted with probability min(1, p/q), where p is the large model’s probability; a rejected guess is replaced by a draw from what is left, max(0, p − q). Here, the large model draws first, and a guess is accepted if it is that draw. Both ways give the large model’s own distribution. In Explore, the card of a token shows both.",
        ],
      ],
    },
  ].filter(Boolean);
}
