// What differs between two sides: a row for each figure, with the interval of the difference drawn and in words.

import { button, h, list, text } from "../../assets/viewer/dom.js";
import { saveFile } from "../../assets/viewer/share.js";

const SHOWN = 4; // rows; the others are shown on request

export class DifferencesView {
  constructor() {
    this.title = h("h3", {}, "What differs");
    this.table = h("table", {});
    this.fine = h("p", { class: "fine", hidden: true });
    this.more = button("", { class: "small", "aria-expanded": "false" }, () => this.unfold(this.fine.hidden));
    const save = () => saveFile("comparison.json", "application/json", JSON.stringify(this.saved, null, 1));
    this.json = button("JSON", { class: "small" }, save);
    this.box = h(
      "section",
      { class: "panel differences", "aria-label": "What differs" },
      h(
        "div",
        { class: "head" },
        this.title,
        h(
          "p",
          { class: "status" },
          "95% intervals for all rows together; a difference is clear if its interval leaves out 0",
        ),
        h("div", { class: "tools" }, this.more, this.json),
      ),
      h("div", { class: "scroll" }, this.table),
      this.fine,
    );
  }

  /** `data`: the drawing of `app/race/pair.py`; null hides the rows. */
  show(data) {
    this.box.hidden = !data;
    if (!data) return;
    const { names, rows, title, more, differs, how, comparison } = data;
    this.saved = { names, reading: [title, more, differs].filter(Boolean), comparison };
    this.rows = list(rows).map((row, n) => this.row(row, n));
    const heads = ["", text(names[0]), text(names[1]), "difference", "less ← 0 → more", ""];
    this.table.replaceChildren(
      h("caption", { class: "spoken" }, "What differs"),
      h("thead", {}, h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...this.rows),
    );
    this.fine.replaceChildren(`${text(differs)} ${text(how)}`);
    this.unfold(!this.fine.hidden);
  }

  unfold(all) {
    const further = this.rows.length - SHOWN;
    this.table.classList.toggle("all", all);
    this.fine.hidden = !all;
    this.rows.forEach((row, n) => (row.hidden = n >= SHOWN && !all));
    this.more.setAttribute("aria-expanded", all);
    this.more.textContent = all ? "Fewer rows" : further > 0 ? `${further} more rows` : "How sure is this?";
  }

  row({ name, values, counts, change, drawn, clear, words }) {
    const value = (n) =>
      h("td", { "data-name": text(this.saved.names[n]) }, text(values[n]), h("small", {}, ` n ${text(counts[n])}`));
    return h(
      "tr",
      { class: clear ? "clear" : null },
      h("th", { scope: "row" }, text(name)),
      value(0),
      value(1),
      h("td", { "data-name": "difference" }, text(change)),
      h("td", { class: "drawn", "aria-hidden": "true" }, list(drawn).length ? interval(drawn) : ""),
      h("td", { class: "words" }, text(words)),
    );
  }
}

/** An interval and its value between -1 and 1. */
function interval([low, value, high]) {
  const at = (x) => `${(50 + 50 * x).toFixed(1)}%`;
  return h(
    "span",
    { class: "interval" },
    h("i", { class: "zero" }),
    h("i", { class: "span", style: `left:${at(low)};right:${at(-high)}` }),
    h("i", { class: "dot", style: `left:${at(value)}` }),
  );
}
