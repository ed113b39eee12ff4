// A labelled native select. Choices and title are data and enter the page as text.

export function start(element, trigger, props, watch, server, { choices, title }) {
  const label = document.createElement("label");
  const name = document.createElement("span");
  const select = document.createElement("select");
  name.textContent = title;
  const groups = new Map([["", select]]);
  for (const choice of choices) {
    const option = document.createElement("option");
    option.value = choice.id;
    option.disabled = choice.disabled;
    option.textContent = choice.label;
    if (!groups.has(choice.group)) {
      const group = document.createElement("optgroup");
      group.label = choice.group;
      select.append(group);
      groups.set(choice.group, group);
    }
    groups.get(choice.group).append(option);
  }
  const show = () => {
    select.value = props.value;
  };
  label.append(name, select);
  element.replaceChildren(label);
  show();
  watch("value", show);
  select.addEventListener("change", () => {
    props.value = select.value;
    trigger("change");
    trigger("picked"); // by a person, not by a link or a run that the form follows
  });
}
