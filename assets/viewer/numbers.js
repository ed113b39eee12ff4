// What a run brings and costs: in a sentence, as totals, and why it is as fast as it is.

import { OUTCOMES, STAGES, count, fixed, methodName, percent } from "./words.js";
import { button, h, sum } from "./dom.js";
import { term } from "./glossary.js";
import { PAPER } from "./constants.js";
import { BreakEvenMap, meanCost, originWords } from "./machine.js";
import { judged } from "./store.js";

/** What the step and the run came to, in words that need nothing, as pieces; kind "b": a number that matters. `step`: tokens of the
 *  shown step, null where none is shown; `cycle`: what `cycleOf` returns; `live`: whether there is more to come; `full`: whether the run
 *  verified whole trees and was slower for it. */
export function gist({ method, step, tokens, steps, cycle, live, full = false }) {
  if (!steps) return [];
  const b = (text) => ({ text, kind: "b" });
  const t = (text) => ({ text });
  if (method === "autoregressive")
    return [b("1 token"), t(" a step: this is plain decoding, one pass of the target for each token.")];
  const here =
    step === null
      ? []
      : step > 1
        ? [b(count(step, "token")), t(` in this step; plain decoding needs ${step} passes. `)]
        : [b("1 token"), t(" in this step, as plain decoding writes in a pass. ")];
  const run = [t(`The run: ${count(tokens, "token")} in ${count(steps, "step")}${live ? " so far" : ""}`)];
  if (!cycle) return [...here, ...run, t(".")];
  const why = full ? `: a full tree costs ${fixed(cycle.cost, 1)} plain passes here.` : ".";
  return [
    ...here,
    ...run,
    t(", "),
    { text: `${fixed(cycle.gain, 2)}×`, kind: cycle.gain < 1 ? "b slower" : "b" },
    t(` as fast as plain decoding${cycle.disturbed ? ` (${DISTURBED}; run it again)` : ""}${why}`),
  ];
}

/** What a step of a run costs: `cost` in plain steps, `parts` of it by stage, `brought` tokens, and the `gain` over plain decoding;
 *  null where that was not timed. */
export function cycleOf(store) {
  const { timed, gain } = speedsOf(store);
  if (gain === null) return null;
  const { tokens, steps, seconds } = store.sums;
  const brought = tokens / steps;
  const cost = (brought * store.baseline) / timed;
  const all = sum(Object.values(seconds));
  const parts = STAGES.map(([stage, name]) => ({ stage, name, cost: all ? (cost * seconds[stage]) / all : 0 }));
  return { cost, brought, parts, gain, disturbed: store.disturbed };
}

const DISTURBED = "disturbed by other work on this machine";

/** The same in a sentence. */
export function cycleWords({ cost, brought, gain, disturbed = false }) {
  const end = disturbed
    ? `; the times were ${DISTURBED}: run it again`
    : `, so it is ${fixed(gain, 2)}× as fast as plain decoding`;
  return `A step cost ${fixed(cost, 1)} plain steps and brought ${fixed(brought, 1)} tokens${end}.`;
}

/** Whether a run would have been quicker with less to verify: it was slower than plain decoding, and `aware`, its setting, undefined
 *  if imported, left it its full trees. */
export const wasFull = (cycle, aware) => cycle !== null && cycle.gain < 1 && aware === false;

/** How fast the same steps of `method` would be on the paper's H200, where each costs `cost` plain steps; null: that is not known. */
export function elsewhereWords(method, cost, brought) {
  if (cost === null) return `The time of its draft with an 8B model on ${PAPER.name} is not known.`;
  return `With an 8B model on ${PAPER.name} such a step costs ${fixed(cost, 2)} plain steps (${originWords(method, cost)}), so the same ${fixed(brought, 1)} tokens would come ${fixed(brought / cost, 2)}× as fast.`;
}

