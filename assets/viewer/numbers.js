// Results of a run: the sentence of the last line, the clock of a step, and the totals.

import { STAGES, count, fixed, milliseconds, passes, percent, visible } from "./words.js";
import { button, emit, h, remember, remembered, sum, text } from "./dom.js";
import { h200, meanCost, partsOf } from "./machine.js";
import { judged } from "./store.js";

/**
 * The totals of a run in one line, and if it was slow, why and what would be quicker.
 *
 * cycle: the result of `cycleOf`
 * quickest: speedup of *quickest here* in an earlier run, null if unknown
 * elsewhere: speedup of the same steps with an 8B model on an H200, null if unknown
 */
export function gist(
  { header: { method, hardware }, sums: { tokens }, length, live, cut },
  cycle,
  quickest,
  elsewhere,
) {
  if (!length) return "";
  const state = live ? " so far" : cut ? " · the run was stopped early" : "";
  const run = `${count(tokens, "token")} in ${count(length, "pass")}${state}`;
  if (method === "autoregressive") return `${run}: written one by one`;
  if (!cycle || cycle.disturbed || cycle.gain >= 1) return run;
  const place = hardware?.device === "cpu" ? "this CPU" : "this machine";
  const others = [
    quickest === null ? "" : ` · “Quickest here”: ${timesWords(quickest)} in an earlier run`,
    elsewhere === null ? "" : ` · An 8B model on an H200: about ${timesWords(elsewhere, "")}`,
  ];
  return `${run} · On ${place}, a step costs ${passes(cycle.cost)}${others.join("")}`;
}

/** Whose run is drawn, whether the page chose the shown step (`chosen`), and the speed of the run, as pieces of text: the middle one is the
 *  important one. */
export function verdictOf({ header: { models, method }, length, live, recorded, own, opened }, cycle, chosen) {
  if (!length) return [];
  const model = text(models.preset || models.target);
  const origin = opened ? `opened from ${visible(opened, 40, " ")}` : recorded && !own ? "recorded" : "run here";
  const step = chosen && length > 1 ? " A step chosen to explain." : "";
  const whose = `${model && `${visible(model, 40, " ")}, `}${origin}.${step}`;
  if (!cycle || method === "autoregressive") return [whose];
  if (cycle.disturbed) return [`${whose} Its time was not measured cleanly: other work kept the machine busy.`];
  const run = live ? "The run so far is" : "The whole run was";
  const speed = timesWords(cycle.gain, "");
  return [`${whose} ${run} `, speed, `${timesWords(cycle.gain).slice(speed.length)}.`];
}

/** The line of `verdictOf`; empty while a stage is shown, and in a game. */
export function verdictView(host, store) {
  function show({ at, moving, secret }) {
    const cycle = cycleOf(store);
    const chosen = at === store.instructive && !store.live;
    const [whose = "", speed = "", than = ""] = moving || secret ? [] : verdictOf(store, cycle, chosen);
    host.replaceChildren(whose, speed && h("b", {}, speed), than);
  }

  return { uses: ["data", "at", "moving", "secret"], show };
}

/** A speed relative to plain decoding, in words; `than`: the name of plain decoding, or empty to leave it out. */
export function timesWords(gain, than = "one by one") {
  const times = fixed(gain < 1 ? 1 / gain : gain, 1);
  if (times === "1.0") return than ? `as fast as ${than}` : "as fast";
  const [speed, word] = gain < 1 ? ["slower", "than"] : ["as fast", "as"];
  return `${times} times ${speed}${than && ` ${word} ${than}`}`;
}

/** Seconds of the shown step (`own`) and of its tokens by plain decoding (`plain`), and the cost of its pass of the large model (`pass`)
 *  in one-token passes; null if a time is unknown or was disturbed. */
export function clockOf({ baseline, disturbed }, step) {
  const own = step ? sum(step.seconds) : 0;
  return own && baseline && !disturbed
    ? { own, plain: step.committed.length / baseline, pass: step.seconds.verify * baseline }
    : null;
}

/** The times of the step and of plain decoding, as two bars on one scale. */
export function clockView(host, store) {
  function show({ step, secret }) {
    const times = secret ? null : clockOf(store, step);
    host.classList.toggle("unknown", times === null);
    const { own, plain } = times ?? { own: 0, plain: 0 };
    const row = (name, kind, time, words) => {
      const width = ((100 * time) / (Math.max(own, plain) || 1)).toFixed(1);
      return [
        h("span.name", {}, name),
        h("span.rail", {}, h("span", { class: `time ${kind}`, style: `width: ${width}%;` })),
        h("span.value", {}, milliseconds(time) + words),
      ];
    };
    const even = timesWords(plain / own, "") === "as fast";
    host.replaceChildren(
      ...row("this step", "own", own, `, ${even ? "as fast" : own < plain ? "quicker" : "slower"}`),
      ...row("one by one", "plain", plain, ""),
    );
  }

  return { uses: ["step", "secret", "data"], show };
}

/** The mean step of a run: its `cost` in one-token passes, the `parts` of this cost by stage, the tokens it `brought`, and the
 *  speedup over plain decoding (`gain`); null if not timed. */
export function cycleOf(store) {
  const { timed, gain } = speedsOf(store);
  if (gain === null) return null;
  const { tokens, steps, seconds } = store.sums;
  const brought = tokens / steps;
  const cost = (brought * store.baseline) / timed;
  const all = sum(seconds);
  const parts = partsOf(seconds, all ? cost / all : 0);
  return { cost, brought, parts, gain, disturbed: store.disturbed };
}

