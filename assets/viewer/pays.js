// When does it pay? The cost of a pass against its tokens, the cost of a step against what it brings, and other K and γ.

import { barRows, costRow, passes } from "./bars.js";
import { MEASURED, PAPER } from "./constants.js";
import { button, clamp, closeButton, emit, fold, h, s, sum, text } from "./dom.js";
import { withTerms } from "./glossary.js";
import { costParts, h200, meanParts, partsOf, passCost } from "./machine.js";
import { clockOf, cycleOf, machineOf, timesWords, totalsOf, wasFixed, worksOf } from "./numbers.js";
import { runWords } from "./page.js";
import { ReplaysView } from "./replays.js";
import { count, countInWords, fixed, milliseconds, visible } from "./words.js";

const EDGE = { left: 26, right: 12, top: 14, bottom: 44 };
const IDEAL = 295; // tokens; see `PAYS_ASKED`
const [MOST] = MEASURED.verify.at(-1); // largest measured number of tokens in a pass
const ROOM = 120; // pixels that a value beside the handle needs

/** What the page says about costs in folds: pairs of question and answer. */
export const PAYS_ASKED = [
  [
    "Why is a pass so cheap on a GPU?",
    // Qwen3-8B without its embedding table, 7.57 billion weights in bfloat16; NVIDIA H100 Tensor Core GPU Datasheet: 3.35 TB/s, 989 TFLOPS
    `A pass reads all weights from memory once: 15 GB for 8 billion weights. An H100 GPU reads 15 GB in 4.5 ms and needs 0.015 ms of arithmetic per token (data sheet). So at best, a pass over ${IDEAL} tokens takes no longer than a pass over one.`,
  ],
  [
    "Where do these numbers come from?",
    `The curve and the bar of the H200, measured: ${MEASURED.source} Its passes include the time between passes. The bar has the work of the same step: as many tokens drafted, read and written. For EAGLE-3, whose drafter was not measured, the bar has the costs of a paper: ${PAPER.source}`,
  ],
];
export const PAYS_FORMULA = ["t(n) = max( bytes of weights ÷ bandwidth,  n · 2 · weights ÷ peak )"];

/** Why the passes of a run have no points in the chart; "" if they have. */
export function noPoints({ header, live, disturbed, baseline, sums }) {
  if (disturbed) return "Other work kept the machine busy during the run, so its times are not compared.";
  if (header.missing) return "This log has no times of single passes.";
  if (live) return "The passes of this run appear here after its end.";
  return baseline && sum(sums.seconds)
    ? ""
    : "Plain decoding was not timed with this run, so its passes cannot be compared.";
}

/** The passes of the large model in a run: number of tokens and cost, in passes over one token; empty if the times are unknown. */
export const pointsOf = (store) =>
  noPoints(store)
    ? []
    : store.summaries.map(({ nodes }, at) => ({ at, nodes, cost: store.secondsOf(at).verify * store.baseline }));

/** The rows of a step or of the mean step: on the machine of the run, and with an 8B model on an H200. */
function rowsOf(store, brought, here, there) {
  const { name, note } = machineOf(store);
  const source = h200(store.header.method) === PAPER ? "8B, D²SD paper" : "8B, measured";
  return [
    here ? costRow(name, note, here, brought) : { name, note, brought, total: "not known" },
    there
      ? costRow("an H200", source, there, brought)
      : { name: "an H200", note: "8B model", brought, total: "not known" },
  ];
}

/** The chart: cost of a pass against its tokens. */
class PassesView {
  constructor(state) {
    this.state = state;
    this.svg = s("svg.passes", {
      role: "group",
      "aria-label": "Cost of a pass against its number of tokens",
      onpointerdown: (event) => this.hold(event),
      onpointermove: (event) => this.held === event.pointerId && this.drag(event),
      onpointerup: () => (this.held = null),
      onpointercancel: () => (this.held = null),
      onkeydown: (event) => this.onKey(event),
    });
    this.legend = h("p.key", {});
    this.box = h(
      "section.of-pass",
      {},
      h("h3", {}, "What one pass of the large model costs ", h("small", {}, "unit: a pass over one token")),
      this.legend,
      this.svg,
    );
  }

