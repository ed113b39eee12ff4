// The list of this window's runs, the address of the page, stored values of forms, and keyboard shortcuts.

import { button, h, readJson } from "../../assets/viewer/dom.js";
import { spoken } from "../../assets/viewer/words.js";
import { copyLink, saveFile } from "../../assets/viewer/share.js";
import { explorer } from "../static/explorer.js";
import { Address, openLinked } from "./address.js";

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
    "aria-label": `Run ${number} in the class file: ${run.label}`,
    checked: ticked,
    onchange: () => act.tick(run, tick.checked),
  });
  const open = button(
    [h("b", {}, `${number}. ${spoken(run.label, 200)}`), h("span", {}, `${run.about} · ${clock(run.at)}`)],
    { class: "open", "aria-current": shown ? "true" : null, title: shown ? "Shown in Explore" : "Show in Explore" },
    () => act.show(run),
  );
  const tool = (kind, mark, words) =>
    button(mark, { class: "icon", "data-act": kind, title: words, "aria-label": `${words}: ${run.label}` }, () =>
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
    "aria-label": "Name of the run",
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

/** Keys that Gradio's controls lack: Shift + Enter and Ctrl + Enter in the prompt press the main button of the tab; Tab closes an open
 *  dropdown. */
function listenForKeys() {
  document.addEventListener(
    "keydown",
    (event) => {
      const { target, key } = event;
      if (key === "Tab" && target.matches("input[role='combobox'][aria-expanded='true']"))
        target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", code: "Escape", bubbles: true }));
      if (key !== "Enter" || !(event.shiftKey || event.ctrlKey || event.metaKey) || !target.closest("#prompt")) return;
      event.preventDefault();
      event.stopPropagation();
      [...document.querySelectorAll("#run, #start-race")].find((main) => main.offsetParent)?.click();
    },
    true,
  );
}

/** The list of this window's runs, with buttons for each run and for all runs together. */
class RunsView {
  constructor(element, trigger, options) {
    Object.assign(this, {
      element,
      trigger,
      options,
      data: { shown: "", runs: [] },
      naming: false,
      linked: false,
      moved: null,
    });
    this.left = new Set(); // keys of the runs that the class file leaves out
    this.rows = new Map(); // by key: the row and the state that it was made from
    this.title = h("summary", {});
    this.list = h("ol", {});
    this.said = h("p.said", { role: "status" });
    this.heading = h("input", {
      type: "text",
      maxlength: 120,
      placeholder: "Title of the class file",
      "aria-label": "Title of the class file",
    });
    const together = (kind, words, hint) =>
      button(words, { class: "small", title: hint, "data-kind": kind }, () => this.together(kind));
    this.all = h(
      "p.all",
      {},
      together("traces", "Save all", "All runs in one file that “Open a trace” opens"),
      button("Side by side", { class: "small", title: "The ticked runs of one prompt as lanes in Race" }, () => {
        document.querySelector("#drawer .close-fold")?.click();
        this.trigger("race", { keys: this.ticked });
      }),
      this.heading,
      together("class", "Class file", "The ticked runs in one page that works offline, with quiz and Learn"),
    );
    this.details = h(
      "details.panel.kept",
      { open: matchMedia("(min-width: 901px)").matches },
      this.title,
      this.list,
      this.all,
      this.said,
    );
    element.replaceChildren(h("section.panels", { "aria-label": "Runs of this window" }, this.details));
    this.address = new Address(
      () => this.data,
      (key, step, node) => trigger("show", { key, step, node }),
    );
    this.acts = {
      tick: ({ key }, on) => (on ? this.left.delete(key) : this.left.add(key)),
      up: ({ key }) => this.move(key, -1, "up"),
      down: ({ key }) => this.move(key, 1, "down"),
      show: ({ key }) => trigger("show", { key, open: true }),
      remove: ({ key }) => trigger("remove", { key }),
      file: ({ key }) => trigger("file", { key }),
      rename: (run, row) => this.rename(run, row),
      link: (run) => this.copyLink(run),
    };
  }

  /** Shows a new state of the list (JSON), and saves the file in it, if there is one. */
  load(value) {
    const { shown, runs, file } = readJson(value) ?? { shown: "", runs: [] };
    this.data = { shown, runs };
    this.element.dataset.runs = this.data.runs.length;
    this.all.hidden = this.data.runs.length < 2; // a single run is saved with Share
    this.draw();
    if (file) save(file);
    if (!this.linked && this.data.shown) {
      this.linked = true; // the window's runs are restored, so a trace opened now stays in the list
      openLinked(this.options, (words) => {
        this.said.textContent = words;
        this.details.open = true;
      });
    }
    this.address.soon();
  }

  draw() {
    if (this.naming) return;
    const { runs, shown } = this.data;
    const focused = this.list.contains(document.activeElement)
      ? document.activeElement.closest("li").dataset.key
      : null;
    this.title.textContent = `Runs of this window (${runs.length})`;
    // Unchanged rows stay in place: replacing one between press and release would lose the click.
    const drawn = runs.map((run, at) => {
      const is = { number: runs.length - at, shown: run.key === shown, ticked: !this.left.has(run.key) };
      const state = JSON.stringify([run, is]);
      const before = this.rows.get(run.key);
      return [run.key, before?.state === state ? before : { state, row: runRow(run, is, this.acts) }];
    });
    this.rows = new Map(drawn);
    const rows = drawn.map(([, { row }]) => row);
    for (const row of [...this.list.children]) if (!rows.includes(row)) row.remove();
    rows.forEach(
      (row, at) => this.list.children[at] === row || this.list.insertBefore(row, this.list.children[at] ?? null),
    );
    const again = focused && this.rowOf(focused);
    if (again && !again.contains(document.activeElement))
      again.querySelector(this.moved && this.moved.key === focused ? `[data-act=${this.moved.kind}]` : ".open").focus();
    this.moved = null;
  }

  rowOf(key) {
    return [...this.list.children].find((row) => row.dataset.key === key);
  }

  say(words) {
    this.said.textContent = words;
    setTimeout(() => this.said.textContent === words && (this.said.textContent = ""), 6000);
  }

  /** Requests one file: the traces of all runs, or the class file, which opens at the pinned step. */
  together(kind) {
    const pinned = explorer()?.dataset.pinned;
    const step = pinned ? Number(pinned) : null;
    this.trigger("together", { kind, step, keys: this.ticked, title: this.heading.value });
  }

  /** The keys of the ticked runs. */
  get ticked() {
    return this.data.runs.map(({ key }) => key).filter((key) => !this.left.has(key));
  }

  move(key, by, kind) {
    this.trigger("move", { key, by });
    this.moved = { key, kind }; // the focus returns to this button
  }

  rename({ key, label }, row) {
    this.naming = true;
    nameField(row, label, (words) => {
      this.naming = false;
      if (words !== null && words.trim() && words !== label) this.trigger("rename", { key, label: words });
      this.draw();
      this.rowOf(key)?.querySelector('[data-act="rename"]').focus();
    });
  }

  async copyLink({ query }) {
    this.say(
      await copyLink(
        query,
        "The prompt is too long for a link: save the trace instead.",
        "Link copied. It contains the prompt and the settings, from which the run can be repeated.",
      ),
    );
  }
}

function save({ name, type, text, base64 }) {
  saveFile(name, type, base64 ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : text);
}

export function start(element, trigger, props, watch, server, options) {
  const view = new RunsView(element, trigger, options);
  rememberForms();
  listenForKeys();
  watch("value", () => view.load(props.value));
  view.load(props.value);
}
