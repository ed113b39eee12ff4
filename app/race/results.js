// Results of a race: a row of figures per method, the time axis, and what a step costs.

import { costRow, passes } from "../../assets/viewer/bars.js";
import { h, number, sum, whole } from "../../assets/viewer/dom.js";
import { term } from "../../assets/viewer/glossary.js";
import { partsOf } from "../../assets/viewer/machine.js";
import { timesWords } from "../../assets/viewer/numbers.js";
import { STAGES, capital, fixed } from "../../assets/viewer/words.js";

const NOT_CLEAN = "Not measured cleanly: other work kept this machine busy";
const NEEDS_PLAIN = "Only known if plain decoding takes part in the race: tick it in ⋯ and race again";

/** A row of figures for every lane; `plain`: whether plain decoding took part; `reference`: the lane with which texts are compared. */
export function raceTable(lanes, { plain, reference }) {
  const than = (words) => (plain ? words : NEEDS_PLAIN);
  const heads = [
    ["Method", ""],
    [
      "Tokens/step α",
      "Mean acceptance length: committed tokens per step, including the token that the large model adds",
    ],
    ["Tokens/s", "Committed tokens divided by the time since the prompt was read"],
    ["Speedup", than("Tokens per second relative to plain decoding in this race")],
    [
      "A step costs",
      than(
        "The time of a step, in one-token passes of plain decoding: α divided by the speedup. Drafting pays if α is larger than this cost",
      ),
    ],
    ["Nodes/step", "Tree nodes that the large model checks in one pass, including the anchor"],
    ["Same text", reference && `Whether all tokens of the text are the same as with ${reference}`],
  ];
  const th = ([name, title]) => h("th", { scope: "col" }, title ? term(name, name, title) : name);
  return h(
    "table",
    {},
    h("caption", { class: "spoken" }, "Figures of the race"),
    h("thead", {}, h("tr", {}, ...heads.map(th))),
    h("tbody", {}, ...lanes.filter((lane) => lane.row && lane.total).map((lane) => tableRow(lane, reference))),
  );
}

export function stagesOf({ row }) {
  const seconds = row.stage_seconds && typeof row.stage_seconds === "object" ? row.stage_seconds : {};
  const parts = STAGES.map(([stage, name]) => [stage, name, number(seconds[stage], 0, 1e6, 0)]);
  const measured = sum(parts.map(([, , t]) => t));
  // the rest is the loop's bookkeeping between the stages
  const whole = Math.max(measured, number(row.seconds, 0, 1e6, 0));
  return { parts, whole, rest: whole - measured };
}

function tableRow(lane, reference) {
  const { row } = lane;
  const doubt = disturbed(lane);
  const same = {
    true: ["✓", `The same as ${reference}`],
    false: ["✕", `Differs from token ${whole(row.differs_at, 0, 1e6, 0) + 1} on`],
  };
  const [mark, words] =
    lane.name === reference
      ? ["—", "The other texts are compared with this one"]
      : (same[row.identical] ?? ["—", null]);
  const cells = [
    ["Tokens/step α", figure(row.mean_acceptance_length, 2)],
    ...timedWords(lane).map(([name, time]) => [name, time, doubt && "doubted", doubt ? NOT_CLEAN : stageWords(lane)]),
    ["Nodes/step", figure(row.nodes_per_step, 1)],
    ["Same text", mark, row.identical === false ? "differs" : "same", words],
  ];
  return h(
    "tr",
    { "data-method": lane.method },
    h("th", { scope: "row", title: lane.sentence }, lane.name),
    ...cells.map(([name, value, kind, title]) => h("td", { "data-name": name, class: kind, title }, value)),
  );
}

/** The times of the run's stages. */
function stageWords(lane) {
  const { parts, whole, rest } = stagesOf(lane);
  if (!whole) return null;
  const ms = (t) => (t * 1000).toFixed(t < 0.01 ? 1 : 0);
  const words = [...parts, ["rest", "Rest", rest]]
    .filter(([, , t]) => t >= 0.00005)
    .map(([, name, t]) => `${name.toLowerCase()} ${ms(t)}`);
  return `${capital(words.join(" · "))} ms; ${ms(whole)} ms in total`;
}

function figure(value, digits, after = "") {
  const n = number(value, 0, 1e9, null);
  return n === null ? "—" : n.toFixed(digits) + after;
}

/** Whether other work disturbed the times of a lane. Disturbed times are not compared. */
const disturbed = ({ row }) => row?.disturbed === true;

const gainOf = (lane) => (disturbed(lane) ? null : number(lane.row.speedup, 1e-9, 1e6, null));

