// The list of this window's runs, the address of the page, stored values of forms, and keyboard shortcuts.

import { button, h, readJson } from "../../assets/viewer/dom.js";
import { spoken } from "../../assets/viewer/words.js";
import { copyLink, saveFile } from "../../assets/viewer/share.js";
import { explorer } from "../static/explorer.js";
import { keepAddress, openLinked } from "./address.js";

const TOO_LONG = "The prompt is too long for a link: save the trace instead.";
const COPIED = "Link copied. It contains the prompt and the settings, from which the run can be repeated.";

/** Hours and minutes, with the date if it is not today. */
function clock(seconds) {
  const then = new Date(seconds * 1000);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return then.toDateString() === new Date().toDateString() ? time : `${then.toLocaleDateString()} ${time}`;
}

/** A row of the list with its buttons. `number`: number of the run, also in class files; `ticked`: whether the run is included in class
 *  files; `act`: handlers of the buttons by name, called with the run. */
function runRow(run, { number, shown, ticked }, act) {
  const tick = h("input", {
    type: "checkbox",
    class: "tick",
    title: "In the class file",
    ariaLabel: `Run ${number} in the class file: ${run.label}`,
    checked: ticked,
    onchange: () => act.tick(run, tick.checked),
  });
  const open = button(
    [h("b", {}, `${number}. ${spoken(run.label, 200)}`), h("span", {}, `${run.about} · ${clock(run.at)}`)],
    { class: "open", ariaCurrent: shown ? "true" : null, title: shown ? "Shown in Explore" : "Show in Explore" },
    () => act.show(run),
  );
  const tool = (kind, mark, words) =>
    button(mark, { class: "icon", "data-act": kind, title: words, ariaLabel: `${words}: ${run.label}` }, () =>
      act[kind](run, row),
    );
  const tools = h(
    "span.tools",
    {},
    tool("up", "▲", "Move up"),
    tool("down", "▼", "Move down"),
    tool("rename", "✎", "Rename"),
    tool("link", "↗", "Copy a link"),
    tool("file", "↓", "Save the trace"),
    tool("remove", "✕", "Remove"),
  );
  const row = h("li", { class: shown ? "shown" : null, "data-key": run.key }, tick, open, tools);
  return row;
}

/** Replaces the name by an input. At the end, calls `done(words)` with the new name, or with null if the name stays. */
function nameField(row, label, done) {
  const input = h("input", {
    type: "text",
    maxlength: 60,
    value: label,
    ariaLabel: "Name of the run",
    onblur: () => end(input.value),
    onkeydown: (event) => {
      event.stopPropagation();
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault(); // otherwise Enter would also press the next button with the focus
      end(event.key === "Enter" ? input.value : null);
    },
  });
  const open = row.querySelector(".open");
  let over = false;
  const end = (words) => {
    if (over) return;
    over = true;
    input.replaceWith(open);
    done(words);
  };
  open.replaceWith(input);
  input.focus();
  input.select();
}

/** Stores the values of forms (`remember` in app/settings.py) in sessionStorage when the page is left, so that a reload restores
 *  them. */
function rememberForms() {
  window.addEventListener("pagehide", () => {
    try {
      for (const [name, values] of Object.entries(window.d2sdForms ?? {}))
        sessionStorage.setItem(name, JSON.stringify(values));
    } catch {
      // storage is disabled or full: forms are not restored
    }
  });
}

/** Keys that Gradio's controls lack: Enter in the prompt presses the main button of the tab, Shift + Enter starts a line; Tab closes an
 *  open dropdown. */
function listenForKeys() {
  const ofPrompt = ({ target, key, isComposing }) => key === "Enter" && !isComposing && target.closest("#prompt");
  // with Shift + Enter Gradio submits the prompt
  document.addEventListener("keypress", (event) => ofPrompt(event) && event.stopPropagation(), true);
  document.addEventListener(
    "keydown",
    (event) => {
      const { target, key } = event;
      if (key === "Tab" && target.matches("input[role='combobox'][aria-expanded='true']"))
        target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", code: "Escape", bubbles: true }));
      if (!ofPrompt(event) || event.shiftKey) return;
      event.stopPropagation();
      event.preventDefault();
      [...document.querySelectorAll("#run, #start-race")].find((main) => main.offsetParent)?.click();
    },
    true,
  );
}

