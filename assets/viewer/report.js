// Draws the figures of a report. The numbers below them are part of the page and need no script.

import { figureView } from "./figures.js";

/** `options`: passed to every `figureView`. */
export function start(options) {
  for (const host of document.querySelectorAll("[data-panel]")) {
    const panel = JSON.parse(document.getElementById(host.dataset.panel).textContent);
    const figure = figureView(panel.id, { ...options, outOfView: true });
    host.replaceWith(figure.box);
    figure.show(panel);
  }
}
