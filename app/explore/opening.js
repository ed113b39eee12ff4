// The ways from a view to other parts of the page: to Learn, to Run, and to the words and keys.

import { oneWait } from "../../assets/viewer/dom.js";
import { explainTerms } from "../../assets/viewer/meaning.js";

const NARROW = 640; // pixels: the answer comes into view
const PATIENCE_MS = 20000; // Learn is built when it is first opened

export function start(element, trigger) {
  const whenReady = oneWait(PATIENCE_MS);
  /** Opens Learn at a chapter; with a `value`: of that run, at its `step`. */
  const learn = (detail) => {
    trigger("learn");
    const find = () => document.querySelector("#learn [data-ready=yes]");
    whenReady(
      () => find()?.offsetParent && find(),
      (tour) => tour.dispatchEvent(new CustomEvent("learn:go", { detail })),
    );
  };
  document.addEventListener("explorer:learn", ({ detail: { chapter, value, step } }) =>
    learn(value ? { chapter, value, step } : { chapter }),
  );
  document.addEventListener("explorer:begin", () => document.querySelector("#run").click());
  // the prompt's field closes, by whichever key the run was started, and shows how the prompt begins
  document.addEventListener("explorer:started", () => {
    document.activeElement?.blur();
    if (innerWidth <= NARROW) document.querySelector("#settings").scrollIntoView({ block: "start" });
  });
  document.addEventListener("focusout", ({ target }) => {
    if (target.matches("#prompt textarea")) target.scrollTop = 0;
  });
  explainTerms();
}
