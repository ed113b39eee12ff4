// What differs between two sides: a row for each figure, with the interval of the difference drawn and in words. `tools` are buttons for it.

import { button, h } from "../../assets/viewer/dom.js";
import { saveFile } from "../../assets/viewer/share.js";

const SHOWN = 4; // rows; the others are shown on request

export class DifferencesView {
  constructor() {
    this.more = button("", { class: "small", "aria-expanded": "false" }, () => this.unfold(this.fine.hidden));
    const save = () => saveFile("comparison.json", "application/json", JSON.stringify(this.saved, null, 1));
    this.tools = h("span.tools", {}, this.more, button("JSON", { class: "small" }, save));
    this.names = ["", ""].map(() => h("th", { scope: "col" }));
    this.whose = h("th", { scope: "col", class: "words", title: "A difference is clear if its interval leaves out 0" });
    this.body = h("tbody", {});
    this.table = h(
      "table",
      {},
      h("caption.spoken", {}, "What differs"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col", class: "what" }, "What differs"),
          ...this.names,
          ...["difference", "less ← 0 → more, on a scale per row"].map((name) => h("th", { scope: "col" }, name)),
          this.whose,
        ),
      ),
      this.body,
    );
    this.fine = h("p.fine", { hidden: true });
    this.box = h(
      "section.panel.differences",
      { "aria-label": "What differs" },
      h("div.scroll", {}, this.table),
      this.fine,
    );
  }

  /** `data`: the drawing of `app/race/pair.py`; null hides the rows. */
  show(data) {
    this.box.hidden = this.tools.hidden = !data;
    if (!data) return;
    const { names, rows, title, more, differs, how, comparison } = data;
    this.saved = { names, reading: [title, more, differs].filter(Boolean), comparison };
    this.rows = rows.map((row) => this.row(row));
    this.names.forEach((head, n) => (head.textContent = names[n]));
    this.whose.textContent = `${names[1]} has, with 95% confidence for all rows`;
    this.body.replaceChildren(...this.rows);
    this.fine.replaceChildren(`${differs} ${how}`);
    this.unfold(!this.fine.hidden);
  }

  unfold(all) {
    const further = this.rows.length - SHOWN;
    this.table.classList.toggle("whole", all);
    this.fine.hidden = !all;
    this.rows.forEach((row, n) => (row.hidden = n >= SHOWN && !all));
    this.more.ariaExpanded = all;
    this.more.textContent = all ? "Fewer rows" : further > 0 ? `${further} more rows` : "How sure is this?";
  }

  row({ name, values, counts, change, drawn, clear, words }) {
    const value = (n) => h("td", { "data-name": this.saved.names[n] }, values[n], h("small", {}, ` n ${counts[n]}`));
    return h(
      "tr",
      { class: clear ? "clear" : null },
      h("th", { scope: "row" }, name),
      value(0),
      value(1),
      h("td", { "data-name": "difference" }, change),
      h("td.drawn", { "aria-hidden": "true" }, drawn.length ? interval(drawn) : ""),
      h("td.words", {}, words),
    );
  }
}

/** An interval and its value, on a scale to the end that is farther from 0. */
function interval([low, value, high]) {
  const reach = Math.max(Math.abs(low), Math.abs(high), 1e-9);
  const at = (x) => `${(50 + (48 * x) / reach).toFixed(1)}%`;
  return h(
    "span.interval",
    {},
    h("i.zero", {}),
    high > low ? h("i.span", { style: `left:${at(low)};right:${at(-high)}` }) : "",
    h("i.dot", { style: `left:${at(value)}` }),
  );
}
