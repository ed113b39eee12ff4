// Taking a race along: a link that fills it in.

import { h, list, text } from "../../assets/viewer/dom.js";

export class RaceShare {
  constructor() {
    this.data = null;
    this.said = h("span", { class: "said", role: "status" });
    const button = h("button", { type: "button", title: "Fills in prompt, settings and methods" }, "Copy link");
    button.addEventListener("click", () => this.copy());
    this.box = h("div", { class: "sharing", hidden: true }, this.said, button);
  }

  /** The race, or null while one runs. */
  show(data) {
    this.data = data;
    this.box.hidden = !data || !list(data.lanes).some(({ row }) => row);
  }

  async copy() {
    try {
      const query = text(this.data.query);
      if (query) await navigator.clipboard.writeText(`${location.origin}${location.pathname}?${query}`);
      this.said.textContent = query ? "Link copied." : "The prompt is too long for a link.";
    } catch {
      this.said.textContent = "That did not work in this browser.";
    }
  }
}
