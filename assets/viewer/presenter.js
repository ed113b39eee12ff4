// Presenting a run on a wall: sentence, tree and strip alone, twice as large, moved by keys or a clicker; with notes.

import { h, text } from "./dom.js";

const LARGE = 2; // times the usual size of type
const NOTES_MOST = 200000; // characters

/** Notes by step, from a text: “3: what to say at step 3”; lines without a number belong to the note before them. */
export function readNotes(words) {
  const notes = new Map();
  let step = null;
  for (const line of text(words).slice(0, NOTES_MOST).split(/\r?\n/)) {
    const found = /^\s*(?:step\s+)?(\d{1,6})\s*[:.)]\s*(.*)$/i.exec(line);
    if (found) step = Number(found[1]) - 1;
    if (step !== null) notes.set(step, [notes.get(step), found ? found[2] : line].filter(Boolean).join("\n"));
  }
  return notes;
}

export class PresenterView {
  /** `changed()`: everything is to be drawn anew. */
  constructor(root, changed) {
    Object.assign(this, { root, changed, on: false, notes: new Map() });
    this.file = h("input", { type: "file", accept: ".txt,.md,text/plain", "aria-label": "Speaker notes: a text file with lines such as 3: what to say", hidden: true });
    this.load = h("button", { type: "button", class: "small", title: "Speaker notes: a text file with lines such as “3: what to say at step 3”" }, "Notes…");
    this.said = h("p", { class: "notes", hidden: true });
    this.box = h("div", { class: "presenter" }, this.said, this.load, this.file);
    this.load.addEventListener("click", () => this.file.click());
    this.file.addEventListener("change", async () => {
      if (!this.file.files.length) return;
      this.notes = readNotes(await this.file.files[0].slice(0, 4 * NOTES_MOST).text());
      this.changed();
    });
  }

  get scale() {
    return this.on ? LARGE : 1;
  }

  toggle(on = !this.on) {
    this.on = on;
    this.root.classList.toggle("presenting", on);
    this.changed();
  }

  show(step) {
    const note = step === null ? "" : this.notes.get(step) || "";
    this.said.hidden = !note;
    this.said.textContent = note;
  }
}
