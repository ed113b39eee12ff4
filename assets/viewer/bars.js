// Rows of bars on one scale: what steps cost, by stage, in one-token passes, and the tokens that they bring.

import { h, sum } from "./dom.js";
import { timesWords } from "./numbers.js";
import { fixed, quoted, visible } from "./words.js";

/** Parts of the cost of a step: stage and name. */
const PARTS = [
  ["first_draft", "draft"],
  ["second_draft", "re-draft"],
  ["verify", "verify"],
  ["rest", "rest"],
];
const LEAST = 0.05; // passes; smaller parts are not named

/** The result of a step, from its tokens and its cost: one-token passes saved or lost. */
export function savedWords(brought, cost) {
  const saved = Number(fixed(brought, 1)) - Number(fixed(cost, 1)); // of the numbers as shown
  const most = fixed(Math.abs(saved), 1);
  return most === "0.0" ? "breaks even" : `${most} ${saved > 0 ? "saved" : "lost"}`;
}

/** A row for `barRows`: the parts of the cost of a step that brings `brought` tokens. */
export function costRow(name, note, parts, brought) {
  const cost = sum(parts);
  const words = [savedWords(brought, cost), timesWords(brought / cost, "")];
  return { name, note, parts, brought, total: fixed(cost, 1), words };
}

/**
 * The rows as elements.
 *
 * `rows`: `name` and `note`; `parts`: costs by stage, or null; `tokens`: texts of tokens that cost a pass each, instead of parts; `total`,
 * and lines of `words`: text at the end of the row; `brought`: tokens of a step, marked in the row.
 */
export function barRows(rows) {
  const most = 1.02 * Math.max(1, ...rows.map(({ brought }) => brought), ...rows.map(({ parts }) => sum(parts ?? {})));
  const width = (value) => `width:${((100 * value) / most).toFixed(2)}%`;
  const bar = ({ parts, tokens }) =>
    tokens
      ? tokens.map((token) =>
          h("span.one", { style: width(1), title: quoted(token) }, h("i", {}, visible(token.trim() || token, 16))),
        )
      : PARTS.filter(([stage]) => parts?.[stage]).map(([stage, name]) =>
          h("span", {
            class: `segment ${stage}`,
            style: width(parts[stage]),
            title: `${name}: ${fixed(parts[stage], 2)}`,
          }),
        );
  const named = ({ parts }) =>
    PARTS.filter(([stage]) => parts?.[stage] >= LEAST).map(([stage, name]) =>
      h("span", { class: stage }, `${name} ${fixed(parts[stage], 1)}`),
    );
  return h(
    "div.bars",
    { style: `--unit:${(100 / most).toFixed(3)}%` },
    ...rows.map((row) =>
      h(
        "div.bar-row",
        {},
        h("span.name", {}, h("b", {}, row.name), row.note ? h("small", {}, row.note) : ""),
        h(
          "span.cost",
          {},
          h("span.rail", {}, ...bar(row), h("i.goal", { style: `left:${((100 * row.brought) / most).toFixed(2)}%` })),
          h("span.parts", {}, ...named(row)),
        ),
        h("span.value", {}, h("b", {}, row.total), ...(row.words ?? []).map((words) => h("small", {}, words))),
      ),
    ),
  );
}
