// Figures that grow: sentences, then a figure each, whose zoom stays while points are added.

import { h, list, text } from "../../../assets/viewer/dom.js";
import { FigureView } from "../../../assets/viewer/figures.js";

export function start(element, trigger, props, watch, server, given) {
  const reading = h("ul", { class: "panel reading", role: "status" });
  const pair = h("div", { class: "pair" });
  const figures = new Map();
  const box = h("section", { class: "panels overtime", "aria-label": "Over time" }, reading, pair);
  element.replaceChildren(box);

  function show() {
    let data;
    try {
      data = JSON.parse(props.value);
    } catch {
      data = null;
    }
    const panels = data && typeof data === "object" ? list(data.panels) : [];
    const said = data && typeof data === "object" ? list(data.reading) : [];
    box.hidden = !panels.length && !said.length;
    reading.hidden = !said.length;
    reading.replaceChildren(...said.map((words) => h("li", {}, text(words))));
    for (const panel of panels) {
      if (!figures.has(panel.id)) {
        figures.set(panel.id, new FigureView(panel.id, given));
        pair.append(figures.get(panel.id).box);
      }
    }
    for (const [id, figure] of figures) figure.show(panels.find((panel) => panel.id === id) || null, "same");
  }

  watch("value", show);
  show();
}
