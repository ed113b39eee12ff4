// The chip over the tree: which step is shown and why; a click goes back to following the run.

import { h } from "./dom.js";
import { count } from "./words.js";

const SILENCE_MS = 5000;

export class ChipView {
  constructor(store, selection) {
    Object.assign(this, { store, selection, waiting: false, timer: 0 });
    this.button = h("button", { id: "follow", type: "button" });
    this.button.addEventListener("click", () => selection.follow());
  }

  /** A run that says nothing for a while, be it slow or cut off, is not shown as one that goes on. */
  heard() {
    clearTimeout(this.timer);
    this.waiting = false;
    this.timer = setTimeout(() => {
      this.waiting = true;
      this.show();
    }, SILENCE_MS);
  }

  show() {
    const { button, store, selection, waiting } = this;
    const { pinned, playing } = selection;
    const at = pinned === null ? "" : `step ${pinned + 1}`;
    const [state, , label] = [
      ["playing", playing, `Playing: ${at} ✕`],
      ["pinned", pinned !== null, `Pinned: ${at} ✕`],
      ["live", store.live, waiting ? "Waiting for the next step" : "Following live"],
      ["resting", store.failed, "Stopped"],
      ["resting", store.finished && store.finished.stop_reason === "stopped", `Stopped after ${count(store.length, "step")}`],
      ["resting", selection.shown === null, count(store.length, "step")],
      ["resting", true, `Step ${selection.shown + 1} of ${store.length}`],
    ].find(([, holds]) => holds);
    button.dataset.state = state;
    button.textContent = label;
    button.title = pinned === null ? "Click a token, a bar or a node to pin its step" : store.live ? "Release and follow live (Esc)" : "Release (Esc)";
  }
}