/** The list of this window's runs, with buttons for each run and for all runs together. */
function runsView(element, trigger, options) {
  let data = { shown: "", runs: [], travels: 0 };
  let naming = false; // whether a run is being renamed
  let linked = false; // whether the trace that the address names was opened
  let moved = null; // the button that moved a run
  let rows = new Map(); // by key: the row and the state that it was made from
  const left = new Set(); // keys of the runs that the class file leaves out
  const title = h("summary", {});
  const list = h("ol", {});
  const said = h("p.said", { role: "status" });
  const name = "Title of the class file";
  const heading = h("input", { type: "text", maxlength: 120, placeholder: name, ariaLabel: name });
  const small = (words, hint, act) => button(words, { class: "small", title: hint }, act);
  const sideBySide = () => {
    document.querySelector("#drawer .close-fold")?.click();
    trigger("race", { keys: ticked() });
  };
  const several = [
    small("Save all", "All runs in one file that “Open a trace” opens", () => together("traces")),
    small("Side by side", "The ticked runs of one prompt as lanes in Race", sideBySide),
  ];
  const all = h(
    "p.all",
    {},
    ...several,
    heading,
    small("Class file", "The ticked runs in one page that works offline, with quiz and Learn", () => together("class")),
  );
  const wide = matchMedia("(min-width: 901px)").matches;
  const details = h("details.panel.kept", { open: wide }, title, list, all, said);
  element.replaceChildren(h("section.panels", { ariaLabel: "Runs of this window" }, details));
  const keep = keepAddress(
    () => data,
    (place) => trigger("show", { ...place, open: false }),
  );
  const acts = {
    tick: ({ key }, on) => (on ? left.delete(key) : left.add(key)),
    up: ({ key }) => move(key, -1, "up"),
    down: ({ key }) => move(key, 1, "down"),
    show: ({ key }) => trigger("show", { key }),
    remove: ({ key }) => trigger("remove", { key }),
    file: ({ key }) => trigger("file", { key }),
    rename,
    link: async ({ query }) => say(await copyLink(query, TOO_LONG, COPIED)),
  };

  /** Shows a new state of the list (JSON), and saves the file in it, if there is one. */
  function load(value) {
    const { file, ...rest } = readJson(value) ?? { shown: "", runs: [], travels: 0 };
    data = rest;
    const { shown, runs } = data;
    element.dataset.runs = runs.length;
    all.hidden = !runs.length;
    for (const tool of several) tool.hidden = runs.length < 2; // a single run is saved with Share
    draw();
    if (file) save(file);
    if (!linked && shown) {
      linked = true; // the window's runs are restored, so a trace opened now stays in the list
      openLinked(options, (words) => {
        said.textContent = words;
        details.open = true;
      });
    }
    keep();
  }

  function draw() {
    if (naming) return;
    const { runs, shown } = data;
    const { activeElement } = document;
    const focused = list.contains(activeElement) ? activeElement.closest("li").dataset.key : null;
    title.textContent = `Runs of this window (${runs.length})`;
    // Unchanged rows stay in place: replacing one between press and release would lose the click.
    const drawn = runs.map((run, at) => {
      const is = { number: runs.length - at, shown: run.key === shown, ticked: !left.has(run.key) };
      const state = JSON.stringify([run, is]);
      const before = rows.get(run.key);
      return [run.key, before?.state === state ? before : { state, row: runRow(run, is, acts) }];
    });
    rows = new Map(drawn);
    const items = drawn.map(([, { row }]) => row);
    for (const row of [...list.children]) if (!items.includes(row)) row.remove();
    items.forEach((row, at) => list.children[at] === row || list.insertBefore(row, list.children[at] ?? null));
    const again = rows.get(focused)?.row;
    if (again && !again.contains(document.activeElement))
      again.querySelector(moved?.key === focused ? `[data-act=${moved.kind}]` : ".open").focus();
    moved = null;
  }

  function say(words) {
    said.textContent = words;
    setTimeout(() => said.textContent === words && (said.textContent = ""), 6000);
  }

  /** Requests one file: the traces of all runs, or the class file, which opens at the pinned step. */
  function together(kind) {
    const pinned = explorer()?.dataset.pinned;
    const step = pinned ? Number(pinned) : null;
    trigger("together", { kind, step, keys: ticked(), title: heading.value });
  }

  const ticked = () => data.runs.map(({ key }) => key).filter((key) => !left.has(key));

  function move(key, by, kind) {
    trigger("move", { key, by });
    moved = { key, kind }; // the focus returns to this button
  }

  function rename({ key, label }, row) {
    naming = true;
    nameField(row, label, (words) => {
      naming = false;
      if (words !== null && words.trim() && words !== label) trigger("rename", { key, label: words });
      draw();
      rows.get(key)?.row.querySelector('[data-act="rename"]').focus();
    });
  }

  return { load };
}

function save({ name, type, text, base64 }) {
  saveFile(name, type, base64 ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : text);
}

export function start(element, trigger, props, watch, server, options) {
  const view = runsView(element, trigger, options);
  rememberForms();
  listenForKeys();
  watch("value", () => view.load(props.value));
  view.load(props.value);
}
