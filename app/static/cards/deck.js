// The deck of a window: what was pinned, in an order of one's own, with a title, a question and notes each. The browser keeps it
// for as long as its tab is open; the server makes the file.

import { h, list, text, whole } from "../../../assets/viewer/dom.js";
import { spoken } from "../../../assets/viewer/words.js";

const KEY = "d2sd-deck";
const LESSON = "lesson"; // the recorded run of Learn, in place of a key
const MOST = { cards: 60, title: 120, question: 500, notes: 4000 };
const STOPS = ["story", "anchor", "draft", "confidence", "boundary", "re-drafts", "verify", "commit", "cost", "temperature", "K and γ"];
const TURN = STOPS.length - 1;
const VIEWS = ["explore", "quiz", "draft", "learn", "race"];
/** How a step can be shown: view and stop, as a value of the list, with its words. K and γ live, only the run of Learn has. */
const WAYS = [["explore", "Explore"], ["quiz", "Quiz"], ["draft", "Be the drafter"], ...STOPS.map((name, stop) => [`learn ${stop}`, `Learn: ${name}`])];

/** A card as it was kept, or anything else: every value bounded. */
export function readCard(raw) {
  const card = raw && typeof raw === "object" ? raw : {};
  const view = VIEWS.includes(card.view) ? card.view : "explore";
  const node = card.node === "bonus" ? "bonus" : whole(card.node, 0, 1e9, null);
  const words = Object.fromEntries(["title", "question", "notes"].map((name) => [name, text(card[name]).slice(0, MOST[name])]));
  return { view, key: text(card.key).slice(0, 64), step: whole(card.step, 0, 1e9, null), node, stop: whole(card.stop, 0, TURN, 0), ...words };
}

/** What a card shows, in a few words; `names`: of the runs, by key. */
export function cardWords({ view, key, step }, names) {
  if (view === "race") return "Race";
  const run = key === LESSON ? "run of Learn" : names.has(key) ? `run ${spoken(names.get(key), 40)}` : "a run that is no longer in the list";
  return step === null ? run : `step ${step + 1}, ${run}`;
}

/** The deck with the card at `at` moved by so many places; the same one where there is no such place. */
export function movedCards(cards, at, by) {
  if (!(at + by >= 0 && at + by < cards.length)) return cards;
  const rest = cards.filter((_, n) => n !== at);
  return [...rest.slice(0, at + by), cards[at], ...rest.slice(at + by)];
}

export class DeckView {
  /** `make(cards)`: the file is wanted. */
  constructor(make) {
    this.names = new Map();
    this.cards = this.recall();
    this.title = h("summary", {});
    this.rows = h("ol", {});
    this.said = h("p", { class: "told", role: "status" });
    this.file = h("button", { type: "button", class: "small", title: "One page that works offline, with a window for the speaker" }, "Deck file");
    this.race = h("button", { type: "button", class: "small", title: "The race of this window, as a card" }, "Pin the race");
    this.file.addEventListener("click", () => make(this.cards));
    this.race.addEventListener("click", () => this.pin({ view: "race" }));
    const hint = h("p", { class: "hint" }, "“Pin” in Share and in Learn puts what is shown here. Alt + ↑ and ↓ move a card.");
    this.box = h("details", { class: "panel kept deck" }, this.title, this.rows, hint, h("p", { class: "all" }, this.file, this.race), this.said);
    this.rows.addEventListener("keydown", (event) => {
      const by = event.altKey && { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const row = event.target.closest("li");
      if (!by || !row) return;
      event.preventDefault();
      this.move(Number(row.dataset.card), by, event.target.name || event.target.dataset.act);
    });
    this.draw();
  }

  recall() {
    try {
      return list(JSON.parse(sessionStorage.getItem(KEY))).slice(0, MOST.cards).map(readCard);
    } catch {
      return []; // storage is switched off, or holds something else
    }
  }

  keep() {
    try {
      sessionStorage.setItem(KEY, JSON.stringify(this.cards));
    } catch {} // storage is switched off: the deck lasts as long as the page
  }

  /** The runs of the list: [key, name]. */
  name(entries) {
    this.names = new Map(entries);
    for (const row of this.rows.children) row.querySelector(".what").textContent = cardWords(this.cards[Number(row.dataset.card)], this.names);
  }

  pin(raw) {
    const full = this.cards.length >= MOST.cards;
    if (!full) this.set([...this.cards, readCard(raw)]);
    this.said.textContent = full ? `A deck has at most ${MOST.cards} cards.` : `Card ${this.cards.length} was added.`;
    this.box.open = true;
  }

  set(cards) {
    this.cards = cards;
    this.keep();
    this.draw();
  }

  /** Moves a card; the focus stays in its part `part`. */
  move(at, by, part) {
    const cards = movedCards(this.cards, at, by);
    if (cards === this.cards) return;
    this.set(cards);
    this.said.textContent = `Card ${at + 1} is now card ${at + by + 1}.`;
    const again = this.rows.children[at + by].querySelector(`[name=${part}], [data-act=${part}]`);
    if (again) again.focus();
  }

  draw() {
    this.title.textContent = `Deck (${this.cards.length})`;
    this.file.disabled = !this.cards.length;
    this.rows.replaceChildren(...this.cards.map((card, at) => this.row(card, at)));
  }

  row(card, at) {
    const write = (name, kind, words) => {
      const field = h(kind, { name, maxlength: MOST[name], placeholder: words, "aria-label": `${words}, card ${at + 1}` });
      field.value = card[name];
      field.addEventListener("input", () => {
        card[name] = field.value;
        this.keep();
      });
      return field;
    };
    const tool = (act, mark, words, work) => {
      const button = h("button", { type: "button", class: "icon", "data-act": act, title: words, "aria-label": `${words}: card ${at + 1}` }, mark);
      button.addEventListener("click", work);
      return button;
    };
    const tools = h("span", { class: "moves" }, tool("up", "▲", "Move up", () => this.move(at, -1, "up")), tool("down", "▼", "Move down", () => this.move(at, 1, "down")), tool("remove", "✕", "Remove", () => this.set(this.cards.filter((_, n) => n !== at))));
    return h("li", { "data-card": at }, h("b", {}, at + 1), h("div", { class: "words" }, h("p", {}, this.views(card, at), h("span", { class: "what" }, cardWords(card, this.names))), write("title", "input", "Title"), write("question", "textarea", "Question to the class"), write("notes", "textarea", "Notes, for the speaker alone")), tools);
  }

  /** How the step is shown; a race is only a race. */
  views(card, at) {
    if (card.view === "race") return "";
    const ways = WAYS.filter(([value]) => value !== `learn ${TURN}` || card.key === LESSON);
    const select = h("select", { name: "view", "aria-label": `Shown in, card ${at + 1}` }, ...ways.map(([value, words]) => h("option", { value }, words)));
    select.value = card.view === "learn" ? `learn ${card.stop}` : card.view;
    select.addEventListener("change", () => {
      const [view, stop] = select.value.split(" ");
      Object.assign(card, { view, stop: Number(stop || 0) });
      this.keep();
    });
    return select;
  }
}
