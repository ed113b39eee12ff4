// One tooltip for all views, kept inside the view's own box.

import { h } from "./dom.js";

export class Tooltip {
  constructor(root) {
    this.root = root;
    this.box = h("div", { class: "tip", role: "tooltip", hidden: true });
    root.append(this.box);
  }

  show(content, clientX, clientY) {
    this.box.replaceChildren(content);
    this.box.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const own = this.box.getBoundingClientRect();
    let x = clientX - frame.left + 14;
    let y = clientY - frame.top + 16;
    if (x + own.width > frame.width - 4) x = clientX - frame.left - own.width - 14;
    if (clientY + 16 + own.height > innerHeight) y = clientY - frame.top - own.height - 12;
    this.box.style.left = Math.max(4, x) + "px";
    this.box.style.top = Math.max(4, y) + "px";
  }

  hide() {
    this.box.hidden = true;
  }
}
