// Compare: what differs between two sides in words and figures, the curves of both, and their texts place by place.

import { button, h, list, readJson, s, text } from "../../assets/viewer/dom.js";
import { FigureView } from "../../assets/viewer/figures.js";
import { saveFile } from "../../assets/viewer/share.js";
import { TextsView } from "./texts.js";

export function start(element, trigger, props, watch, server, options) {
  let data = null;
  const legend = h("ul", { class: "legend sides", "aria-label": "Sides" });
  const reading = h("ul", {});
  const how = h("p", { class: "fine" });
  const save = button("JSON", { class: "small" }, () => {
    const { titles, comparison } = data;
    saveFile("comparison.json", "application/json", JSON.stringify({ titles, reading: data.reading, comparison }, null, 1));
  });
  const figures = ["differences", "both-reliability", "both-ranks"].map((id) => new FigureView(id, options));
  const [differences] = figures; // figure and numbers, one below the other
  differences.numbers.hidden = false;
  differences.button.remove();
  const texts = new TextsView((side, run, step) => trigger("select", { side, run, step }));
  const empty = h("p", { class: "empty" }, "Choose two runs, or two sets of runs: what you run, open or measure is offered here. Then press Compare.");
  const parts = [h("div", { class: "panel top" }, legend, reading, how), texts.box, h("div", { class: "pair" }, ...figures.map((figure) => figure.box))];
  element.replaceChildren(h("section", { class: "panels compared", "aria-label": "Compare" }, empty, ...parts));

  function show() {
    data = readJson(props.value);
    const some = Boolean(data && data.comparison);
    empty.hidden = some;
    for (const part of parts) part.hidden = !some;
    element.dataset.state = some ? "done" : "empty";
    if (!some) return;
    const item = (side, point, title) => h("li", {}, s("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: `curve ${side}`, d: "M1 7H33" }), point), h("b", {}, side.toUpperCase()), h("bdi", {}, text(title)));
    const circle = s("circle", { class: "point a", cx: 17, cy: 7, r: 3.6 });
    const square = s("rect", { class: "point b", x: 13.6, y: 3.6, width: 6.8, height: 6.8 });
    legend.replaceChildren(item("a", circle, data.titles[0]), item("b", square, data.titles[1]));
    reading.replaceChildren(...list(data.reading).map((words) => h("li", {}, text(words))));
    how.replaceChildren(text(data.how), " ", save);
    for (const figure of figures) figure.show(data.panels.find(({ id }) => id === figure.id) || null);
    texts.show(data.pairs);
  }

  watch("value", show);
  show();
}
