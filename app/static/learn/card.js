// The card of one stop: words, equation, the numbers of the step, and the way on.

import { h, list, text } from "../../../assets/viewer/dom.js";
import { HIDDEN, MARKS } from "../../../assets/viewer/words.js";
import { TURN } from "./stage.js";

const TURN_TITLE = "Now change K and γ";

export class CardView {
  /** `go(at)` shows a stop (`TURN` after the last one, where K and γ can be changed), `all()` shows everything, `open()` leads
   *  to Explore. */
  constructor({ go, all, open, walk, draws, pass, live }) {
    Object.assign(this, { go, walk, draws, pass, live, at: 0, first: 0, about: "", examples: [] });
    this.title = h("h3", { tabindex: -1 });
    this.where = h("p", { class: "where" });
    this.body = h("div", { class: "body", "aria-live": "polite", "aria-atomic": "true" });
    this.dots = h("ol", { class: "dots", "aria-label": "Stops" });
    this.back = h("button", { type: "button", class: "move", id: "learn-back" }, "← Back");
    this.next = h("button", { type: "button", class: "move next", id: "learn-next" }, "Next →");
    this.all = h("button", { type: "button", class: "quiet", id: "learn-all", "aria-pressed": "false" }, "Show everything");
    this.open = h("button", { type: "button", class: "move next", id: "learn-open" }, "Open in Explore →");
    this.keys = h("p", { class: "keys" }, h("kbd", {}, "←"), h("kbd", {}, "→"), " between stops, ", h("kbd", {}, "Esc"), " everything");
    this.foot = h("div", { class: "foot" }, this.all, this.keys);
    this.box = h("section", { class: "card", "aria-label": "Tour" }, this.where, this.title, this.body, h("div", { class: "ways" }, this.back, this.next, this.open), this.dots, this.foot);
    this.back.addEventListener("click", () => this.go(this.at - 1));
    this.next.addEventListener("click", () => this.go(this.at + 1));
    this.all.addEventListener("click", all);
    this.open.addEventListener("click", open);
    this.dots.addEventListener("click", (event) => {
      const dot = event.target.closest("button");
      if (dot) this.go(Number(dot.dataset.stop));
    });
  }

  /** Where the tour ends: K and γ cannot be changed where no other settings were replayed. */
  get last() {
    return this.live.live ? TURN : TURN - 1;
  }

  /** Shows stop `at` of a lesson, `this.first` being where Back ends; `step` and `branches` are for the turn that follows the last stop. */
  show(lesson, at, step, everything) {
    this.at = at;
    const { stops } = lesson;
    const turn = at >= stops.length;
    const stop = turn ? null : stops[at];
    this.where.textContent = turn ? `Step ${step + 1} of a recorded run · your turn` : `Step ${step + 1} of a recorded run · stop ${at + 1} of ${stops.length}`;
    this.title.textContent = turn ? TURN_TITLE : text(stop.title);
    const shown = `${at} ${step}`;
    if (shown !== this.shown || turn) this.body.replaceChildren(...(turn ? this.turn() : this.stop(stop, at)));
    if (shown !== this.shown) this.enter(stop);
    this.shown = shown;
    this.back.disabled = at === this.first;
    this.back.textContent = at === 0 && this.first < 0 ? "← The story" : "← Back";
    this.next.hidden = at >= this.last;
    this.open.hidden = !this.next.hidden;
    this.all.hidden = this.keys.hidden = turn; // everything is shown there anyway
    this.next.textContent = at === stops.length - 1 ? "Your turn →" : "Next →";
    this.all.setAttribute("aria-pressed", everything);
    this.all.textContent = everything ? "Back to this stop" : "Show everything";
    const names = [...stops.map((s) => text(s.title)), TURN_TITLE].slice(0, this.last + 1);
    if (this.dots.children.length !== names.length) this.dots.replaceChildren(...names.map((name, i) => h("li", {}, h("button", { type: "button", "data-stop": i, "aria-label": `${i < stops.length ? `Stop ${i + 1}` : "Your turn"}: ${name}`, title: name }, i < stops.length ? i + 1 : "K"))));
    [...this.dots.children].forEach((li, i) => {
      li.firstChild.classList.toggle("done", i < at);
      if (i === at) li.firstChild.setAttribute("aria-current", "step");
      else li.firstChild.removeAttribute("aria-current");
    });
  }

  /** What moves at a stop begins when it is entered. */
  enter(stop) {
    const [walk, odds] = stop ? [list(stop.walk), list(stop.odds)] : [[], []];
    if (walk.length) this.walk.load(walk);
    else this.walk.leave();
    if (odds.length) this.draws.load(odds);
    if (stop && stop.verified) this.pass.load(stop.verified);
  }

  stop(stop, at) {
    const rows = stop.numbers.map(([name, value]) => h("div", {}, h("dt", {}, h("bdi", {}, spaced(name))), h("dd", {}, h("bdi", {}, spaced(value)))));
    return [
      ...stop.say.map((sentence) => h("p", {}, h("bdi", {}, spaced(sentence)))),
      stop.equation.length ? h("p", { class: "equation", role: "math", "aria-label": stop.equation.map(([kind, words]) => (kind === "sub" ? ` sub ${words} ` : words)).join("") }, ...stop.equation.map(piece)) : "",
      list(stop.walk).length ? this.walk.box : "",
      rows.length && !list(stop.odds).length ? h("dl", { class: "values" }, ...rows) : "",
      list(stop.odds).length ? this.draws.box : "",
      stop.verified ? this.pass.box : "",
      ...list(stop.asked).map(([question, answer]) => h("details", { class: "asked" }, h("summary", {}, text(question)), h("p", {}, text(answer)))),
      at === 0 && this.about ? h("p", { class: "about" }, this.about, " Its examples: ", ...this.examples.flatMap(([name, prompt], i) => [i ? ", " : "", h("span", { title: prompt }, name)]), ".") : "",
    ];
  }

  turn() {
    return [h("p", {}, "K is how many flags get a re-draft, γ how long a block is. Move them: the text is cut into the steps that it would have taken."), this.live.box];
  }
}

/** Whitespace of tokens made visible, as in the tree; what a token holds stays text. */
const spaced = (value) => text(value).replace(HIDDEN, "◌").replace(/“([^”]*)”/g, (_, token) => "“" + [...token].map((c) => MARKS[c] || c).join("") + "”");

const piece = ([kind, words]) => (kind === "sub" || kind === "sup" ? h(kind, {}, text(words)) : kind === "var" ? h("i", {}, text(words)) : text(words));
