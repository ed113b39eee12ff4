// Compare: the differences between two sides as sentences and a figure, and their texts side by side.

import { button, h, list, readJson, text } from "../../assets/viewer/dom.js";
import { FigureView } from "../../assets/viewer/figures.js";
import { saveFile } from "../../assets/viewer/share.js";
import { TextsView } from "./texts.js";

/** Returns the sentences of `reading` that the headline does not contain already. */
export function unstated(headline, reading) {
  const stated = headline.join(" ");
  return reading.filter((words) => !stated.includes(words.split(/, |: an interval/)[0]));
}

export function start(element, trigger, props, watch, server, options) {
  let data = null;
  const result = h("h2", { class: "result" });
  const more = h("p", { class: "more" });
  const legend = h("ul", { class: "legend sides", "aria-label": "Sides" });
  const reading = h("ul", {});
  const how = h("p", { class: "fine" });
  const save = button("JSON", { class: "small" }, () => {
    const { titles, comparison } = data;
    saveFile(
      "comparison.json",
      "application/json",
      JSON.stringify({ titles, reading: data.reading, comparison }, null, 1),
    );
  });
  const differences = new FigureView("differences", options); // the figure, with the table of its numbers below
  differences.numbers.hidden = false;
  differences.button.remove();
  const texts = new TextsView((side, run, step) => trigger("select", { side, run, step }));
  const empty = h(
    "p",
    { class: "empty" },
    "Nothing to compare yet. Runs that you make, open or measure can be chosen here if two of them have the same prompt.",
  );
  const parts = [h("div", { class: "panel top" }, result, more, legend, reading, how), texts.box, differences.box];
  element.replaceChildren(h("section", { class: "panels compared", "aria-label": "Compare" }, empty, ...parts));

  function show() {
    data = readJson(props.value);
    const some = Boolean(data && data.comparison);
    empty.hidden = some;
    for (const part of parts) part.hidden = !some;
    element.dataset.state = some ? "done" : "empty";
    if (!some) return;
    const headline = list(data.short).map(text);
    [result.textContent, more.textContent] = headline;
    legend.replaceChildren(
      ...["A", "B"].map((side, n) => h("li", {}, h("b", {}, side), h("bdi", {}, text(data.titles[n])))),
    );
    reading.replaceChildren(...unstated(headline, list(data.reading).map(text)).map((words) => h("li", {}, words)));
    how.replaceChildren(text(data.how), " ", save);
    differences.show(data.panel);
    texts.show(data.pairs);
  }

  watch("value", show);
  show();
}
