// On a narrow screen: the accepted path in full words, where the tree has slim columns without any.

import { h } from "./dom.js";
import { BONUS } from "./tree_layout.js";
import { visible } from "./words.js";

export class PathView {
  constructor(box, selection) {
    this.box = box;
    box.addEventListener("click", ({ target }) => {
      if (target.dataset.node) selection.pin(selection.shown, target.dataset.node === "bonus" ? BONUS : Number(target.dataset.node));
    });
  }

  /** `cut`: whether the tree does not show all of it. */
  show(step, cut) {
    this.box.hidden = !step || !cut;
    if (this.box.hidden) return;
    const token = (node, { proposer, text: words }) => h("span", { class: `tok ${proposer}`, "data-node": node }, visible(words, 24));
    const bonus = step.bonus ? token("bonus", { proposer: "target", text: step.bonus.text }) : "";
    this.box.replaceChildren("Accepted: ", ...step.accepted.map((id) => token(id, step.nodes.get(id))).flatMap((made) => [made, " "]), bonus);
  }
}
