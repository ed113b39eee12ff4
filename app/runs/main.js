// A row of the list: showing a run, calling it something else, taking it along, removing it.

import { h, number, text } from "../../assets/viewer/dom.js";
import { spoken } from "../../assets/viewer/words.js";
import { saveFile } from "../../assets/viewer/share.js";
import { Address, explorer, openLinked } from "./address.js";

function readRun(raw) {
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
function runRow(run, { number, shown, ticked }, act) {
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
function nameField(row, label, done) {
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

// What is in the form of Explore goes into this browser tab's storage when the page is left, so that a reload loses nothing.

function formValue(id) {
  const field = document.querySelector(`#${id} :is(textarea, select, input)`);
  if (!field) return "";
  return field.type === "checkbox" ? String(field.checked) : field.value;
}

/** `fields`: element ids by name. */
function rememberForm(fields) {
  window.addEventListener("pagehide", () => {
    const entries = Object.entries(fields).map(([name, id]) => [name, formValue(id)]);
    try {
      sessionStorage.setItem("d2sd-form", JSON.stringify(Object.fromEntries(entries.filter(([, value]) => value !== ""))));
    } catch {
      // storage is switched off or full: the form is not remembered
    }
  });
}

// Keys that Gradio's own controls lack.

/** Ctrl + Enter runs the prompt, as Shift + Enter does; a list that is tabbed out of closes. */
function listenForKeys() {
  document.addEventListener(
    "keydown",
    (event) => {
      const { target, key } = event;
      if (key === "Tab" && target.matches("input[role='combobox'][aria-expanded='true']")) target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", code: "Escape", bubbles: true }));
      if (key !== "Enter" || !(event.ctrlKey || event.metaKey) || !target.closest("#prompt")) return;
      event.preventDefault();
      document.querySelector("#run").click();
    },
    true,
  );
}

// The runs of this window: the list, the address, and the memory of the form.

export function start(element, trigger, props, watch, server, given) {
  let data = { shown: "", runs: [] };
  let naming = false;
  let linked = false;
  const left = new Set(); // keys of the runs that the class file leaves out
  const title = h("summary", {});
  const list = h("ol", {});
  const said = h("p", { class: "said", role: "status" });
  const heading = h("input", { type: "text", maxlength: 120, placeholder: "Title of the class file", "aria-label": "Title of the class file" });
  const together = (kind, words, hint) => {
    const button = h("button", { type: "button", class: "small", title: hint, "data-kind": kind }, words);
    button.addEventListener("click", () => {
      const { pinned } = explorer() ? explorer().dataset : {};
      trigger("together", { kind, step: pinned ? Number(pinned) : null, keys: data.runs.map(({ key }) => key).filter((key) => !left.has(key)), title: heading.value });
    });
    return button;
  };
  const all = h("p", { class: "all" }, together("traces", "Save all", "All runs in one file that “Open a trace” opens"), heading, together("class", "Class file", "The ticked runs in one page that works offline, with quiz and Learn"));
  const wide = matchMedia("(min-width: 901px)").matches;
  element.replaceChildren(h("section", { class: "panels", "aria-label": "Runs of this window" }, h("details", { class: "panel kept", open: wide }, title, list, all, said)));

  const say = (words) => {
    said.textContent = words;
    setTimeout(() => said.textContent === words && (said.textContent = ""), 6000);
  };
  let moved = null; // what the focus returns to
  const move = (key, by, kind) => {
    trigger("move", { key, by });
    moved = { key, kind };
  };
  const act = {
    tick: ({ key }, on) => (on ? left.delete(key) : left.add(key)),
    up: ({ key }) => move(key, -1, "up"),
    down: ({ key }) => move(key, 1, "down"),
    show: ({ key }) => trigger("show", { key }),
    remove: ({ key }) => trigger("remove", { key }),
    file: ({ key }) => trigger("file", { key }),
    rename: ({ key, label }, row) => {
      naming = true;
      nameField(row, label, (words) => {
        naming = false;
        if (words !== null && words.trim() && words !== label) trigger("rename", { key, label: words });
        draw();
        const again = [...list.children].find((other) => other.dataset.key === key);
        if (again) again.querySelector('[data-act="rename"]').focus();
      });
    },
    link: async ({ query }) => {
      if (!query) return say("The prompt is too long for a link: save the trace instead.");
      try {
        await navigator.clipboard.writeText(`${location.origin}${location.pathname}?${query}`);
        return say("Link copied: it fills in prompt and settings, and Run makes the run again.");
      } catch {
        return say("That did not work in this browser.");
      }
    },
  };
  const address = new Address(
    () => data,
    (key, step, node) => trigger("show", { key, step, node }),
  );

  function draw() {
    if (naming) return;
    const focused = list.contains(document.activeElement) ? document.activeElement.closest("li").dataset.key : null;
    title.textContent = `Runs of this window (${data.runs.length})`;
    list.replaceChildren(...data.runs.map((run, at) => runRow(run, { number: data.runs.length - at, shown: run.key === data.shown, ticked: !left.has(run.key) }, act)));
    const again = focused && [...list.children].find((row) => row.dataset.key === focused);
    if (again) again.querySelector(moved && moved.key === focused ? `[data-act=${moved.kind}]` : ".open").focus();
    moved = null;
  }

  function save({ name, type, text: content, base64 }) {
    const bytes = base64 ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : text(content);
    saveFile(text(name), text(type), bytes);
  }

  function show() {
    let read;
    try {
      read = JSON.parse(props.value || "{}");
    } catch {
      read = {};
    }
    data = { shown: text(read.shown), runs: runsOf(read.runs) };
    element.dataset.runs = data.runs.length;
    all.hidden = data.runs.length < 2; // one run has Share
    draw();
    if (read.file) save(read.file);
    if (!linked && data.shown) {
      linked = true; // the window has its runs again: what is opened now stays in the list
      openLinked(given, (words) => {
        said.textContent = words;
        said.closest("details").open = true;
      });
    }
    address.soon();
  }

  const runsOf = (raw) => (Array.isArray(raw) ? raw.map(readRun) : []);
  rememberForm(given.form);
  listenForKeys();
  watch("value", show);
  show();
}