/** Two bars on one scale: what a step cost, by stage, and what it brought. */
export function cycleBars(cycle) {
  const most = Math.max(cycle.cost, cycle.brought, 1);
  const width = (value) => `width:${((100 * value) / most).toFixed(2)}%`;
  const shown = cycle.parts.filter((part) => part.cost > 0);
  const row = (name, words, ...bars) =>
    h(
      "div",
      { class: "bar" },
      h("span", { class: "name" }, name),
      h("span", { class: "rail" }, ...bars),
      h("span", { class: "value" }, words),
    );
  return h(
    "div",
    { class: "cycle" },
    row(
      "costs",
      `${fixed(cycle.cost, 1)} plain steps`,
      ...shown.map((part) =>
        h("span", {
          class: `segment ${part.stage}`,
          style: width(part.cost),
          title: `${part.name}: ${fixed(part.cost, 2)} plain steps`,
        }),
      ),
    ),
    row(
      "brings",
      `${fixed(cycle.brought, 1)} tokens`,
      h("span", { class: "segment brought", style: width(cycle.brought) }),
    ),
    h(
      "p",
      { class: "parts" },
      shown
        .filter((part) => part.cost >= 0.05)
        .map((part) => `${part.name.toLowerCase()} ${fixed(part.cost, 1)}`)
        .join(" · "),
    ),
  );
}

const QUICKEST = "“Quickest here” drafts and verifies only what pays.";

const CARDS = [
  [
    "alpha",
    "Tokens/step α",
    "mean acceptance length over all steps: committed tokens per step, including the one that the target adds",
  ],
  [
    "speed",
    "Tokens per second",
    "of the run shown here: committed tokens over the time since the prompt was read. Recording every step takes time; the speedup is timed without recording",
  ],
  [
    "speedup",
    "Speedup",
    "tokens per second over plain decoding with the same target, both timed alternately right after the run and without drawing, which slows a small machine. Below 1×, a step takes longer than plain decoding of its tokens: “quickest here”, or fewer nodes B, may help",
  ],
  ["nodes", "Mean nodes/step", "tree nodes that the target checks in one pass, anchor included; mean over the steps"],
  [
    "repaired",
    "Repaired drafts",
    "of the steps whose first draft was partly rejected: how often a re-draft started exactly there and added tokens",
  ],
  [
    "gain",
    "Gained per re-draft",
    "tokens that the drafts after the first added, divided by the number of those drafts",
  ],
];

/** Tokens per second, as short as is of use. */
const perSecond = (speed) => fixed(speed, speed >= 100 ? 0 : 1);

/** Tokens per second of a run as it was recorded, and as it was timed in turns with plain decoding where that was done; its gain
 *  over that. Null: not known. */
function speedsOf({ sums, summaries, length, baseline, unwatched }) {
  const last = length ? summaries[length - 1].elapsed : 0;
  const speed = last > 0 ? sums.tokens / last : null;
  const timed = unwatched || speed;
  return { last, speed, timed, gain: speed !== null && baseline ? timed / baseline : null };
}

/** The totals of a run, a value and a note for every card; `here`: summary of the shown step, null where none is shown. */
export function figuresOf(store, here = null) {
  const { last, speed, timed, gain } = speedsOf(store);
  const { tokens, nodes, outcomes, gained, redrafts } = store.sums;
  const { length: steps, baseline, unwatched } = store;
  const cases = judged(store.sums);
  const mean = (value, digits) => (steps ? fixed(value / steps, digits) : "—");
  const ofStep = (words) => (here ? `this step: ${words(here)}` : "");
  const even = baseline && speed ? `breaks even at ${fixed(((tokens / steps) * baseline) / timed, 1)}` : "";
  const pace = !last
    ? "no times in this run"
    : unwatched
      ? "while recording"
      : `${count(tokens, "token")} in ${last.toFixed(last < 10 ? 2 : 0)} s`;
  const unmeasured =
    store.header.method === "autoregressive" ? "nothing is drafted" : store.live ? "not measured yet" : "not measured";
  const measured = () =>
    unwatched
      ? `undrawn ${perSecond(timed)}, plain ${perSecond(baseline)}`
      : `${perSecond(timed)} vs ${perSecond(baseline)} plain`;
  const slow = store.disturbed
    ? "disturbed: run again"
    : gain !== null && gain < 1
      ? `a step = ${(tokens / steps / gain).toFixed(1)} plain`
      : "";
  const verdict = here && OUTCOMES[here.verdict];
  const predicted = cases
    ? `${outcomes.repaired} of ${cases}`
    : !steps || store.seen.selected
      ? "no prediction yet"
      : "none predicted";
  return {
    alpha: [mean(tokens, 2), [ofStep(({ total }) => total), even].filter(Boolean).join("; ")],
    speed: [speed === null ? "—" : perSecond(speed), steps ? pace : ""],
    speedup: [gain === null ? "—" : `${fixed(gain, 2)}×`, slow || (baseline && timed ? measured() : unmeasured)],
    nodes: [mean(nodes, 1), ofStep((step) => step.nodes)],
    repaired: [
      cases ? percent(outcomes.repaired / cases) : "—",
      verdict ? ofStep(() => `${verdict.mark} ${verdict.short || verdict.words}`) : predicted,
    ],
    gain: [
      redrafts ? fixed(gained / redrafts, 2) : "—",
      redrafts ? ofStep((step) => `${step.gained} by ${step.redrafts}`) || `${gained} by ${redrafts}` : "no re-drafts",
    ],
  };
}

