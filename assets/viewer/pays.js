// When does it pay? The cost of a pass against its tokens, the cost of a step against what it brings, and other K and γ.

import { barRows, costRow } from "./bars.js";
import { MEASURED, PAPER } from "./constants.js";
import { button, clamp, closeButton, emit, fold, h, s, sum } from "./dom.js";
import { withTerms } from "./glossary.js";
import { costParts, h200, meanParts, partsOf, passCost } from "./machine.js";
import { clockOf, cycleOf, machineOf, timesWords, totalsOf, wasFixed, worksOf } from "./numbers.js";
import { runWords } from "./page.js";
import { replaysView } from "./replays.js";
import { count, countInWords, fixed, milliseconds, passes, visible } from "./words.js";

const EDGE = { left: 26, right: 12, top: 14, bottom: 44 };
const IDEAL = 295; // tokens; see `PAYS_ASKED`
const [MOST] = MEASURED.verify.at(-1); // largest measured number of tokens in a pass
const ROOM = 120; // pixels that a value beside the handle needs

/** What the page says about costs in folds: pairs of question and answer. */
export const PAYS_ASKED = [
  [
    "Why is a pass so cheap on a GPU?",
    // Qwen3-8B without its embedding table, 7.57 billion weights in bfloat16; NVIDIA H100 Tensor Core GPU Datasheet: 3.35 TB/s, 989 TFLOPS
    `A pass reads all weights from memory once: 15 GB for 8 billion weights. An H100 GPU reads 15 GB in 4.5 ms and needs 0.015 ms of arithmetic per token (data sheet). So at best, a pass over ${IDEAL} tokens takes no longer than a one-token pass.`,
  ],
  [
    "Where do these numbers come from?",
    `The curve and the bar of the H200, measured: ${MEASURED.source} Its passes include the time between passes. The bar has the work of the same step: as many tokens drafted, read and written. For EAGLE-3, whose drafter was not measured, the bar has the costs of a paper: ${PAPER.source}`,
  ],
];
export const PAYS_RULE = "A step pays if it brings more tokens than it costs one-token passes.";
export const PAYS_FORMULA = ["t(n) = max( bytes of weights ÷ bandwidth,  n · 2 · weights ÷ peak )"];

/** Why the passes of a run have no points in the chart; "" if they have. */
export function noPoints({ header, live, disturbed, baseline, sums }) {
  if (disturbed) return "Other work kept the machine busy during the run, so its times are not compared.";
  if (header.missing) return "This log has no times of single passes.";
  if (live) return "The passes of this run appear here after its end.";
  return baseline && sum(sums.seconds)
    ? ""
    : "No one-token pass was timed with this run, so its passes cannot be compared.";
}

/** The passes of the large model in a run: number of tokens and cost, in one-token passes; empty if the times are unknown. */
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

