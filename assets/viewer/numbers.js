// Results of a run: one sentence, the totals, and the reasons for its speed.

import { OUTCOMES, STAGES, count, fixed, methodName, milliseconds, percent, visible } from "./words.js";
import { button, h, remember, remembered, sum } from "./dom.js";
import { term, withTerms } from "./glossary.js";
import { PAPER } from "./constants.js";
import { BreakEvenMap, meanCost, originWords } from "./machine.js";
import { judged } from "./store.js";

/**
 * The result of a run in one line, as pieces of text; kind "b" marks an important number.
 *
 * cycle: the result of `cycleOf`
 * live: whether more steps will come
 * cut: whether the run stopped before its end
 * place: the machine, in words
 * quickest: speedup of *quickest here* in an earlier run, null if unknown
 * elsewhere: speedup of the same steps on the paper's machine, null if unknown
 */
export function gist({
  method,
  tokens,
  steps,
  cycle,
  live,
  cut = false,
  place = "this machine",
  quickest = null,
  elsewhere = null,
}) {
  if (!steps) return [];
  const t = (text) => ({ text });
  const run = `${count(tokens, "token")} in ${steps} ${steps === 1 ? "pass" : "passes"}${live ? " so far" : cut ? " · the run was stopped early" : ""}`;
  if (method === "autoregressive") return [t(`${run}: plain decoding writes one token per pass`)];
  if (!cycle) return [t(run)];
  if (cycle.disturbed) return [t(`${run} · not measured cleanly: other work kept this machine busy`)];
  const { gain, cost } = cycle;
  const speed = { text: timesWords(gain), kind: gain < 1 ? "b slower" : "b" };
  if (gain >= 1) return [t(`${run} · `), speed];
  const others = [
    quickest === null ? "" : ` · “Quickest here”: ${timesWords(quickest)} in an earlier run`,
    elsewhere === null ? "" : ` · An 8B model on an H200: about ${timesWords(elsewhere, "")}`,
  ];
  return [t(`${run} · `), speed, t(` on ${place}, where a step costs ${fixed(cost, 1)} passes${others.join("")}`)];
}

/** A speed relative to plain decoding, in words; `than`: the name of plain decoding, or empty to leave it out. */
export function timesWords(gain, than = "one by one") {
  const times = fixed(gain < 1 ? 1 / gain : gain, 1);
  if (times === "1.0") return than ? `as fast as ${than}` : "as fast";
  const [speed, word] = gain < 1 ? ["slower", "than"] : ["as fast", "as"];
  return `${times} times ${speed}${than && ` ${word} ${than}`}`;
}

/** Seconds of the shown step (`own`) and of its tokens by plain decoding (`plain`), and the cost of its pass of the large model (`pass`)
 *  in passes over one token; null if a time is unknown or was disturbed. */
export function clockOf({ baseline, disturbed }, step) {
  const own = step ? sum(Object.values(step.seconds)) : 0;
  return own && baseline && !disturbed
    ? { own, plain: step.committed.length / baseline, pass: step.seconds.verify * baseline }
    : null;
}

/** The times of the step and of plain decoding, as two bars on one scale. */
export class ClockView {
  uses = ["step", "secret", "data"];

  constructor(host, store) {
    Object.assign(this, { host, store });
    const row = (name, kind) => {
      const made = { bar: h("span", { class: `time ${kind}` }), value: h("span", { class: "value" }) };
      host.append(h("span", { class: "name" }, name), h("span", { class: "rail" }, made.bar), made.value);
      return made;
    };
    this.rows = { own: row("this step", "own"), plain: row("one by one", "plain") };
  }

  show({ step, secret }) {
    const times = secret ? null : clockOf(this.store, step);
    this.host.classList.toggle("unknown", times === null);
    const { own, plain } = times ?? { own: 0, plain: 0 };
    for (const [name, time] of Object.entries({ own, plain })) {
      const { bar, value } = this.rows[name];
      bar.style.width = `${((100 * time) / (Math.max(own, plain) || 1)).toFixed(1)}%`;
      value.textContent = milliseconds(time) + (name === "own" ? `, ${own < plain ? "quicker" : "slower"}` : "");
    }
  }
}

/** The mean step of a run: its `cost` in plain steps, the `parts` of this cost by stage, the tokens it `brought`, and the speedup over
 *  plain decoding (`gain`); null if not timed. */
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

