// The places of the strip that one can re-draft from: buttons over its drawing, a column of the tree each.

import { h } from "./dom.js";
import { probability } from "./words.js";

export class PlacesView {
  /** `picked(prefix)`: a place was clicked on, or Enter pressed. */
  constructor(strip, picked) {
    Object.assign(this, { strip, buttons: [], step: null });
    this.box = h("div", { class: "places", role: "toolbar", "aria-label": "Re-draft from a prefix: arrows choose, Enter drafts" });
    strip.host.append(this.box);
    strip.placed = () => this.place();
    const at = (event) => this.buttons.indexOf(event.target.closest("button"));
    this.box.addEventListener("click", (event) => {
      if (at(event) < 0) return;
      strip.tooltip.hide(); // it hides what comes
      picked(at(event));
    });
    // a click leaves the arrow keys to the steps
    this.box.addEventListener("mousedown", (event) => event.preventDefault());
    this.box.addEventListener("keydown", (event) => {
      const to = at(event) + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? NaN);
      if (Number.isNaN(to) || event.shiftKey) return;
      event.preventDefault();
      this.focus(Math.min(this.buttons.length - 1, Math.max(0, to)));
    });
  }

  /** One of them is reached with Tab, the others from there. */
  focus(at) {
    this.buttons.forEach((button, n) => (button.tabIndex = n === at ? 0 : -1));
    this.buttons[at].focus();
  }

  /** Where they stand follows the tree; they themselves stay, and so does the focus. */
  place() {
    const { strip } = this;
    const step = strip.step && strip.step.draft ? strip.step : null;
    const shares = step && step.posterior.length ? [...step.posterior, step.full] : [];
    for (const button of this.buttons.splice(shares.length)) button.remove();
    while (this.buttons.length < shares.length) {
      const button = h("button", { type: "button", tabindex: this.buttons.length ? -1 : 0 });
      this.buttons.push(button);
      this.box.append(button);
    }
    if (this.buttons.length && this.buttons.every((button) => button.tabIndex < 0)) this.buttons[0].tabIndex = 0;
    this.box.hidden = !shares.length;
    const top = strip.band.bars[1] + 2;
    Object.assign(this.box.style, { top: `${top * strip.scale}px`, height: `${(strip.band.truth - top) * strip.scale}px` });
    shares.forEach((r, at) => {
      const [left, right] = [at, at + 1].map((depth) => strip.x(depth) * strip.scale);
      Object.assign(this.buttons[at].style, { left: `${left.toFixed(1)}px`, width: `${Math.max(0, right - left).toFixed(1)}px` });
      this.buttons[at].setAttribute("aria-label", `Re-draft from ${at}, ${at === step.posterior.length ? "all" : `r(${at})`} = ${probability(r)}`);
    });
  }

  /** Shows which one was asked for; null: none. */
  mark(prefix) {
    this.buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === prefix));
  }
}
