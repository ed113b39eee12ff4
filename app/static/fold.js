// Opens and closes a part of the page.

export function start(element, trigger, props) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = props.name;
  button.setAttribute("aria-controls", props.folds);
  button.setAttribute("aria-expanded", "false");
  element.replaceChildren(button);
  button.addEventListener("click", () => {
    const open = document.getElementById(props.folds).classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  });
}