  hold(event) {
    this.held = event.pointerId;
    this.svg.setPointerCapture(event.pointerId);
    this.drag(event);
  }

  drag({ clientX }) {
    const { left, width } = this.svg.getBoundingClientRect();
    const share = (clientX - left - EDGE.left) / (width - EDGE.left - EDGE.right);
    this.put(Math.round(this.most ** share));
  }

  onKey(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -8, PageUp: 8 }[event.key];
    if (by) this.put(this.at + by);
    else if (event.key === "Home") this.put(1);
    else if (event.key === "End") this.put(this.limit);
    else return;
    event.preventDefault();
  }

  put(nodes) {
    const pass = clamp(nodes, 1, this.limit);
    if (pass !== this.at) this.state.set({ pass });
  }

  show({ pass, step, at }, store, width, height) {
    const points = pointsOf(store);
    this.machine = machineOf(store).name;
    const own = step ? step.nodes.size : 1;
    this.at = pass ?? own;
    this.limit = Math.max(MOST, ...points.map(({ nodes }) => nodes));
    this.most = 2 ** Math.ceil(Math.log2(2 * this.limit));
    const top = Math.max(2, Math.ceil(Math.max(passCost(MEASURED, MOST), ...points.map(({ cost }) => cost)) + 0.3));
    const x = (nodes) => EDGE.left + (Math.log2(nodes) / Math.log2(this.most)) * (width - EDGE.left - EDGE.right);
    const y = (cost) => height - EDGE.bottom - (cost / top) * (height - EDGE.top - EDGE.bottom);
    const floor = y(0);
    const every = Math.ceil(top / 6);
    const costs = Array.from({ length: Math.floor(top / every) + 1 }, (_, n) => n * every);
    const sizes = Array.from({ length: Math.log2(this.most) + 1 }, (_, n) => 2 ** n);
    const here = points.filter(({ nodes }) => nodes === this.at);
    const shown = here.find((point) => point.at === at) ?? null;
    const value = shown ? shown.cost : here.length ? sum(here.map(({ cost }) => cost)) / here.length : null;
    const there = passCost(MEASURED, this.at);
    const note = shown ? `${milliseconds(step.seconds.verify)}, this step` : `mean of ${count(here.length, "pass")}`;
    const focused = this.svg.contains(this.svg.getRootNode().activeElement);
    this.svg.replaceChildren(
      ...costs.flatMap((cost) => [
        s("line.grid", { x1: EDGE.left, x2: width - EDGE.right, y1: y(cost), y2: y(cost) }),
        s("text", { x: EDGE.left - 8, y: y(cost) + 5, "text-anchor": "end" }, cost),
      ]),
      ...sizes.map((n) =>
        s("text", { x: x(n), y: floor + 19, "text-anchor": "middle" }, Math.abs(x(n) - x(this.at)) > 30 ? n : ""),
      ),
      s("text", { x: width - EDGE.right, y: floor + 38, "text-anchor": "end" }, "tokens in the pass"),
      s("line.ideal", { x1: x(1), x2: x(Math.min(IDEAL, this.most)), y1: y(1), y2: y(1) }),
      s("polyline.there", { points: MEASURED.verify.map(([n]) => `${x(n)},${y(passCost(MEASURED, n))}`).join(" ") }),
      ...points.map(({ nodes, cost }) => s("circle.point", { cx: x(nodes), cy: y(cost), r: 5 })),
      this.handle({ x: x(this.at), top: y(top), floor, own, value }),
      ...this.values({ x: x(this.at), width, y }, { value, note, there }),
    );
    if (focused) this.svg.querySelector(".handle").focus();
    this.showLegend(store, points);
  }

  handle({ x, top, floor, own, value }) {
    const pill = s(
      "g.handle",
      {
        role: "slider",
        tabindex: 0,
        "aria-label": "Tokens in the pass",
        "aria-valuemin": 1,
        "aria-valuemax": this.limit,
        "aria-valuenow": this.at,
        "aria-valuetext": `${count(this.at, "token")}: ${passes(passCost(MEASURED, this.at))} on an H200${value === null ? "" : `, ${passes(value)} on ${this.machine}`}`,
      },
      s("line", { x1: x, x2: x, y1: top, y2: floor }),
      s("rect", { x: x - 22, y: floor, width: 44, height: 26, rx: 13 }),
      s("text", { x, y: floor + 18, "text-anchor": "middle" }, this.at),
    );
    return s("g", {}, pill, s("text", { x: EDGE.left, y: floor + 38 }, `drag; this step: ${count(own, "token")}`));
  }

  /** The costs at the handle, beside it. */
  values({ x, width, y }, { value, note, there }) {
    const left = x + ROOM > width;
    const put = (kind, at, words) =>
      s("text", { class: kind, x: left ? x - 12 : x + 12, y: at, "text-anchor": left ? "end" : "start" }, words);
    const below = value === null || value >= there;
    const near = value === null ? 0 : Math.max(0, 52 - Math.abs(y(there) - y(value))); // pixels that the values overlap
    const thereAt = y(there) + (below ? (left ? 42 : 24) : -10); // to the left, the curve is lower
    const hereAt = value === null ? 0 : y(value) + (below ? -near : 10 + near);
    return [
      s("circle.there", { cx: x, cy: y(there), r: 7 }),
      put("value there", thereAt, passes(there)),
      ...(value === null
        ? []
        : [
            s("circle.here", { cx: x, cy: y(value), r: 7 }),
            put("value here", hereAt, passes(value)),
            put("note", hereAt + 17, note),
          ]),
    ];
  }

  showLegend({ header, length }, points) {
    const sizes = points.map(({ nodes }) => nodes);
    const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
    const model = text(header.models.preset) && visible(header.models.preset, 40, " ");
    const item = (kind, words) => h("span", { class: kind }, words);
    this.legend.replaceChildren(
      ...(points.length
        ? [
            item(
              "here",
              `${[model, "on", this.machine].filter(Boolean).join(" ")}: the ${count(length, "pass")} of this run, ${low === high ? "" : `${low} to `}${count(high, "token")} each`,
            ),
          ]
        : []),
      item("there", "an 8B model on an H200, measured"),
      item("ideal", `the ideal: flat up to ${IDEAL} tokens (H100 data sheet)`),
    );
  }
}