/** When, and with how much context, the time of a plain pass was measured; empty if the run does not record it. */
const plainWords = ({ measured, context }) =>
  measured
    ? `The time of a plain pass was measured for these models on this machine on ${measured}${context === null ? "" : `, with ${count(context, "token")} of context`}.`
    : "";

/** The result of `cycleOf` in a sentence. */
export function cycleWords({ cost, brought, gain, disturbed = false }) {
  const end = disturbed
    ? `; the times were ${DISTURBED}: run the prompt again`
    : `, so drafting was ${fixed(gain, 2)}× as fast as plain decoding`;
  return `A step took as long as ${fixed(cost, 1)} plain steps and brought ${fixed(brought, 1)} tokens${end}.`;
}

/** Whether a run with trees of a fixed size was slower than plain decoding, so that *quickest here* may help. `aware`: the run's setting
 *  `cost_aware`, undefined for imported runs. */
export const wasFixed = (cycle, aware) => cycle !== null && !cycle.disturbed && cycle.gain < 1 && aware === false;

/** The speed of the same steps on the paper's H200. `cost`: cost of a step there, null if unknown; `brought`: tokens per step. */
export function elsewhereWords(method, cost, brought) {
  if (cost === null) return `The drafting time of this method with an 8B model on ${PAPER.name} is not known.`;
  return `With an 8B model on ${PAPER.name} such a step would cost ${fixed(cost, 2)} plain steps (${originWords(method, cost)}), so the same ${fixed(brought, 1)} tokens would be written ${fixed(brought / cost, 2)}× as fast as by plain decoding.`;
}

/** Two bars on one scale: the cost of a step, by stage, and its tokens. */
function cycleBars(cycle) {
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

const QUICKEST = "“Quickest here” drafts and verifies only as much as saves time.";

const CARDS = [
  [
    "alpha",
    "Tokens/step α",
    "mean acceptance length over all steps: committed tokens per step, including the bonus token",
  ],
  [
    "speed",
    "Tokens per second",
    "committed tokens of this run divided by the time since the prompt was read. This includes the time for drawing, which the speedup leaves out",
  ],
  [
    "speedup",
    "Speedup",
    "tokens per second relative to plain decoding with the same target, without the time for drawing. The time of a plain step is stored for these models on this machine. Below 1×, a step takes longer than plain decoding of its tokens: “quickest here” or fewer nodes B may help",
  ],
  ["nodes", "Mean nodes/step", "tree nodes that the target checks in one pass, anchor included; mean over the steps"],
  [
    "repaired",
    "Repaired drafts",
    "of the steps whose first draft was partly rejected, the share in which a re-draft started exactly at the boundary and added tokens",
  ],
  ["gain", "Gained per re-draft", "tokens added by re-drafts, divided by the number of re-drafts"],
];

const perSecond = (speed) => fixed(speed, speed >= 100 ? 0 : 1);

/** Tokens per second of a run: as recorded (`speed`), and without the time for drawing if that is known (`timed`); `gain`: speedup over
 *  plain decoding. Unknown values are null. */
function speedsOf({ sums, summaries, length, baseline, unwatched }) {
  const last = length ? summaries[length - 1].elapsed : 0;
  const speed = last > 0 ? sums.tokens / last : null;
  const timed = unwatched || speed;
  return { last, speed, timed, gain: speed !== null && baseline ? timed / baseline : null };
}

/** The totals of a run: a value and a note for every card. `here`: summary of the shown step, or null. */
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
      ? "with drawing"
      : `${count(tokens, "token")} in ${last.toFixed(last < 10 ? 2 : 0)} s`;
  const unmeasured =
    store.header.method === "autoregressive" ? "nothing is drafted" : store.live ? "not measured yet" : "not measured";
  const measured = () =>
    unwatched
      ? `without drawing ${perSecond(timed)}, plain ${perSecond(baseline)}`
      : `${perSecond(timed)} vs ${perSecond(baseline)} plain`;
  const slow = store.disturbed
    ? "not measured cleanly"
    : gain !== null && gain < 1
      ? `a step = ${(tokens / steps / gain).toFixed(1)} plain steps`
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
    speedup: [
      gain === null || store.disturbed ? "—" : `${fixed(gain, 2)}×`,
      slow || (baseline && timed ? measured() : unmeasured),
    ],
    nodes: [mean(nodes, 1), ofStep((step) => step.nodes)],
    repaired: [
      cases ? percent(outcomes.repaired / cases) : "—",
      verdict ? ofStep(() => `${verdict.mark} ${verdict.words}`) : predicted,
    ],
    gain: [
      redrafts ? fixed(gained / redrafts, 2) : "—",
      redrafts ? ofStep((step) => `${step.gained} by ${step.redrafts}`) || `${gained} by ${redrafts}` : "no re-drafts",
    ],
  };
}