/** The figures that depend on the times of a lane, as pairs of column and text. */
export function timedWords(lane) {
  const { row } = lane;
  const speed = number(row.tokens_per_second, 0, 1e9, 0);
  const [alpha, gain] = [number(row.mean_acceptance_length, 0, 1e6, null), gainOf(lane)];
  return [
    ["Tokens/s", speed ? figure(speed, speed < 100 ? 1 : 0) : "—"],
    ["Speedup", disturbed(lane) ? "—" : figure(row.speedup, 2, "×")],
    ["A step costs", alpha === null || gain === null ? "—" : passes(alpha / gain)],
  ];
}

const draftedFast = (lanes) =>
  lanes.filter((lane) => lane.row && lane.total && lane.method !== "autoregressive" && gainOf(lane) !== null);
const best = (among, of) => among.reduce((a, b) => (of(b) > of(a) ? b : a));

/** The result of a race: a `title`, and `more` about the steps. Both are empty if no lane with drafts was timed. */
export function resultWords(lanes) {
  const done = lanes.filter((lane) => lane.row && lane.total);
  if (done.some(disturbed))
    return { title: "Not measured cleanly.", more: "Other work kept this machine busy. Run the race again." };
  const timed = draftedFast(lanes);
  if (!timed.length) return { title: "", more: "" };
  const here = best(timed, gainOf);
  const first = done.find(({ row }) => row.place === 1) ?? (gainOf(here) > 1 ? here : null); // as the lanes name the places
  const won = timed.includes(first);
  const named = won ? first : here;
  const gain = gainOf(named);
  // places are by time, speeds by tokens per second: if the texts have other lengths, they may disagree
  const speed = won === gain >= 1 ? `: ${timesWords(gain, "plain decoding")}` : "";
  const least = best([named, ...timed], ({ steps }) => -steps.length); // the first of equals
  const pace = ({ end, steps }) => fixed((1000 * end) / steps.length, 1);
  return {
    title: won
      ? `${named.name} was fastest${speed}.`
      : `Plain decoding was fastest${speed && `; closest was ${named.name}${speed}`}.`,
    more:
      least === first
        ? `It also needed the fewest steps, ${least.steps.length}.`
        : `${least.name} needed the fewest steps, ${least.steps.length}${least === named ? "" : `, but each took ${pace(least)} ms instead of ${pace(named)}`}.`,
  };
}

/** What the same steps would gain with an 8B model on an H200, for the method that would gain most; empty if none would. */
export function elsewhereWords(lanes) {
  const there = ({ row }) => number(row.mean_acceptance_length, 0, 1e6, 0) / number(row.there, 1e-9, 1e6, Infinity);
  const full = draftedFast(lanes).filter(({ method }) => !method.includes(" ")); // "quickest here" depends on the machine
  const far = full.length ? best(full, there) : null;
  return far && there(far) > 1
    ? `With an 8B model on an H200, ${far.name} would be about ${timesWords(there(far), "plain decoding there")}.`
    : "";
}

/** Rows of bars, one per lane that drafts: the cost of its mean step by stage, in passes over one token, and the tokens that it brings. */
export function costRows(lanes) {
  const drafted = lanes.filter((lane) => lane.row && lane.method !== "autoregressive" && lane.total && gainOf(lane));
  return drafted.map((lane) => {
    const [brought, there] = [
      number(lane.row.mean_acceptance_length, 0, 1e6, 0),
      number(lane.row.there, 1e-9, 1e6, null),
    ];
    const { parts, whole, rest } = stagesOf(lane);
    const scale = whole ? brought / gainOf(lane) / whole : 0;
    const costs = partsOf(Object.fromEntries(parts.map(([stage, , t]) => [stage, t])), scale, rest);
    const row = costRow(lane.name, `${fixed(brought, 1)} tokens a step`, costs, brought);
    return { ...row, words: [row.words[0], ...(there ? [`on an H200: ${passes(there)}`] : [])] };
  });
}

/** Round times for the ticks of an axis. */
export function timeTicks(longest) {
  const step =
    [1, 2, 5]
      .flatMap((n) => [-4, -3, -2, -1, 0, 1, 2, 3].map((e) => n * 10 ** e))
      .sort((a, b) => a - b)
      .find((s) => longest / s <= 6) || longest;
  return Array.from({ length: Math.floor(longest / step + 1e-9) + 1 }, (_, at) => at * step);
}

/** The time axis below the lanes; `longest`: its length in seconds. */
export function timeAxis(longest) {
  const [scale, unit] = longest < 1 ? [1000, " ms"] : [1, " s"];
  const ticks = timeTicks(longest).map((t) =>
    h(
      "i",
      { style: `left:${((100 * t) / Math.max(1e-9, longest)).toFixed(2)}%` },
      `${Number((t * scale).toPrecision(6))}${t ? unit : ""}`,
    ),
  );
  return h(
    "div",
    { class: "track axis", "aria-hidden": "true" },
    h("span", {}),
    h("span", { class: "ticks" }, ...ticks),
    h("span", {}),
  );
}
