// What if: a figure for every varied setting.

import { h, list, readJson, text } from "../../assets/viewer/dom.js";
import { FigureView } from "../../assets/viewer/figures.js";

export function start(element, trigger, props, watch, server, options) {
  const heading = h("h3", {});
  const status = h("p", { class: "status", role: "status" });
  const charts = h("div", { class: "charts" });
  const empty = h("p", { class: "empty" }, "No answers yet: choose a recorded run and press Ask.");
  const top = h("div", { class: "panel top" }, h("div", { class: "head" }, heading, status));
  const figures = new Map();
  element.replaceChildren(h("section", { class: "panels whatif", "aria-label": "What if" }, empty, top, charts));

  function show() {
    const data = readJson(props.value);
    const panels = data ? list(data.panels) : [];
    empty.hidden = panels.length > 0;
    top.hidden = !panels.length;
    element.dataset.state = !panels.length ? "empty" : data.status ? "running" : "done";
    for (const [id, figure] of figures) if (!panels.some((panel) => panel.id === id)) figure.show(null);
    for (const panel of panels) {
      if (!figures.has(panel.id)) figures.set(panel.id, new FigureView(panel.id, options));
      figures.get(panel.id).show(panel, data.source);
    }
    const boxes = panels.map(({ id }) => figures.get(id).box);
    if (boxes.length !== charts.children.length || boxes.some((box, at) => box !== charts.children[at]))
      charts.replaceChildren(...boxes);
    if (!panels.length) return;
    heading.textContent = `${text(data.source)}${data.recorded ? " (recorded)" : ""}`;
    status.textContent = text(data.status) || text(data.measured);
  }

  watch("value", show);
  show();
}