/** The chart: cost of a pass against its tokens, with a handle that selects a number of tokens. */
function passesChart(state, store) {
  let [atHandle, limit, widest, held] = [1, MOST, MOST, null]; // tokens at the handle, their maximum, the end of the axis; the pointer
  const put = (nodes) => {
    const pass = clamp(nodes, 1, limit);
    if (pass !== atHandle) state.set({ pass });
  };
  const drag = ({ clientX }) => {
    const { left, width } = svg.getBoundingClientRect();
    put(Math.round(widest ** ((clientX - left - EDGE.left) / (width - EDGE.left - EDGE.right))));
  };
  const press = (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -8, PageUp: 8 }[event.key];
    const end = { Home: 1, End: limit }[event.key];
    if (!by && !end) return;
    put(end ?? atHandle + by);
    event.preventDefault();
  };
  const svg = s("svg.passes", {
    role: "group",
    ariaLabel: "Cost of a pass against its number of tokens",
    onpointerdown: (event) => {
      held = event.pointerId;
      svg.setPointerCapture(held);
      drag(event);
    },
    onpointermove: (event) => held === event.pointerId && drag(event),
    onpointerup: () => (held = null),
    onpointercancel: () => (held = null),
    onkeydown: press,
  });
  const legend = h("p.key", {});
  const unit = h("small", {}, "in one-token passes");
  const title = h("h3", {}, "What a pass of the large model costs ", unit);
  const box = h("section.of-pass", {}, title, legend, svg);

  function show({ pass, step, at }, width, height) {
    const points = pointsOf(store);
    const own = step ? step.nodes.size : 1;
    atHandle = pass ?? own;
    limit = Math.max(MOST, ...points.map(({ nodes }) => nodes));
    widest = 2 ** Math.ceil(Math.log2(2 * limit));
    const top = Math.max(2, Math.ceil(Math.max(passCost(MEASURED, MOST), ...points.map(({ cost }) => cost)) + 0.3));
    const right = width - EDGE.right;
    const x = (nodes) => EDGE.left + (Math.log2(nodes) / Math.log2(widest)) * (right - EDGE.left);
    const y = (cost) => height - EDGE.bottom - (cost / top) * (height - EDGE.top - EDGE.bottom);
    const floor = y(0);
    const every = Math.ceil(top / 6);
    const costs = Array.from({ length: Math.floor(top / every) + 1 }, (_, n) => n * every);
    const sizes = Array.from({ length: Math.log2(widest) + 1 }, (_, n) => 2 ** n);
    const here = points.filter(({ nodes }) => nodes === atHandle);
    const shown = here.find((point) => point.at === at);
    const value = shown ? shown.cost : here.length ? sum(here.map(({ cost }) => cost)) / here.length : null;
    const note = shown ? `${milliseconds(step.seconds.verify)}, this step` : `mean of ${count(here.length, "pass")}`;
    const focused = svg.contains(svg.getRootNode().activeElement);
    svg.replaceChildren(
      ...costs.flatMap((cost) => [
        s("line.grid", { x1: EDGE.left, x2: right, y1: y(cost), y2: y(cost) }),
        s("text", { x: EDGE.left - 8, y: y(cost) + 5, "text-anchor": "end" }, cost),
      ]),
      ...sizes.map((n) =>
        s("text", { x: x(n), y: floor + 19, "text-anchor": "middle" }, Math.abs(x(n) - x(atHandle)) > 30 ? n : ""),
      ),
      s("text", { x: right, y: floor + 38, "text-anchor": "end" }, "tokens in the pass"),
      s("line.ideal", { x1: x(1), x2: x(Math.min(IDEAL, widest)), y1: y(1), y2: y(1) }),
      s("polyline.there", { points: MEASURED.verify.map(([n]) => `${x(n)},${y(passCost(MEASURED, n))}`).join(" ") }),
      ...points.map(({ nodes, cost }) => s("circle.point", { cx: x(nodes), cy: y(cost), r: 5 })),
      s(
        "g",
        {},
        handle(x(atHandle), y(top), floor, value),
        s("text", { x: EDGE.left, y: floor + 38 }, `drag; this step: ${count(own, "token")}`),
      ),
      ...values(x(atHandle), y, width, value, note),
    );
    if (focused) svg.querySelector(".handle").focus();
    showLegend(points.map(({ nodes }) => nodes));
  }

  function handle(x, top, floor, value) {
    const there = `${count(atHandle, "token")}: ${passes(passCost(MEASURED, atHandle))} on an H200`;
    return s(
      "g.handle",
      {
        role: "slider",
        tabindex: 0,
        ariaLabel: "Tokens in the pass",
        ariaValueMin: 1,
        ariaValueMax: limit,
        ariaValueNow: atHandle,
        ariaValueText: there + (value === null ? "" : `, ${passes(value)} on ${machineOf(store).name}`),
      },
      s("line", { x1: x, x2: x, y1: top, y2: floor }),
      s("rect", { x: x - 22, y: floor, width: 44, height: 26, rx: 13 }),
      s("text", { x, y: floor + 18, "text-anchor": "middle" }, atHandle),
    );
  }

  /** The costs at the handle, beside it; `value`: on the machine of the run, null if unknown. */
  function values(x, y, width, value, note) {
    const there = passCost(MEASURED, atHandle);
    const left = x + ROOM > width;
    const put = (kind, at, words) =>
      s("text", { class: kind, x: left ? x - 12 : x + 12, y: at, "text-anchor": left ? "end" : "start" }, words);
    const below = value === null || value >= there;
    const thereAt = y(there) + (below ? (left ? 42 : 24) : -10); // to the left, the curve is lower
    const drawn = [s("circle.there", { cx: x, cy: y(there), r: 7 }), put("value there", thereAt, fixed(there, 1))];
    if (value === null) return drawn;
    const overlap = Math.max(0, 52 - Math.abs(y(there) - y(value))); // pixels
    const hereAt = y(value) + (below ? -overlap : 10 + overlap);
    const here = [put("value here", hereAt, fixed(value, 1)), put("note", hereAt + 17, note)];
    return [...drawn, s("circle.here", { cx: x, cy: y(value), r: 7 }), ...here];
  }

  function showLegend(sizes) {
    const { header, length } = store;
    const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
    const model = header.models.preset && visible(header.models.preset, 40, " ");
    const who = [model, "on", machineOf(store).name].filter(Boolean).join(" ");
    const range = `${low === high ? "" : `${low} to `}${count(high, "token")} each`;
    legend.replaceChildren(
      sizes.length ? h("span.here", {}, `${who}: the ${count(length, "pass")} of this run, ${range}`) : "",
      h("span.there", {}, "an 8B model on an H200, measured"),
      h("span.ideal", {}, `the ideal: flat up to ${IDEAL} tokens (H100 data sheet)`),
    );
  }

  return { box, svg, show };
}

/**
 * The component. In Explore and in files it is a drawer from the right, in Learn a part of the drawing.
 *
 * server(event, data): sends an event; null without a server
 * told: whether the view is part of Learn
 */
