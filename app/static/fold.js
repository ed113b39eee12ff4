// A button that opens and closes a part of the page. ✕, Escape and a press outside the part also close it.

export function start(element, trigger, props) {
  const make = (words, label) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    button.setAttribute("aria-label", label);
    return button;
  };
  const button = make(props.name, props.label);
  const close = make("✕", "Close");
  close.className = "close-fold";
  button.setAttribute("aria-controls", props.folds);
  const part = () => document.getElementById(props.folds);
  const isOpen = () => Boolean(part()?.classList.contains("open"));
  const toggle = (open, focus = true) => {
    part().classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
    if (open && !part().contains(close)) part().prepend(close);
    if (focus) (open ? close : button).focus();
  };
  button.setAttribute("aria-expanded", "false");
  button.title = props.label;
  element.replaceChildren(button);
  button.addEventListener("click", () => toggle(!isOpen()));
  close.addEventListener("click", () => toggle(false));
  document.addEventListener(
    "keydown",
    (event) => {
      if (
        event.key !== "Escape" ||
        !isOpen() ||
        event.target.closest("[role='listbox'], [aria-expanded='true'][role='combobox']")
      )
        return;
      event.stopPropagation();
      toggle(false);
    },
    true,
  );
  // presses in drop-down lists and dialogs are ignored: these are not inside the part's element
  document.addEventListener("pointerdown", ({ target }) => {
    if (
      isOpen() &&
      !part().contains(target) &&
      !element.contains(target) &&
      !target.closest("[role='listbox'], dialog")
    )
      toggle(false, false);
  });
}
