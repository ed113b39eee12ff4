// Compare: what differs, the curves of both sides, and their texts place by place.

import { h } from "../../assets/viewer/dom.js";
import { saveFile } from "../../assets/viewer/save.js";
import { SidesView } from "../static/compare/sides.js";
import { TextsView } from "./texts.js";

export function start(element, trigger, props, watch, server, given) {
  const save = h("button", { type: "button", class: "small" }, "JSON");
  const sides = new SidesView(given, save);
  const texts = new TextsView((side, run, step) => trigger("select", { side, run, step }));
  const empty = h("p", { class: "empty" }, "Choose two runs, or two sets of runs: what you run, open or measure is offered here.");
  const parts = [sides.top, texts.box, sides.pair];
  element.replaceChildren(h("section", { class: "panels compared", "aria-label": "Compare" }, empty, ...parts));
  let data = null;

  save.addEventListener("click", () => {
    const { titles, comparison, reading: said, sides: both } = data;
    saveFile("comparison.json", "application/json", JSON.stringify({ titles, reading: said, comparison, sides: both }, null, 1));
  });

  function show() {
    try {
      data = JSON.parse(props.value || "null");
    } catch {
      data = null;
    }
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
