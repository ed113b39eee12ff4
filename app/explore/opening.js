// Connects views with other parts of the page: Learn, the Run button, the prompt, and the meanings of terms.

import { emit, oneWait, remember } from "../../assets/viewer/dom.js";
import { explainTerms } from "../../assets/viewer/glossary.js";

const NARROW = 640; // pixels: on narrower pages the start of a run scrolls to the prompt
const PATIENCE_MS = 20000; // longest wait for Learn, which is built when it is first opened

/** `settings`: meanings of settings, by the labels of their controls. */
export function start(element, trigger, props, watch, server, { settings }) {
  const whenReady = oneWait(PATIENCE_MS);
  /** Opens Learn at a chapter. If `value` (the lines of a run) is given, Learn explains `step` of that run. */
  const learn = (detail) => {
    trigger("learn");
    remember("d2sd-toured", "yes");
    document.documentElement.classList.add("toured");
    const find = () => document.querySelector("#learn [data-ready=yes]");
    whenReady(
      () => find()?.offsetParent && find(),
      (tour) => emit(tour, "learn:go", detail),
    );
  };
  document.addEventListener("explorer:learn", ({ detail: { chapter, value, step } }) =>
    learn(value ? { chapter, value, step } : { chapter }),
  );
  document.addEventListener("explorer:begin", () => document.querySelector("#run").click());
  // the prompt's field loses the focus, then scrolls to the beginning of the prompt
  document.addEventListener("explorer:started", () => {
    document.activeElement?.blur();
    if (innerWidth <= NARROW) document.querySelector("#settings").scrollIntoView({ block: "start" });
  });
  document.addEventListener("focusout", ({ target }) => {
    if (target.matches("#prompt textarea")) target.scrollTop = 0;
  });
  explainTerms(settings);
}
