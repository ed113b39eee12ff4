// Compare: what differs between two sides in words and figures, the curves of both, and their texts place by place.

import { button, h, list, readJson, s, text } from "../../assets/viewer/dom.js";
import { FigureView } from "../../assets/viewer/figures.js";
import { saveFile } from "../../assets/viewer/share.js";
import { TextsView } from "./texts.js";

/** What differs between two sides, in words and figures. */
export class SidesView {
  /** `options`: what figures need. */
  constructor(options, ...tools) {
    this.tools = tools;
    this.legend = h("ul", { class: "legend sides", "aria-label": "Sides" });
    this.reading = h("ul", {});
    this.how = h("p", { class: "fine" });
    this.top = h("div", { class: "panel top" }, this.legend, this.reading, this.how);
    this.figures = ["differences", "both-reliability", "both-ranks"].map((id) => new FigureView(id, options));
    const [differences] = this.figures; // figure and numbers, one below the other
    differences.numbers.hidden = false;
    differences.button.remove();
    this.pair = h("div", { class: "pair" }, ...this.figures.map((figure) => figure.box));
  }

  show({ titles, reading, how, panels }) {
    const item = (side, point, title) => h("li", {}, s("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: `curve ${side}`, d: "M1 7H33" }), point), h("b", {}, side.toUpperCase()), h("bdi", {}, text(title)));
    const circle = s("circle", { class: "point a", cx: 17, cy: 7, r: 3.6 });
    const square = s("rect", { class: "point b", x: 13.6, y: 3.6, width: 6.8, height: 6.8 });
    this.legend.replaceChildren(item("a", circle, titles[0]), item("b", square, titles[1]));
    this.reading.replaceChildren(...list(reading).map((words) => h("li", {}, text(words))));
    this.how.replaceChildren(text(how), " ", ...this.tools);
    for (const figure of this.figures) figure.show(panels.find(({ id }) => id === figure.id) || null);
  }
}

export function start(element, trigger, props, watch, server, options) {
  const save = button("JSON", { class: "small" }, () => {
    const { titles, comparison, reading } = data;
    saveFile("comparison.json", "application/json", JSON.stringify({ titles, reading, comparison }, null, 1));
  });
  const sides = new SidesView(options, save);
  const texts = new TextsView((side, run, step) => trigger("select", { side, run, step }));
  const empty = h("p", { class: "empty" }, "Choose two runs, or two sets of runs: what you run, open or measure is offered here. Then press Compare.");
  const parts = [sides.top, texts.box, sides.pair];
  element.replaceChildren(h("section", { class: "panels compared", "aria-label": "Compare" }, empty, ...parts));
  let data = null;

  function show() {
    data = readJson(props.value);
    const some = Boolean(data && data.comparison);
    empty.hidden = some;
    for (const part of parts) part.hidden = !some;
    element.dataset.state = some ? "done" : "empty";
    if (!some) return;
    sides.show(data);
    texts.show(data.pairs);
  }

  watch("value", show);
  show();
}
