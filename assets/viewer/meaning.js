// Tooltips with the meaning of terms and settings: one box for the whole document.

import { MEANINGS } from "./constants.js";
import { clamp, h } from "./dom.js";
import { capital } from "./words.js";

const CONTROLS = new Map(MEANINGS);
const LABEL = "[data-testid='block-info'], .checkbox-container span";

/** The term or setting label at an event target, and its meaning. `focused`: a target inside a setting's field counts too. */
function meaningAt(target, focused) {
  const word = target.closest("[data-meaning]");
  if (word) return [word, word.dataset.meaning];
  const field = target.closest(".small-numbers .block");
  const label = focused ? field?.querySelector(LABEL) : field && target.closest(LABEL);
  return [label, label && CONTROLS.get(capital(label.textContent.trim()))];
}

/** Shows the meaning of any term in the document when it is hovered, focused or tapped. */
export function explainTerms() {
  const box = h("div.panels.meaning", { role: "tooltip", id: "meaning", hidden: true });
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

/** Puts the box above the element, or below it if there is no space. */
function place(box, { left, top, bottom }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  box.style.left = `${clamp(left, 8, innerWidth - width - 8)}px`;
  box.style.top = `${top - height - 6 > 4 ? top - height - 6 : bottom + 6}px`;
}
