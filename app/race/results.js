// Results of a race: a row of figures per method, the time axis, and what a step costs.

import { costRow } from "../../assets/viewer/bars.js";
import { best, h, sum, table } from "../../assets/viewer/dom.js";
import { term } from "../../assets/viewer/glossary.js";
import { partsOf } from "../../assets/viewer/machine.js";
import { timesWords } from "../../assets/viewer/numbers.js";
import { STAGES, capital, fixed } from "../../assets/viewer/words.js";

const NOT_CLEAN = "Not measured cleanly: other work kept this machine busy";
const NEEDS_PLAIN = "To know this, tick “One by one” in ⋯ and race again";

/** A row of figures for every lane; `plain`: whether one by one took part; `reference`: the lane with which texts are compared. */
export function raceTable(lanes, { plain, reference }) {
  const than = (words) => (plain ? words : NEEDS_PLAIN);
  const heads = [
    ["Method", ""],
    ["Tokens/step α", "Mean acceptance length: tokens written per step, the large model’s own included"],
    ["Tokens/s", "Tokens written, divided by the time since the prompt was read"],
    ["Speedup", than("Tokens per second relative to one by one in this race")],
    ["One-token passes", than("The cost of a step: α divided by the speedup. Drafting pays if α is larger")],
    ["Nodes/step", "Tree nodes that the large model checks in one pass, including the anchor"],
    ["Same text", reference && `Whether all tokens of the text are the same as with ${reference}`],
  ];
  const drawn = table(
    heads.map(([name, title]) => (title ? term(name, name, title) : name)),
    lanes.filter(isDone).map((lane) => tableRow(lane, reference)),
  );
  drawn.prepend(h("caption.spoken", {}, "Figures of the race"));
  return drawn;
}

/** The seconds of a lane (`whole`), and those between the stages (`rest`): the loop's bookkeeping. */
export function timesOf({ row: { seconds, stage_seconds: stages } }) {
  const measured = sum(stages);
  const whole = Math.max(measured, seconds);
  return { stages, whole, rest: whole - measured };
}

