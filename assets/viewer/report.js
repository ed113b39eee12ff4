// Draws the figures of a report in place; their numbers stand below them without any script.

import { FigureView } from "./figures.js";

/** `options`: what figures need. */
export function start(options) {
  for (const host of document.querySelectorAll("[data-panel]")) {
    const panel = JSON.parse(document.getElementById(host.dataset.panel).textContent);
    const figure = new FigureView(panel.id, { ...options, outOfView: true });
    host.replaceWith(figure.box);
    figure.show(panel);
  }
}
