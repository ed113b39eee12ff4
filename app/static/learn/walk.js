// The walk of the target through the tree, node by node. By itself only where motion is welcome.

import { h, list } from "../../../assets/viewer/dom.js";
import { probability, quoted } from "../../../assets/viewer/words.js";

const WALK_MS = { least: 320, usual: 900, all: 9000 };

export class WalkView {
  /** `moved(at)`: so many nodes were visited; null: the walk is not on. */
  constructor(moved) {
    Object.assign(this, { moved, visits: [], at: 0, timer: null });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    const button = (id, words, act) => {
      const made = h("button", { type: "button", class: "small", id }, words);
      made.addEventListener("click", act);
      return made;
    };
    this.back = button("walk-back", "◂ Node", () => this.go(this.at - 1));
    this.play = button("walk-play", "▶ Walk", () => (this.timer ? this.pause() : this.start()));
    this.next = button("walk-next", "Node ▸", () => this.go(this.at + 1));
    this.said = h("p", { class: "said", role: "status" });
    this.box = h("div", { class: "walk", role: "group", "aria-label": "Walk through the tree" }, h("div", { class: "row" }, this.back, this.play, this.next), this.said);
  }

  /** Begins at the anchor; where motion is welcome it goes on by itself. */
  load(visits) {
    clearTimeout(this.timer); // of the walk through another step
    Object.assign(this, { visits: list(visits), at: 0, timer: null });
    this.box.hidden = !this.visits.length;
    if (this.visits.length && !this.still.matches) this.start();
    else this.place(0);
  }

  /** The stop was left. */
  leave() {
    clearTimeout(this.timer);
    this.timer = null;
    this.visits = [];
    if (this.box.parentElement) this.box.parentElement.classList.remove("walking");
    this.moved(null);
  }

  start() {
    this.place(this.at >= this.visits.length ? 0 : this.at);
    const wait = Math.max(WALK_MS.least, Math.min(WALK_MS.usual, WALK_MS.all / this.visits.length));
    const on = () => {
      this.place(this.at + 1);
      this.timer = this.at < this.visits.length ? setTimeout(on, wait) : null;
      this.show();
    };
    this.timer = setTimeout(on, wait);
    this.show();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.show();
  }

  go(at) {
    this.pause();
    this.place(Math.min(this.visits.length, Math.max(0, at)));
  }

  place(at) {
    this.at = at;
    this.show();
    this.moved(at);
  }

  show() {
    const { visits, at } = this;
    // what came of it is not told before the walk has got there
    if (this.box.parentElement) this.box.parentElement.classList.toggle("walking", at < visits.length);
    const visit = visits[at - 1];
    const chance = visit && visit.probability !== null ? ` (p = ${probability(visit.probability)})` : "";
    this.said.textContent = !visit ? "At the anchor: which token does the target want next?" : `Node ${at} of ${visits.length}: the target wants ${quoted(visit.text)}${chance}. ${visit.child === null ? "No node carries it: the walk ends, and this token is the bonus." : at === visits.length ? "A node carries it: accepted; the text ends here." : "A node carries it: accepted, on to that one."}`;
    this.play.textContent = this.timer ? "❚❚ Pause" : at >= visits.length ? "▶ Walk again" : "▶ Walk";
    this.back.disabled = at === 0;
    this.next.disabled = at >= visits.length;
  }
}
