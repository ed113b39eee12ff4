// Says what a word means where it stands: one box for the whole document.

import { MEANINGS } from "./constants.js";
import { h } from "./dom.js";
import { capital } from "./words.js";

const CONTROLS = new Map(MEANINGS);
const LABEL = "[data-testid='block-info'], .checkbox-container span";

/** The element that says something at a target, and what: a word, or the label of a setting, for a target in a `focused` field too. */
function meaningAt(target, focused) {
  const word = target.closest("[data-meaning]");
  if (word) return [word, word.dataset.meaning];
  const field = target.closest(".small-numbers .block");
  const label = focused ? field?.querySelector(LABEL) : field && target.closest(LABEL);
  return [label, label && CONTROLS.get(capital(label.textContent.trim()))];
}

/** Says what words mean, wherever in the document: under the pointer, in focus, or tapped. */
export function explainTerms() {
  const box = h("div", { class: "panels meaning", role: "tooltip", id: "meaning", hidden: true });
  let shown = null;
  const hide = () => {
    box.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const show = ({ target, type }) => {
    const [element, words] = target instanceof Element ? meaningAt(target, type === "focusin") : [];
    if (element && element === shown) return;
    hide();
    if (!words) return;
    shown = element;
    element.setAttribute("aria-describedby", "meaning");
    (element.closest("dialog") ?? document.fullscreenElement ?? document.body).append(box);
    box.textContent = `${capital(words)}.`;
    box.hidden = false;
    place(box, element.getBoundingClientRect());
  };
  for (const event of ["pointerover", "focusin", "click"]) document.addEventListener(event, show);
  for (const event of ["scroll", "input"]) addEventListener(event, hide, { capture: true, passive: true });
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
}

/** Puts a box above a place of the window, under it where there is no room. */
function place(box, { left, top, bottom }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  box.style.top = `${top - height - 6 > 4 ? top - height - 6 : bottom + 6}px`;
}
