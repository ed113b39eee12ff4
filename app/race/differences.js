// What differs between two sides: a row for each figure, with the interval of the difference drawn and in words. `tools` are buttons for it.

import { button, h } from "../../assets/viewer/dom.js";
import { saveFile } from "../../assets/viewer/share.js";

const SHOWN = 4; // rows; the others are shown on request

export function differencesView() {
  let [rows, saved] = [[], null];
  const more = button("", { class: "small", ariaExpanded: false }, () => unfold(fine.hidden));
  const save = () => saveFile("comparison.json", "application/json", JSON.stringify(saved, null, 1));
  const tools = h("span.tools", {}, more, button("JSON", { class: "small" }, save));
  const column = (words) => h("th", { scope: "col" }, words);
  const names = [column(""), column("")];
  const whose = h("th.words", { scope: "col", title: "A difference is clear if its interval leaves out 0" });
  const columns = [
    h("th.what", { scope: "col" }, "What differs"),
    ...names,
    column("difference"),
    column("less ← 0 → more, on a scale per row"),
    whose,
  ];
  const head = h("thead", {}, h("tr", {}, ...columns));
  const body = h("tbody", {});
  const table = h("table", {}, h("caption.spoken", {}, "What differs"), head, body);
  const fine = h("p.fine", { hidden: true });
  const box = h("section.panel.differences", { ariaLabel: "What differs" }, h("div.scroll", {}, table), fine);

  /** `data`: the drawing of `app/race/pair.py`; null hides the rows. */
  function show(data) {
    box.hidden = tools.hidden = !data;
    if (!data) return;
    const { title, differs, how, comparison } = data;
    saved = { names: data.names, reading: [title, data.more, differs].filter(Boolean), comparison };
    rows = data.rows.map((figure) => row(figure, data.names));
    names.forEach((name, n) => (name.textContent = data.names[n]));
    whose.textContent = `${data.names[1]} has, with 95% confidence for all rows`;
    body.replaceChildren(...rows);
    fine.textContent = `${differs} ${how}`;
    unfold(!fine.hidden);
  }

  function unfold(all) {
    const further = rows.length - SHOWN;
    table.classList.toggle("whole", all);
    fine.hidden = !all;
    rows.forEach((line, n) => (line.hidden = n >= SHOWN && !all));
    more.ariaExpanded = all;
    more.textContent = all ? "Fewer rows" : further > 0 ? `${further} more rows` : "How sure is this?";
  }

  return { box, tools, show };
}

function row({ name, values, counts, change, drawn, clear, words }, names) {
  const value = (n) => h("td", { "data-name": names[n] }, values[n], h("small", {}, ` n ${counts[n]}`));
  return h(
    "tr",
    { class: clear ? "clear" : null },
    h("th", { scope: "row" }, name),
    value(0),
    value(1),
    h("td", { "data-name": "difference" }, change),
    h("td.drawn", { ariaHidden: true }, drawn.length ? interval(drawn) : ""),
    h("td.words", {}, words),
  );
}

/** An interval and its value, on a scale to the end that is farther from 0. */
function interval([low, value, high]) {
  const reach = Math.max(Math.abs(low), Math.abs(high), 1e-9);
  const percent = (x) => `${(50 + (48 * x) / reach).toFixed(1)}%`;
  return h(
    "span.interval",
    {},
    h("i.zero", {}),
    high > low ? h("i.span", { style: `left:${percent(low)};right:${percent(-high)}` }) : "",
    h("i.dot", { style: `left:${percent(value)}` }),
  );
}
