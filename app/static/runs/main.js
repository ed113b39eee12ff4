// The runs of this window: the list, the address, and the memory of the form.

import { h, text } from "../../../assets/viewer/dom.js";
import { saveFile } from "../../../assets/viewer/save.js";
import { Address, explorer } from "./address.js";
import { rememberForm } from "./form.js";
import { listenForKeys } from "./keys.js";
import { openLinked } from "./linked.js";
import { nameField, readRun, runRow } from "./list.js";

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
