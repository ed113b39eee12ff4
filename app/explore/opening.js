// The opening sentence above Explore, until its buttons were used once, and the way to Learn from wherever it is offered.

import { button, h, oneWait, remember, remembered } from "../../assets/viewer/dom.js";
import { explainTerms } from "../../assets/viewer/meaning.js";
import { opening } from "../../assets/viewer/opening.js";

const KEY = "d2sd-opened";
const PATIENCE_MS = 20000; // Learn is built when it is first opened

export function start(element, trigger) {
  const whenReady = oneWait(PATIENCE_MS);
  const close = () => {
    element.replaceChildren();
    remember(KEY, "yes");
  };
  /** Opens Learn at a stop, 0 being the story. */
  const learn = (stop) => {
    close();
    trigger("learn");
    const find = () => document.querySelector("#learn [data-ready=yes]");
    whenReady(
      () => find()?.offsetParent && find(),
      (tour) => tour.dispatchEvent(new CustomEvent("learn:go", { detail: { stop } })),
    );
  };
  const begin = () => {
    close();
    document.querySelector("#run").click();
  };
  document.addEventListener("explorer:learn", ({ detail: { stop } }) => learn(stop));
  document.addEventListener("explorer:begin", begin);
  explainTerms();
  if (remembered(KEY) !== null) return;
  const box = opening({ story: () => learn(0), begin });
  box.lastChild.append(button("✕", { class: "icon", "aria-label": "Close" }, close));
  element.replaceChildren(h("section", { class: "panels", "aria-label": "What this is" }, box));
}
