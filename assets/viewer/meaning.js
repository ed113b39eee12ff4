// Says what a word means where it stands: one box for the whole document.

import { MEANINGS } from "./constants.js";
import { h } from "./dom.js";
import { capital } from "./words.js";

const CONTROLS = new Map(MEANINGS);
const LABEL = "[data-testid='block-info'], .checkbox-container span";

/** What an element says on being pointed at or focused; empty where it says nothing. A field of a setting says what its label means. */
function meaningAt(target) {
  const own = target.closest("[data-meaning]");
  if (own) return [own, own.dataset.meaning];
  const label = target.closest(".small-numbers label, .small-numbers .block")?.querySelector(LABEL);
  return [label, CONTROLS.get(label?.textContent.trim()) || ""];
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
  const show = ({ target }) => {
    const [element, words] = target instanceof Element ? meaningAt(target) : [];
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
  addEventListener("scroll", hide, { capture: true, passive: true });
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
}

/** Puts a box under a place of the window, above it where there is no room. */
function place(box, { left, top, bottom }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  const down = bottom + 6 + height < innerHeight ? bottom + 6 : top - height - 6;
  box.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(4, down)}px`;
}
