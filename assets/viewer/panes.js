// Panes that can be dragged: bars between them that a pointer or the arrow keys move; a double click puts them back.

import { h, whole } from "./dom.js";

const PANES_KEY = "d2sd-panes";
const PANES = {
  reading: { name: "Height of the text", axis: "y", low: 90, high: 900, sign: 1 },
  facts: { name: "Width of the details", axis: "x", low: 200, high: 700, sign: -1 },
  tree: { name: "Height of the tree", axis: "y", low: 140, high: 1600, sign: 1 },
};

/** Sizes kept in this browser; nothing where it keeps none. */
function keptSizes() {
  try {
    const kept = JSON.parse(localStorage.getItem(PANES_KEY));
    return kept && typeof kept === "object" ? kept : {};
  } catch {
    return {};
  }
}

export class Panes {
  /** `root` carries the sizes as style variables; `sized` says what a pane measures. */
  constructor(root, sized) {
    Object.assign(this, { root, sized, sizes: {} });
    const kept = keptSizes();
    for (const [id, { low, high }] of Object.entries(PANES)) {
      const size = whole(kept[id], low, high, null);
      if (size !== null) this.set(id, size);
    }
  }

  set(id, size) {
    const { low, high } = PANES[id];
    this.sizes[id] = Math.round(Math.min(high, Math.max(low, size)));
    this.root.style.setProperty(`--pane-${id}`, `${this.sizes[id]}px`);
  }

  keep() {
    try {
      localStorage.setItem(PANES_KEY, JSON.stringify(this.sizes));
    } catch {
      // a page without storage forgets the sizes
    }
  }

  /** The button that opens and closes the details where a short window has no place for them. */
  opener(pane) {
    const button = h("button", { id: "open-facts", class: "small", type: "button", title: "The stages of this step, or what is known of its chosen token", "aria-expanded": "false" }, "Details");
    button.addEventListener("click", () => button.setAttribute("aria-expanded", String(pane.classList.toggle("open"))));
    return button;
  }

  /** The bar that moves a pane. */
  bar(id) {
    const { name, axis, low, high, sign } = PANES[id];
    const now = () => this.sizes[id] ?? Math.round(this.sized(id));
    const bar = h("div", { class: `splitter ${axis} of-${id}`, role: "separator", tabindex: 0, title: `${name}: drag, or arrow keys; double click: as it was`, "aria-label": name, "aria-orientation": axis === "y" ? "horizontal" : "vertical", "aria-valuemin": low, "aria-valuemax": high });
    const move = (size) => {
      this.set(id, size);
      bar.setAttribute("aria-valuenow", this.sizes[id]);
    };
    let from = null;
    bar.addEventListener("focus", () => bar.setAttribute("aria-valuenow", now()));
    bar.addEventListener("pointerdown", (event) => {
      from = { at: event[axis === "y" ? "clientY" : "clientX"], size: now() };
      bar.setPointerCapture(event.pointerId);
    });
    bar.addEventListener("pointermove", (event) => from && move(from.size + sign * (event[axis === "y" ? "clientY" : "clientX"] - from.at)));
    const end = () => {
      if (from) this.keep();
      from = null;
    };
    bar.addEventListener("pointerup", end);
    bar.addEventListener("pointercancel", end);
    bar.addEventListener("dblclick", () => {
      delete this.sizes[id];
      this.root.style.removeProperty(`--pane-${id}`);
      this.keep();
    });
    bar.addEventListener("keydown", (event) => {
      const by = { y: { ArrowUp: -24, ArrowDown: 24 }, x: { ArrowLeft: -24, ArrowRight: 24 } }[axis][event.key];
      if (!by) return;
      move(now() + sign * by);
      this.keep();
      event.preventDefault();
      event.stopPropagation();
    });
    return bar;
  }
}
