// The button ⋯ and the drawer that it opens. ✕, Escape and a press outside the drawer also close it.

import { button } from "../../assets/viewer/dom.js";

const LABEL = "Methods, settings and runs";

export function start(element) {
  const names = { title: LABEL, ariaLabel: LABEL, ariaControls: "drawer", ariaExpanded: false };
  const opener = button("⋯", names, () => toggle(!isOpen()));
  const close = button("✕", { class: "close-fold", ariaLabel: "Close" }, () => toggle(false));
  const drawer = () => document.getElementById("drawer");
  const isOpen = () => Boolean(drawer()?.classList.contains("open"));
  const toggle = (open, focus = true) => {
    drawer().classList.toggle("open", open);
    opener.ariaExpanded = open;
    if (open && !drawer().contains(close)) drawer().prepend(close);
    if (focus) (open ? close : opener).focus();
  };
  element.replaceChildren(opener);
  // an open list of a control handles Escape itself
  const inList = (target) => target.closest("[role='listbox'], [aria-expanded='true'][role='combobox']");
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || !isOpen() || inList(event.target)) return;
      event.stopPropagation();
      toggle(false);
    },
    true,
  );
  // presses in drop-down lists and dialogs are ignored: these are not inside the drawer's element
  document.addEventListener("pointerdown", ({ target }) => {
    const inside = drawer()?.contains(target) || element.contains(target);
    if (isOpen() && !inside && !target.closest("[role='listbox'], dialog")) toggle(false, false);
  });
}
