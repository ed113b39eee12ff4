// The figures of the race, one row per method.

import { cycleWords } from "../../assets/viewer/numbers.js";
import { h, number, whole } from "../../assets/viewer/dom.js";
import { fixed, methodName, STAGES } from "../../assets/viewer/words.js";

export function stageLegend() {
  const item = ([stage, name]) => h("li", {}, h("i", { class: `swatch ${stage}`, "aria-hidden": "true" }), name);
  return h("ul", { class: "legend", "aria-label": "Stages" }, ...STAGES.map(item));
}

export function raceTable(lanes, { plain, reference }) {
  const done = lanes.filter((lane) => lane.row && lane.total);
  const longest = Math.max(1e-9, ...done.map((lane) => stagesOf(lane).whole));
  const than = reference ? `as ${methodName(reference)}` : "";
  const heads = [
    ["Method"],
    ["Tokens/step α", "Mean acceptance length: committed tokens per step, including the one that the target adds"],
    ["Tokens/s", "Committed tokens over the time since the prompt was read"],
    ["Speedup", plain ? "Tokens per second over plain decoding in this race" : "Needs plain decoding in the race: tick it"],
    ["A step costs", plain ? "In steps of plain decoding: α over the speedup. A method that commits this many tokens per step breaks even here" : "Needs plain decoding in the race: tick it"],
    ["Nodes/step", "Tree nodes that the target checks in one pass, anchor included"],
    ["Same text", than ? `Token for token the same text ${than}` : ""],
    ["Time by stage, whole run"],
  ];
  return h(
    "table",
    {},
    h("caption", { class: "spoken" }, "Figures of the race"),
    h("thead", {}, h("tr", {}, ...heads.map(([name, title]) => h("th", { scope: "col", title: title || null }, name)))),
    h("tbody", {}, ...done.map((lane) => tableRow(lane, longest, reference))),
  );
}

export function stagesOf({ row }) {
  const seconds = row.stage_seconds && typeof row.stage_seconds === "object" ? row.stage_seconds : {};
  const parts = STAGES.map(([stage, name]) => [stage, name, number(seconds[stage], 0, 1e6, 0)]);
  const sum = parts.reduce((all, [, , t]) => all + t, 0);
  // what lies between the stages: bookkeeping of the loop itself
  const whole = Math.max(sum, number(row.seconds, 0, 1e6, 0));
  return { parts, whole, rest: whole - sum };
}

function tableRow(lane, longest, reference) {
  const { row } = lane;
  const figure = (value, digits, after = "") => {
    const n = number(value, 0, 1e9, null);
    return n === null ? "—" : n.toFixed(digits) + after;
  };
  const speed = number(row.tokens_per_second, 0, 1e9, 0);
  const cell = (name, words, kind) => h("td", { class: kind || null, "data-name": name }, words);
  const same = lane.method === reference && row.identical ? "reference" : row.identical === true ? "✓ yes" : row.identical === false ? `✕ no, from token ${whole(row.differs_at, 0, 1e6, 0) + 1}` : "—";
  return h(
    "tr",
    { "data-method": lane.method },
    h("th", { scope: "row", title: lane.sentence }, lane.name),
    cell("Tokens/step α", figure(row.mean_acceptance_length, 2)),
    cell("Tokens/s", figure(speed, speed < 100 ? 1 : 0)),
    cell("Speedup", figure(row.speedup, 2, "×")),
    cell("A step costs", costWords(row)),
    cell("Nodes/step", figure(row.nodes_per_step, 1)),
    cell("Same text", same, row.identical === false ? "differs" : "same"),
    h("td", { class: "stages" }, ...stageBar(lane, longest)),
  );
}

/** What a step of a lane cost, in plain steps. */
function costWords(row) {
  const [alpha, gain] = [number(row.mean_acceptance_length, 0, 1e6, null), number(row.speedup, 1e-9, 1e6, null)];
  return alpha === null || gain === null ? "—" : `${fixed(alpha / gain, 1)} plain`;
}

/** Why the lanes end in this order, in sentences: the fastest, and the one that brings the most tokens a step if that is another. */
export function whyWords(lanes) {
  const done = lanes.filter(({ row }) => row && number(row.speedup, 1e-9, 1e6, null) !== null && number(row.mean_acceptance_length, 0, 1e6, 0) > 1);
  if (!done.length) return "";
  const best = (of) => done.reduce((a, b) => (of(b.row) > of(a.row) ? b : a));
  const [fast, long] = [best((row) => row.speedup), best((row) => row.mean_acceptance_length)];
  const said = [...new Set([fast, long])].map(({ name, row }) => `${name}: ${cycleWords({ brought: row.mean_acceptance_length, gain: row.speedup, cost: row.mean_acceptance_length / row.speedup })}`);
  return said.join(" ");
}

/** A bar as long as the run, and its numbers. */
function stageBar(lane, longest) {
  const { parts, whole, rest } = stagesOf(lane);
  const ms = (t) => (t * 1000).toFixed(t < 0.01 ? 1 : 0);
  const segments = parts.map(([stage, name, t]) => {
    const segment = h("span", { class: `segment ${stage}`, title: `${name}: ${ms(t)} ms` });
    segment.style.width = ((100 * t) / longest).toFixed(3) + "%";
    return segment;
  });
  const words = [...parts, ["rest", "Rest", rest]].filter(([, , t]) => t >= 0.00005).map(([, name, t]) => `${name.toLowerCase()} ${ms(t)}`);
  return [h("span", { class: "rail", "aria-hidden": "true" }, ...segments), h("span", { class: "numbers" }, `${words.join(" · ")} ms; ${ms(whole)} in all`)];
}