/** The component. In Explore and in files it is a drawer from the right, in Learn a part of the drawing. */
export class PaysView {
  uses = ["why", "data", "fresh", "step", "at", "secret", "pass", "tried", "asked"];

  /** `server(event, data)` sends an event, null without a server; `told`: whether the view is part of Learn. */
  constructor({ pays: host, root }, store, state, server, told) {
    Object.assign(this, { host, store, told, drawn: null });
    this.pass = new PassesView(state);
    this.replays = new ReplaysView({ store, state, server, told });
    this.title = h("h2", {}, "When does it pay?");
    this.run = h("div.of-run", {});
    this.ofStep = h("section.of-step", {});
    this.totals = h("dl.totals", {});
    const offer = (words, act) => server && button(words, { class: "offer" }, act);
    this.quickest = offer("Run quickest here", () => server("quickest", { quickest: true }));
    this.again = offer("Run again", () => emit(host, "explorer:begin"));
    const close = () => {
      state.set({ why: false });
      root.querySelector(".why-open").focus();
    };
    const folds = [...PAYS_ASKED, ["The formula", PAYS_FORMULA.join("")]].map(([name, words]) =>
      fold(name, h("p", {}, words)),
    );
    this.ours = [this.pass.box, this.ofStep, ...folds]; // hidden for the log of an external server
    const closer = closeButton("Close", close, "Close (Esc)");
    host.append(
      ...(told ? [] : [closer, this.title, this.run]),
      this.pass.box,
      this.ofStep,
      this.replays.box,
      ...(told ? [] : [fold("Totals of the run", this.totals), ...folds]),
    );
    host.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the keys of Explore select steps
      if (event.key === "Escape" && !told) close();
    });
  }

  show(scene) {
    const { host, store, told } = this;
    const open = scene.why && !scene.secret && store.length > 0;
    const opens = open && host.hidden;
    host.hidden = !open;
    if (opens && !told) host.querySelector(".close").focus();
    const drawn = this.drawn;
    this.drawn = open ? scene : null;
    if (!open) return;
    // while only the handle moves, only the chart is drawn
    if (!drawn || this.uses.some((name) => name !== "pass" && drawn[name] !== scene[name])) {
      if (!told) this.showRun();
      for (const part of this.ours) part.hidden = Boolean(store.header.missing);
      this.showStep(scene);
      this.replays.show(scene);
    }
    const { clientWidth: width, clientHeight: height } = this.pass.svg;
    if (width) this.pass.show(scene, store, width, height); // else it is not laid out yet, and its size will change
  }

  showRun() {
    const { store, quickest, again } = this;
    const { header, sums, length, opening } = store;
    const cycle = cycleOf(store);
    const alpha = sums.tokens / length;
    const log = header.missing;
    const timed = cycle && !cycle.disturbed;
    const there = meanParts(h200(header.method), header.method, worksOf(store));
    const rows = log ? "" : barRows(rowsOf(store, alpha, timed ? cycle.parts : null, there));
    const slow = wasFixed(cycle, header.config.cost_aware);
    this.run.replaceChildren(
      h("p.ran", { dir: "auto" }, ...withTerms(runWords(store))),
      h("p.sentence", {}, paysWords(store, cycle, alpha)),
      rows,
      slow && quickest ? h("p", {}, "“Quickest here” drafts and verifies only as much as saves time. ", quickest) : "",
      cycle?.disturbed && again ? h("p", {}, again) : "",
      h(
        "p.source",
        {},
        [measuredWords(store), opening.length ? "The pass over the prompt wrote one token more." : ""].join(" "),
      ),
    );
    this.totals.replaceChildren(
      ...totalsOf(store).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  showStep({ step, at }) {
    const { store } = this;
    const n = step.committed.length;
    const { method } = store.header;
    const here = clockOf(store, step) && partsOf(step.seconds, store.baseline);
    const work = worksOf(store)[at];
    const there = work ? costParts(h200(method), method, work) : null;
    const alone = {
      name: "one by one",
      tokens: step.committed.map(({ text }) => text),
      brought: n,
      total: passes(n),
    };
    this.ofStep.replaceChildren(
      h(
        "h3",
        {},
        "Does this step pay? ",
        h("small", {}, `Step ${at + 1} brings ${countInWords(n, "token")} and reads ${step.nodes.size}. It costs:`),
      ),
      barRows([alone, ...rowsOf(store, n, here, there)]),
      here ? "" : h("p.none", {}, noPoints(store)),
      h("p.rule", {}, "A step pays if it brings more tokens than it costs passes."),
    );
  }
}

/** Whether drafting pays in a run, in a sentence. */
function paysWords(store, cycle, alpha) {
  const { header, sums } = store;
  const last = store.summaries[store.length - 1].elapsed;
  if (header.missing && last) {
    const each = last / sums.tokens;
    return `A step takes ${milliseconds(alpha * each)} and writes ${fixed(alpha, 2)} tokens: drafting pays only if plain decoding takes more than ${milliseconds(each)} per token.`;
  }
  if (!cycle || cycle.disturbed) return `A step brings ${fixed(alpha, 1)} tokens. ${noPoints(store)}`;
  return `A step brings ${fixed(alpha, 1)} tokens and costs ${passes(cycle.cost)}: ${timesWords(cycle.gain)}.`;
}

/** When, and with how much context, the time of a plain pass was measured; empty if the run does not record it. */
const measuredWords = ({ measured, context }) =>
  measured
    ? `The time of a pass over one token was measured with these models on ${measured}${context === null ? "" : `, with ${count(context, "token")} of context`}.`
    : "";