function tableRow(lane, reference) {
  const { row } = lane;
  const doubt = disturbed(lane);
  const same = { true: ["✓", `The same as ${reference}`], false: ["✕", `Differs from token ${row.differs_at + 1} on`] };
  const [mark, words] =
    lane.name === reference
      ? ["—", "The other texts are compared with this one"]
      : (same[row.identical] ?? ["—", null]);
  const cells = [
    ["Tokens/step α", row.mean_acceptance_length.toFixed(2)],
    ...timedWords(lane).map(([name, time]) => [name, time, doubt && "doubted", doubt ? NOT_CLEAN : stageWords(lane)]),
    ["Nodes/step", row.nodes_per_step.toFixed(1)],
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
  const { stages, whole, rest } = timesOf(lane);
  if (!whole) return null;
  const ms = (t) => (t * 1000).toFixed(t < 0.01 ? 1 : 0);
  const words = [...STAGES.map(([stage, name]) => [name, stages[stage]]), ["Rest", rest]]
    .filter(([, t]) => t >= 0.00005)
    .map(([name, t]) => `${name.toLowerCase()} ${ms(t)}`);
  return `${capital(words.join(" · "))} ms; ${ms(whole)} ms in total`;
}

/** Whether a lane has figures: not before its method has run. */
const isDone = ({ row, total }) => Boolean(row && total);

/** Whether other work disturbed the times of a lane. Disturbed times are not compared. */
const disturbed = ({ row }) => row.disturbed;

/** The speedup of a lane; null if unknown or disturbed. */
const gainOf = ({ row }) => (row.disturbed ? null : row.speedup);

/** The figures that depend on the times of a lane, as pairs of column and text. */
export function timedWords(lane) {
  const { tokens_per_second: speed, mean_acceptance_length: alpha } = lane.row;
  const gain = gainOf(lane);
  return [
    ["Tokens/s", speed ? speed.toFixed(speed < 100 ? 1 : 0) : "—"],
    ["Speedup", gain === null ? "—" : `${gain.toFixed(2)}×`],
    ["One-token passes", gain === null ? "—" : fixed(alpha / gain, 1)],
  ];
}

/** The lanes that draft and whose speedup is known. */
const compared = (lanes) =>
  lanes.filter((lane) => isDone(lane) && lane.method !== "autoregressive" && gainOf(lane) !== null);

/** The mean time of a step, in milliseconds. */
export const paceOf = ({ end, steps }) => fixed((1000 * end) / steps.length, 1);

/** The title of a race without a comparison. `planned`: number of its methods, some of which may not have run to the end. */
export const aloneWords = (planned) =>
  planned > 1 ? "Too few methods ran to compare." : "Tick a second method in ⋯ to compare.";

/** The result of a race: a `title`, and `more` about the steps. Both are empty if no lane with drafts was timed. */
export function resultWords(lanes) {
  const done = lanes.filter(isDone);
  if (done.some(disturbed))
    return { title: "Not measured cleanly.", more: "Other work kept this machine busy. Run the race again." };
  const timed = compared(lanes);
  if (!timed.length) return { title: "", more: "" };
  const here = best(timed, gainOf);
  const first = done.find(({ row }) => row.place === 1) ?? (gainOf(here) > 1 ? here : null); // as the lanes name the places
  const won = timed.includes(first);
  const named = won ? first : here;
  const gain = gainOf(named);
  // places are by time, speeds by tokens per second: if the texts have other lengths, they may disagree
  const speed = won === gain >= 1 ? `: ${timesWords(gain)}` : "";
  const least = best([named, ...timed], ({ steps }) => -steps.length); // the first of equals
  return {
    title: won
      ? `${named.name} was fastest${speed}.`
      : `One by one was fastest${speed && `; closest was ${named.name}${speed}`}.`,
    more:
      least === first
        ? `It also needed the fewest steps, ${least.steps.length}.`
        : `${least.name} needed the fewest steps, ${least.steps.length}${least === named ? "" : `, but each took ${paceOf(least)} ms instead of ${paceOf(named)}`}.`,
  };
}

/** What the same steps would gain with an 8B model on an H200, for the method that would gain most; empty if none would. */
export function elsewhereWords(lanes) {
  const there = ({ row }) => (row.there === null ? 0 : row.mean_acceptance_length / row.there);
  const full = compared(lanes).filter(({ method }) => !method.includes(" ")); // "quickest here" depends on the machine
  const fastest = full.length ? best(full, there) : null;
  return fastest && there(fastest) > 1
    ? `With an 8B model on an H200, ${fastest.name} would be about ${timesWords(there(fastest), "one by one there")}.`
    : "";
}

/** Rows of bars, one per lane that drafts: the cost of its mean step by stage, in one-token passes, and the tokens that it brings. */
export function costRows(lanes) {
  return compared(lanes).map((lane) => {
    const { mean_acceptance_length: brought, there } = lane.row;
    const { stages, whole, rest } = timesOf(lane);
    const scale = whole ? brought / gainOf(lane) / whole : 0;
    const row = costRow(lane.name, `${fixed(brought, 1)} tokens a step`, partsOf(stages, scale, rest), brought);
    return { ...row, words: [row.words[0], ...(there ? [`on an H200: ${fixed(there, 1)}`] : [])] };
  });
}

/** Round times for the ticks of an axis. */
export function timeTicks(longest) {
  const power = 10 ** Math.floor(Math.log10(longest / 6));
  const step = [1, 2, 5, 10].map((n) => n * power).find((size) => longest / size <= 6);
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
  return h("div.track.axis", { ariaHidden: true }, h("span", {}), h("span.ticks", {}, ...ticks), h("span", {}));
}
