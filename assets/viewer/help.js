// The list of keys.

import { h } from "./dom.js";

const KEYS = [
  ["← →", "previous, next step"],
  ["↑ ↓", "node in the branch above, below"],
  ["Shift + ← →", "node before, after on the path"],
  ["Home End", "first, last step"],
  ["Space", "play through the steps, pause"],
  ["F", "fit the tree"],
  ["+ −", "zoom the tree in, out"],
  ["N P", "next, previous step of the chosen kind"],
  ["[ ]", "a range of steps begins, ends at the shown one"],
  [".", "full screen"],
  ["S", "speed of playing"],
  ["T", "present: sentence, tree and strip, twice as large"],
  ["Q", "quiz: guess where the first draft is rejected; 1 to 9 or Enter on a token answer, 0: nowhere"],
  ["B", "be the drafter: write the tokens that come next; Enter verifies them"],
  ["Tab", "to the strip: ← → choose a place there, Enter re-drafts from it, as a click does"],
  ["Esc", "release the node or the re-draft, then the step"],
  ["?", "this list"],
];

const WORDS = [
  ["anchor", "the last certain token; a step drafts what follows it"],
  ["␣ ↵", "a space and a line break in a token"],
  ["c", "confidence: the drafter’s own probability of its token"],
  ["r(i)", "predicted chance that exactly i drafted tokens are accepted; “all”: every one"],
  ["α", "tokens committed per step, mean over the run"],
  ["γ", "block: the anchor and γ − 1 drafted tokens"],
  ["K", "number of prefixes to re-draft from"],
  ["T", "temperature: 0 takes the target’s favourite, above 0 it draws"],
  ["plain", "plain decoding: one target pass per token, nothing drafted"],
  ["●", "repaired: re-drafted from where the draft broke, and tokens were gained"],
  ["○", "re-drafted from there, but nothing was gained"],
  ["✕", "missed: no re-draft started there"],
  ["▲", "the whole first draft was accepted"],
];

export class HelpView {
  constructor(root) {
    const close = h("button", { class: "icon close", type: "button", "aria-label": "Close" }, "✕");
    this.box = h(
      "dialog",
      { class: "help", "aria-label": "Keys and words" },
      close,
      h("h3", {}, "Keys"),
      h("dl", {}, ...KEYS.map(([keys, meaning]) => h("div", {}, h("dt", {}, ...keys.split(" ").map((k) => (k === "+" && keys !== "+ −" ? " + " : h("kbd", {}, k)))), h("dd", {}, meaning)))),
      h("h3", {}, "Words and marks"),
      h("dl", { class: "words" }, ...WORDS.map(([word, meaning]) => h("div", {}, h("dt", {}, word), h("dd", {}, meaning)))),
      h("p", {}, "With the mouse: hover previews, click pins, the wheel zooms the tree, dragging pans it."),
    );
    close.addEventListener("click", () => this.box.close());
    this.box.addEventListener("click", (event) => event.target === this.box && this.box.close());
    root.append(this.box);
  }

  toggle() {
    if (this.box.open) this.box.close();
    else this.box.showModal();
  }
}
