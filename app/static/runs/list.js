// A row of the list: showing a run, calling it something else, taking it along, removing it.

import { h, number, text } from "../../../assets/viewer/dom.js";
import { spoken } from "../../../assets/viewer/words.js";

export function readRun(raw) {
  const run = raw && typeof raw === "object" ? raw : {};
  return { key: text(run.key), run: text(run.run).slice(0, 200), label: text(run.label), about: text(run.about), at: number(run.at, 0, 1e11, 0), query: text(run.query) };
}

/** Hours and minutes, with the day where it is not today's. */
function clock(seconds) {
  const then = new Date(seconds * 1000);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return then.toDateString() === new Date().toDateString() ? time : `${then.toLocaleDateString()} ${time}`;
}

/** `number`: of the run, in class files too; `ticked`: whether it goes into them; `act`: what its buttons do, by name, each given
 *  the run. */
export function runRow(run, { number, shown, ticked }, act) {
  const tick = h("input", { type: "checkbox", class: "tick", title: "In the class file", "aria-label": `Run ${number} in the class file: ${run.label}` });
  tick.checked = ticked;
  tick.addEventListener("change", () => act.tick(run, tick.checked));
  const name = h("b", {}, `${number}. ${spoken(run.label, 60)}`);
  const open = h("button", { type: "button", class: "open", "aria-current": shown ? "true" : null, title: shown ? "Shown in Explore" : "Show in Explore" }, name, h("span", {}, `${run.about} · ${clock(run.at)}`));
  const tool = (kind, mark, words) => {
    const button = h("button", { type: "button", class: "icon", "data-act": kind, title: words, "aria-label": `${words}: ${run.label}` }, mark);
    button.addEventListener("click", () => act[kind](run, row));
    return button;
  };
  const tools = h("span", { class: "tools" }, tool("up", "▲", "Move up"), tool("down", "▼", "Move down"), tool("rename", "✎", "Rename"), tool("link", "↗", "Copy a link"), tool("file", "↓", "Save the trace"), tool("remove", "✕", "Remove"));
  const row = h("li", { class: shown ? "shown" : null, "data-key": run.key }, tick, open, tools);
  open.addEventListener("click", () => act.show(run));
  return row;
}

/** An input in place of the name; `done(words)` once, with null where nothing is to change. */
export function nameField(row, label, done) {
  const input = h("input", { type: "text", maxlength: 60, value: label, "aria-label": "Name of the run" });
  const open = row.querySelector(".open");
  let over = false;
  const end = (words) => {
    if (over) return;
    over = true;
    input.replaceWith(open);
    done(words);
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault(); // or Enter presses the button that gets the focus next
    end(event.key === "Enter" ? input.value : null);
  });
  input.addEventListener("blur", () => end(input.value));
  open.replaceWith(input);
  input.focus();
  input.select();
}