export function paysView({ pays: host, root }, store, state, server, told) {
  const uses = ["why", "data", "fresh", "step", "at", "secret", "pass", "tried", "asked"];
  const chart = passesChart(state, store);
  const replays = replaysView(store, state, server, told);
  const [ofRun, ofStep, totals] = [h("div.of-run", {}), h("section.of-step", {}), h("dl.totals", {})];
  const offer = (words, act) => server && button(words, { class: "offer" }, act);
  const quickest = offer("Run quickest here", () => server("quickest", { quickest: true }));
  const again = offer("Run again", () => emit(host, "explorer:begin"));
  const close = () => {
    state.set({ why: false });
    root.querySelector(".why-open").focus();
  };
  const folds = [...PAYS_ASKED, ["The formula", PAYS_FORMULA.join("")]].map(([name, words]) =>
    fold(name, h("p", {}, words)),
  );
  const head = [closeButton("Close", close, "Close (Esc)"), h("h2", {}, "When does it pay?"), ofRun];
  const foot = [fold("Totals of the run", totals), ...folds];
  host.append(...(told ? [] : head), chart.box, ofStep, replays.box, ...(told ? [] : foot));
  host.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the keys of Explore select steps
    if (event.key === "Escape" && !told) close();
  });
  let drawn = null; // the scene of the latest drawing; null if closed

  function show(scene) {
    const open = scene.why && !scene.secret && store.length > 0;
    const opens = open && host.hidden;
    host.hidden = !open;
    if (opens && !told) host.querySelector(".close").focus();
    const before = drawn;
    drawn = open ? scene : null;
    if (!open) return;
    // while only the handle moves, only the chart is drawn
    if (!before || uses.some((name) => name !== "pass" && before[name] !== scene[name])) {
      if (!told) showRun();
      // the log of an external server has no costs
      for (const part of [chart.box, ofStep, ...folds]) part.hidden = Boolean(store.header.missing);
      showStep(scene);
      replays.show(scene);
    }
    const { clientWidth: width, clientHeight: height } = chart.svg;
    if (width) chart.show(scene, width, height); // else it is not laid out yet, and its size will change
  }

  function showRun() {
    const { header, sums, length, opening } = store;
    const cycle = cycleOf(store);
    const alpha = sums.tokens / length;
    const here = cycle && !cycle.disturbed ? cycle.parts : null;
    const there = meanParts(h200(header.method), header.method, worksOf(store));
    const slow = wasFixed(cycle, header.config.cost_aware);
    const source = [measuredWords(store), opening.length ? "The pass over the prompt wrote one token more." : ""];
    ofRun.replaceChildren(
      h("p.ran", { dir: "auto" }, ...withTerms(runWords(store))),
      h("p.sentence", {}, paysWords(store, cycle, alpha)),
      header.missing ? "" : barRows(rowsOf(store, alpha, here, there)),
      slow && quickest ? h("p", {}, "“Quickest here” drafts and verifies only as much as saves time. ", quickest) : "",
      cycle?.disturbed && again ? h("p", {}, again) : "",
      h("p.source", {}, source.join(" ")),
    );
    totals.replaceChildren(
      ...totalsOf(store).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  function showStep({ step, at }) {
    const n = step.committed.length;
    const { method } = store.header;
    const here = clockOf(store, step) && partsOf(step.seconds, store.baseline);
    const work = worksOf(store)[at];
    const there = work ? costParts(h200(method), method, work) : null;
    const tokens = step.committed.map(({ text }) => text);
    const alone = { name: "one by one", tokens, brought: n, total: fixed(n, 1) };
    const brings = `Step ${at + 1} brings ${countInWords(n, "token")} and costs, in one-token passes:`;
    ofStep.replaceChildren(
      h("h3", {}, "Does this step pay? ", h("small", {}, brings)),
      barRows([alone, ...rowsOf(store, n, here, there)]),
      here ? "" : h("p.none", {}, noPoints(store)),
      h("p.rule", {}, PAYS_RULE),
    );
  }

  return { uses, show, chart, replays };
}

/** Whether drafting pays in a run, in a sentence. */
function paysWords(store, cycle, alpha) {
  const { header, sums } = store;
  const last = store.summaries.at(-1).elapsed;
  if (header.missing && last) {
    const each = last / sums.tokens;
    return `A step takes ${milliseconds(alpha * each)} and writes ${fixed(alpha, 2)} tokens: drafting pays only if a token takes more than ${milliseconds(each)} one by one.`;
  }
  if (!cycle || cycle.disturbed) return `A step brings ${fixed(alpha, 1)} tokens. ${noPoints(store)}`;
  return `A step brings ${fixed(alpha, 1)} tokens and costs ${passes(cycle.cost)}: ${timesWords(cycle.gain)}.`;
}

/** When, and with how much context, the time of a one-token pass was measured; empty if the run does not record it. */
const measuredWords = ({ measured, context }) =>
  measured
    ? `The time of a one-token pass was measured with these models on ${measured}${context === null ? "" : `, with ${count(context, "token")} of context`}.`
    : "";
