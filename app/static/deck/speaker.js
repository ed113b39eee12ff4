// The speaker's window: notes of the card that the audience sees, the clock, and what comes next, which is drawn below.

import { h } from "../../../assets/viewer/dom.js";

/** Seconds as minutes and seconds, with hours where there are any. */
export function elapsed(seconds) {
  const two = (n) => String(n).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export class SpeakerPanel {
  /** `go(at)` shows a card, to the audience too. */
  constructor(cards, go) {
    Object.assign(this, { cards, at: 0, began: Date.now() });
    const button = (id, words, act) => {
      const made = h("button", { type: "button", id }, words);
      made.addEventListener("click", act);
      return made;
    };
    this.title = h("h2", {});
    this.question = h("p", { class: "question" });
    this.notes = h("p", { class: "notes" });
    this.next = h("h3", {});
    this.time = h("span", { class: "clock", role: "timer", "aria-label": "Time since the start" });
    this.day = h("span", { class: "day" });
    this.back = button("card-back", "◂ Back", () => go(this.at - 1));
    this.on = button("card-next", "Next ▸", () => go(this.at + 1));
    const again = button("clock-again", "Restart the clock", () => {
      this.began = Date.now();
      this.tick();
    });
    this.box = h("div", { class: "speaking" }, h("div", { class: "moves" }, this.back, this.on, this.time, this.day, again), this.title, this.question, this.notes, this.next);
    setInterval(() => this.tick(), 1000);
    this.tick();
  }

  tick() {
    this.time.textContent = elapsed((Date.now() - this.began) / 1000);
    this.day.textContent = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  }

  show(at) {
    const { title, question, notes } = this.cards[at];
    const next = this.cards[at + 1];
    this.at = at;
    this.title.textContent = `${at + 1} / ${this.cards.length}${title ? `: ${title}` : ""}`;
    this.question.textContent = question;
    this.notes.textContent = notes || "No notes.";
    this.next.textContent = next ? `Next${next.title ? `: ${next.title}` : ""}` : "This is the last card.";
    this.back.disabled = at === 0;
    this.on.disabled = !next;
    document.body.classList.toggle("last-card", !next);
  }
}
