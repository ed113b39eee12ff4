// The list of keys.

const KEYS = [
  ["← →", "previous, next step"],
  ["↑ ↓", "node in the branch above, below"],
  ["Shift + ← →", "node before, after on the path"],
  ["Home End", "first, last step"],
  ["Space", "play through the steps, pause"],
  ["F", "fit the tree"],
  ["+ −", "zoom the tree in, out"],
  ["/", "find in the text"],
  ["Esc", "release the node, then the step"],
  ["?", "this list"],
];

class HelpView {
  constructor(root) {
    const close = h("button", { class: "icon close", type: "button", "aria-label": "Close" }, "✕");
    this.box = h(
      "dialog",
      { class: "help", "aria-label": "Keys" },
      close,
      h("h3", {}, "Keys"),
      h("dl", {}, ...KEYS.map(([keys, meaning]) => h("div", {}, h("dt", {}, ...keys.split(" ").map((k) => (k === "+" && keys !== "+ −" ? " + " : h("kbd", {}, k)))), h("dd", {}, meaning)))),
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