/** The run in a sentence; behind it all totals, each with the shown step's own value, and why it is as fast as it is. */
export class NumbersView {
  /** `ways`: where a server answers, `quickest()` runs the form's prompt as *quickest here*, and `turn()` leads to where K and γ can be
   *  changed; null elsewhere. */
  constructor(host, store, ways) {
    Object.assign(this, { host, store, ways, cells: {}, shown: null });
    this.gist = h("p", { class: "gist" });
    this.cards = h("dl", { class: "cards", "aria-label": "Totals", hidden: true });
    for (const [id, name, title] of CARDS) {
      const cell = { value: h("dd", { class: "value" }), note: h("dd", { class: "note" }) };
      this.cells[id] = cell;
      this.cards.append(
        h("div", { class: "stat", "data-stat": id }, h("dt", {}, term(name, name, title)), cell.value, cell.note),
      );
    }
    this.segments = STAGES.map(([stage, name]) => [stage, name, h("span", { class: `segment ${stage}` })]);
    this.bar = h("dd", { class: "stack", role: "img" }, ...this.segments.map(([, , segment]) => segment));
    this.shares = h("dd", { class: "note" });
    this.cards.append(
      h("div", { class: "stat wide", "data-stat": "stages" }, h("dt", {}, "Time by stage"), this.bar, this.shares),
    );
    this.map = new BreakEvenMap();
    this.words = h("div", {});
    this.there = h("p", { class: "there" });
    const source = h("p", { class: "source" }, PAPER.source);
    const change = ways && button("Change K and γ →", { class: "offer" }, ways.turn);
    this.box = h(
      "div",
      { class: "why", role: "note", hidden: true },
      this.words,
      change,
      this.there,
      this.map.box,
      source,
    );
    this.why = this.opener("why?", "why-open", this.box, "What a step costs, and where it would pay");
    this.more = this.opener("all figures", "more-open", this.cards, "All totals of the run");
    this.quick = button(
      "Run quickest here",
      {
        class: "offer",
        id: "quickest",
        hidden: true,
        title: "The same text, with only what pays on this machine drafted and verified",
      },
      ways?.quickest,
    );
    host.append(h("div", { class: "line" }, this.gist, this.quick, this.why, this.more), this.cards, this.box);
    host.addEventListener("keydown", (event) => {
      const opened = this.opened;
      if (event.key !== "Escape" || !opened) return;
      event.stopPropagation();
      opened.click();
      opened.focus();
    });
  }

  opener(words, kind, part, title) {
    return button(words, { class: `quiet ${kind}`, title, "aria-expanded": "false" }, ({ currentTarget }) => {
      if (part.hidden) this.opened?.click(); // they lie over the same place
      part.hidden = !part.hidden;
      currentTarget.setAttribute("aria-expanded", String(!part.hidden));
      this.update();
    });
  }