/** The machine of a run: its name in a row, and a note. */
export function machineOf({ header, recorded, own }) {
  const { device, threads } = header.hardware ?? {};
  const here = !recorded || own;
  const names = { cpu: "a CPU", cuda: "a GPU" };
  const kind = device === "cpu" ? "CPU" : device && visible(device, 20, " ");
  const note = [here && kind, threads && count(threads, "thread"), !here && "recorded"];
  return { name: here ? "this machine" : (names[device] ?? "its machine"), note: note.filter(Boolean).join(", ") };
}

/** The work of the steps of a run; empty if its drafts are not known. */
export const worksOf = ({ header, seen, summaries }) =>
  !header.missing && (seen.draft || seen.levels || ["eagle3", "autoregressive"].includes(header.method))
    ? summaries.map(({ work }) => work)
    : [];

/** Whether a run with trees of a fixed size was slower than plain decoding, so that *quickest here* may help. `aware`: the run's setting
 *  `cost_aware`, undefined for imported runs. */
export const wasFixed = (cycle, aware) => cycle !== null && !cycle.disturbed && cycle.gain < 1 && aware === false;

const perSecond = (speed) => fixed(speed, speed >= 100 ? 0 : 1);

/** Tokens per second of a run: as recorded (`speed`), and without the time for drawing if that is known (`timed`); `gain`: speedup over
 *  plain decoding. Unknown values are null. */
function speedsOf({ sums, summaries, baseline, unwatched }) {
  const last = summaries.at(-1)?.elapsed ?? 0;
  const speed = last > 0 ? sums.tokens / last : null;
  const timed = unwatched || speed;
  return { speed, timed, gain: speed !== null && baseline ? timed / baseline : null };
}

/** The totals of a run, as pairs of name and value. */
export function totalsOf(store) {
  const { speed, timed } = speedsOf(store);
  const { tokens, steps, nodes, outcomes, gained, redrafts, seconds } = store.sums;
  const [cases, all] = [judged(store.sums), sum(seconds)];
  const stages = STAGES.map(([stage, name]) => ({ name: name.toLowerCase(), share: seconds[stage] / all }));
  const times = stages.filter(({ share }) => share >= 0.005).map(({ name, share }) => `${name} ${percent(share)}`);
  const drawing = store.unwatched ? `, ${perSecond(speed)} with drawing` : "";
  return [
    ["tokens a step, α", fixed(tokens / steps, 2)],
    [
      "tokens a second",
      speed
        ? `${perSecond(timed)}${drawing}${store.baseline ? `, ${perSecond(store.baseline)} one by one` : ""}`
        : "no times",
    ],
    ["tokens read a step", fixed(nodes / steps, 1)],
    [
      "rescued drafts",
      cases
        ? `${outcomes.repaired} of ${cases} partly rejected (${percent(outcomes.repaired / cases)})`
        : "none predicted",
    ],
    ["tokens per re-draft", redrafts ? `${fixed(gained / redrafts, 2)} (${gained} by ${redrafts})` : "no re-drafts"],
    ["time by stage", all ? times.join(" · ") : "no times"],
  ];
}

/** The last line of the view: the totals of the run; the button opens *When does it pay?* `server(event, data)` sends an event; null without a
 *  server. */
export function numbersView(host, store, state, server) {
  const result = h("p.gist", {});
  const why = button("When does it pay?", { class: "quiet why-open", ariaExpanded: false }, () =>
    state.set({ why: !state.now.why }),
  );
  const offer = (id, words, title, act) => button(words, { class: "offer", id, hidden: true, title }, act);
  const quickest = offer(
    "quickest",
    "Run quickest here",
    "Writes the same text, but drafts and verifies only as much as saves time on this machine",
    () => server("quickest", { quickest: true }),
  );
  const full = offer(
    "full-tree",
    "Full tree",
    "Runs the prompt again and verifies all drafted tokens, without the limit B",
    () => server("full", { full: true }),
  );
  const again = offer("again", "Again?", "Run the prompt again", () => emit(host, "explorer:begin"));
  const recording = h("b.recording", { hidden: true }, "Press Run to run the prompt here.");
  host.append(h("div.line", {}, recording, result, quickest, full, again, why));
  let [priced, price] = ["", null]; // a run with its number of steps, and their mean cost on an H200

  function show(scene) {
    const { header, sums, key, length, recorded, opened } = store;
    const { method, config } = header;
    why.ariaExpanded = scene.why;
    why.disabled = !length || method === "autoregressive";
    const cycle = cycleOf(store);
    const here = !recorded || store.own;
    const made = server !== null && here;
    const limited = config.node_budget && config.node_budget <= config.block_size && config.cost_aware === false;
    quickest.hidden = !(made && wasFixed(cycle, config.cost_aware));
    full.hidden = !(made && !store.live && limited && sums.most > config.node_budget);
    again.hidden = !(made && cycle?.disturbed);
    recording.hidden = here || opened || server === null;
    if (cycle && priced !== `${key} ${length}`) {
      priced = `${key} ${length}`;
      price = meanCost(h200(method), method, worksOf(store));
    }
    const elsewhere = cycle && price !== null ? sums.tokens / length / price : null;
    const quicker = made && cycle && !cycle.disturbed ? earlier(header, cycle) : null;
    result.textContent = gist(store, cycle, quicker, elsewhere);
  }

  return { uses: ["data", "why"], show };
}

/** The speedup of *quickest here* in the latest run of these models on this kind of device, from the browser's storage; null if unknown. */
function earlier({ models, hardware, config }, { gain }) {
  const key = `d2sd-quickest ${models.target} ${hardware?.device}`;
  if (config.cost_aware === true) remember(key, String(gain));
  return Number(remembered(key)) || null;
}