/** The last line of the view: the result of the run; “why?” opens the reasons for its speed and all totals. */
export class NumbersView {
  uses = ["data", "at", "secret", "why"];

  /** `ways`: null without a server, else functions: `quickest()` runs the form's prompt as *quickest here*, `full()` with the full tree,
   *  `again()` unchanged, and `turn()` opens the sliders for K and γ. `words()`: the run in words. */
  constructor(host, store, state, ways, words) {
    Object.assign(this, { host, store, ways, words, cells: {} });
    this.gist = h("p", { class: "gist" });
    this.cards = h("dl", { class: "cards", "aria-label": "Totals" });
    for (const [id, name, title] of CARDS) {
      const cell = { value: h("dd", { class: "value" }), note: h("dd", { class: "note" }) };
      this.cells[id] = cell;
      this.cards.append(
        h("div", { class: "stat", "data-stat": id }, h("dt", {}, term(name, name, title)), cell.value, cell.note),
      );
    }
    this.segments = STAGES.map(([stage, name]) => [stage, name, h("span", { class: `segment ${stage}` })]);
    this.bar = h("div", { class: "stack", role: "img" }, ...this.segments.map(([, , segment]) => segment));
    this.shares = h("dd", { class: "note" });
    this.cards.append(
      h(
        "div",
        { class: "stat wide", "data-stat": "stages" },
        h("dt", {}, "Time by stage"),
        h("dd", {}, this.bar),
        this.shares,
      ),
    );
    this.map = new BreakEvenMap();
    this.ran = h("p", { id: "run-label", dir: "auto" });
    this.reasons = h("div", {});
    this.there = h("p", { class: "there" });
    const source = h("p", { class: "source" }, PAPER.source);
    const change = ways && button("Change K and γ →", { class: "offer" }, ways.turn);
    this.ofHere = [change, this.there, source, this.map.box].filter(Boolean); // hidden for the log of an external server
    this.box = h(
      "div",
      { class: "why", role: "note", hidden: true },
      this.ran,
      h("div", {}, this.reasons, change, this.there, source),
      this.map.box,
      this.cards,
    );
    this.why = button(
      "why?",
      {
        class: "quiet why-open",
        title: "What a step costs, when drafting pays off, and all totals",
        "aria-expanded": "false",
      },
      () => state.set({ why: !state.now.why }),
    );
    this.quick = button(
      "Run quickest here",
      {
        class: "offer",
        id: "quickest",
        hidden: true,
        title: "Writes the same text, but drafts and verifies only as much as saves time on this machine",
      },
      ways?.quickest,
    );
    this.full = button(
      "Full tree",
      {
        class: "offer",
        id: "full-tree",
        hidden: true,
        title: "Runs the prompt again and verifies all drafted tokens, without the limit B",
      },
      ways?.full,
    );
    this.again = button(
      "Again?",
      { class: "offer", id: "again", hidden: true, title: "Run the prompt again" },
      ways?.again,
    );
    this.recording = h("b", { class: "recording", hidden: true });
    this.line = h("div", { class: "line" }, this.recording, this.gist, this.quick, this.full, this.again, this.why);
    host.append(this.line, this.box);
    host.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.box.hidden) return;
      event.stopPropagation();
      state.set({ why: false });
      this.why.focus();
    });
  }

  showWhy(cycle, alpha, there) {
    const { method, config, missing } = this.store.header;
    for (const part of this.ofHere) part.hidden = Boolean(missing);
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
      ` = ${fixed(alpha, 2)} tokens per step`,
      ...(even ? ["; drafting would ", term("break even"), ` ${even}`] : []),
      this.store.opening.length ? ". The pass over the prompt wrote one token more." : ".",
    );
    const plain = plainWords(this.store);
    const { timed } = speedsOf(this.store);
    this.reasons.replaceChildren(
      ...(cycle && !cycle.disturbed
        ? [
            h("b", {}, cycle.gain < 1 ? "Why slower here" : "Why faster here"),
            h("p", {}, `${cycleWords(cycle)} ${wasFixed(cycle, config.cost_aware) ? QUICKEST : ""}`),
            cycleBars(cycle),
          ]
        : [
            h("b", {}, "What a step costs"),
            h(
              "p",
              {},
              cycle
                ? "Other work kept this machine busy during this run, so the run’s times are not compared with plain decoding."
                : missing && timed
                  ? `A step takes ${milliseconds(alpha / timed)} and commits ${fixed(alpha, 2)} tokens: drafting pays only if plain decoding takes more than ${milliseconds(1 / timed)} per token.`
                  : "The time of plain decoding is not known for this run, so the cost of a step cannot be given in plain steps.",
            ),
          ]),
      ...(plain ? [h("p", { class: "source" }, plain)] : []),
      price,
    );
    this.there.textContent = elsewhereWords(method, there, alpha);
    this.map.show([{ name: methodName(method), alpha, here: cycle && !cycle.disturbed && cycle.cost, there }]);
  }

  show({ at, secret, why }) {
    const { store, cells, ways } = this;
    const { tokens } = store.sums;
    const { method, config } = store.header;
    const here = secret || at === null ? null : store.summaries[at];
    this.box.hidden = !why;
    this.why.setAttribute("aria-expanded", why);
    for (const [id, [value, note]] of Object.entries(figuresOf(store, here))) {
      cells[id].value.textContent = value;
      cells[id].note.textContent = note;
    }
    const steps = store.length;
    const cycle = cycleOf(store);
    const alpha = tokens / Math.max(1, steps);
    const there = cycle || why ? this.thereCost() : null;
    cells.speedup.value.classList.toggle("slower", cycle !== null && cycle.gain < 1);
    const made = ways !== null && (!store.recorded || store.own);
    this.quick.hidden = !(made && wasFixed(cycle, config.cost_aware));
    const limited = config.node_budget && config.node_budget <= config.block_size && config.cost_aware === false;
    this.full.hidden = !(made && !store.live && limited && store.sums.most > config.node_budget);
    this.again.hidden = !(made && cycle?.disturbed);
    this.recording.hidden = !store.recorded || store.own;
    this.recording.textContent = store.opened
      ? `Opened from ${visible(store.opened, 40, " ")}.`
      : ways
        ? "A recording. Press Run to run the prompt here."
        : "A recording.";
    const pieces = gist({
      method,
      tokens,
      steps,
      cycle,
      live: store.live,
      cut: store.cut,
      place: store.header.hardware?.device === "cpu" ? "this CPU" : "this machine",
      quickest: this.quickest(cycle),
      elsewhere: there === null ? null : alpha / there,
    });
    this.gist.replaceChildren(
      ...pieces.map(({ text: words, kind }) =>
        kind ? h("b", { class: kind.includes("slower") ? "slower" : null }, words) : words,
      ),
    );
    this.why.disabled = !steps || method === "autoregressive";
    if (why) this.showWhy(cycle, alpha, there);
    const ran = this.words();
    if (this.ran.textContent !== ran) this.ran.replaceChildren(...withTerms(ran));
    this.showStages();
  }

  /** The speedup of *quickest here* in the latest run of these models on this kind of device, from the browser's storage; null if unknown. */
  quickest(cycle) {
    const { header, recorded, own } = this.store;
    if (!this.ways || (recorded && !own) || !cycle || cycle.disturbed) return null;
    const key = `d2sd-quickest ${header.models.target} ${header.hardware?.device}`;
    if (header.config.cost_aware === true) remember(key, String(cycle.gain));
    return Number(remembered(key)) || null;
  }

  /** The mean cost of a step on the paper's H200; computed again only after new steps. */
  thereCost() {
    const { store } = this;
    const known = `${store.key} ${store.length}`;
    if (known !== this.known) {
      this.known = known;
      this.price =
        !store.header.missing && (store.seen.draft || store.seen.levels || store.header.method === "eagle3")
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