  /** The button of what is open; undefined: nothing is. */
  get opened() {
    return [this.why, this.more].find((button) => button.getAttribute("aria-expanded") === "true");
  }

  /** Another run is shown: what was opened about the last one is closed. */
  reset() {
    this.shown = null;
    this.opened?.click();
  }

  showWhy(cycle, alpha, there) {
    const { method, config } = this.store.header;
    const even = [
      cycle && `at ${fixed(cycle.cost, 1)} here`,
      there !== null && `at ${fixed(there, 2)} on ${PAPER.name}`,
    ]
      .filter(Boolean)
      .join(", ");
    const price = h(
      "p",
      {},
      term("α"),
      ` = ${fixed(alpha, 2)} tokens a step`,
      ...(even ? ["; it would ", term("break even"), ` ${even}`] : []),
      ".",
    );
    this.words.replaceChildren(
      ...(cycle
        ? [
            h("b", {}, cycle.gain < 1 ? "Why slower here" : "Why faster here"),
            h("p", {}, `${cycleWords(cycle)} ${wasFull(cycle, config.cost_aware) ? QUICKEST : ""}`),
            cycleBars(cycle),
          ]
        : [
            h("b", {}, "What a step costs"),
            h("p", {}, "Plain decoding was not timed with this run, so its price here is not known."),
          ]),
      price,
    );
    this.there.textContent = elsewhereWords(method, there, alpha);
    this.map.show([{ name: methodName(method), alpha, here: cycle && cycle.cost, there }]);
  }

  show({ at, secret }) {
    this.shown = secret ? null : at;
    this.update();
  }

  update() {
    const { store, cells, shown } = this;
    const { tokens } = store.sums;
    const { method, config } = store.header;
    const here = shown === null ? null : store.summaries[shown];
    for (const [id, [value, note]] of Object.entries(figuresOf(store, here))) {
      cells[id].value.textContent = value;
      cells[id].note.textContent = note;
    }
    const steps = store.length;
    const cycle = cycleOf(store);
    cells.speedup.value.classList.toggle("slower", cycle !== null && cycle.gain < 1);
    const full = this.ways !== null && (!store.recorded || store.own) && wasFull(cycle, config.cost_aware);
    this.quick.hidden = !full;
    const pieces = gist({ method, step: here && here.total, tokens, steps, cycle, full, live: store.live });
    this.gist.replaceChildren(
      ...pieces.map(({ text: words, kind }) =>
        kind ? h("b", { class: kind.includes("slower") ? "slower" : null }, words) : words,
      ),
    );
    this.why.disabled = !steps || method === "autoregressive";
    if (!this.box.hidden) this.showWhy(cycle, tokens / Math.max(1, steps), this.thereCost());
    this.showStages();
  }

  /** What a step costs on the paper's H200; worked out again only when there are more steps. */
  thereCost() {
    const { store } = this;
    const known = `${store.key} ${store.length}`;
    if (known !== this.known) {
      this.known = known;
      this.price =
        store.seen.draft || store.seen.levels || store.header.method === "eagle3"
          ? meanCost(
              PAPER,
              store.header.method,
              store.summaries.map(({ work }) => work),
            )
          : null;
    }
    return this.price;
  }

  showStages() {
    const { seconds } = this.store.sums;
    const all = sum(Object.values(seconds));
    const share = (stage) => (all ? seconds[stage] / all : 0);
    for (const [stage, , segment] of this.segments) segment.style.flexGrow = share(stage).toFixed(4);
    const words = this.segments.map(([stage, name]) => `${name} ${percent(share(stage))}`);
    this.bar.setAttribute("aria-label", all ? words.join(", ") : "no stage times");
    this.bar.title = all ? words.join("\n") : "";
    const largest = this.segments.filter(([stage]) => share(stage) >= 0.1).sort((a, b) => share(b[0]) - share(a[0]));
    this.shares.textContent = largest
      .slice(0, 3)
      .map(([stage, name]) => `${name.toLowerCase()} ${percent(share(stage))}`)
      .join(" · ");
  }
}
