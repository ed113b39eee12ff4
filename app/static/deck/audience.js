// The bar above what the audience sees: title and question of the card, and the way on.

import { h } from "../../../assets/viewer/dom.js";

export class AudienceBar {
  /** `go(at)` shows a card; `open()` opens the speaker's window and says whether the browser allowed it. */
  constructor(cards, go, open) {
    Object.assign(this, { cards, at: 0 });
    const button = (id, words, title, act) => {
      const made = h("button", { type: "button", id, title }, words);
      made.addEventListener("click", act);
      return made;
    };
    this.title = h("h2", {});
    this.question = h("p", { class: "question" });
    this.count = h("span", { class: "count" });
    this.said = h("span", { class: "said", role: "status" });
    this.back = button("card-back", "◂", "The card before (Page Up)", () => go(this.at - 1));
    this.next = button("card-next", "▸", "The next card (Page Down)", () => go(this.at + 1));
    const speaker = button("speaker", "Speaker", "A window with notes, next card and clock", () => (this.said.textContent = open() ? "" : "The browser did not allow another window."));
    this.box = h("div", { class: "bar" }, h("div", { class: "card-words", "aria-live": "polite" }, this.title, this.question), h("div", { class: "moves" }, this.said, this.back, this.count, this.next, speaker));
  }

  show(at) {
    const { title, question } = this.cards[at];
    this.at = at;
    this.title.textContent = title;
    this.title.hidden = !title;
    this.question.textContent = question;
    this.question.hidden = !question;
    this.count.textContent = `${at + 1} / ${this.cards.length}`;
    this.back.disabled = at === 0;
    this.next.disabled = at === this.cards.length - 1;
  }
}
