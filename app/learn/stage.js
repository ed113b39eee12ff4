// What stands beside and in the card of a stop: the live view of the step, the walk through its tree, and draws from its target.

import { button, h, sum } from "../../assets/viewer/dom.js";
import { start as startLiveView } from "../../assets/viewer/main.js";
import { count, percent, probability, quoted, visible } from "../../assets/viewer/words.js";

const BELOW = 14; // pixels under the last token that is certain
const STOPS = ["anchor", "draft", "confidence", "boundary", "branches", "verify", "commit", "cost", "temperature"];
export const TURN = STOPS.length;

/** The live view of the recorded run, in a shadow root, lit stop by stop: what has not happened yet is not shown yet. */
export class Stage {
  /** `styles`: of the live view; `moved(step)` is called when another step is pinned in it. */
  constructor(styles, moved) {
    this.box = h("div", { class: "stage", role: "group", "aria-label": "The step, live" });
    const root = this.box.attachShadow({ mode: "open" });
    this.frame = h("div", { class: "frame" });
    this.host = h("div", {});
    this.said = h("p", { class: "otherwise-said", role: "status", hidden: true });
    this.frame.append(this.said, this.host);
    root.append(h("style", {}, styles), this.frame);
    const dark = () => this.frame.classList.toggle("dark", document.body.classList.contains("dark"));
    new MutationObserver(dark).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    dark();
    this.host.addEventListener("explorer:selected", ({ detail }) => detail.step !== null && moved(detail.step));
  }

  load(lines) {
    startLiveView(
      this.host,
      () => {},
      { value: lines, whole: true },
      () => {},
    );
    const [tree, written] = ["#tree", "#text"].map((part) => this.frame.querySelector(part));
    new MutationObserver(() => this.hideLater()).observe(written, { childList: true, subtree: true });
    new MutationObserver(() => {
      this.showWalk();
      this.showBranches();
    }).observe(tree, { childList: true, subtree: true });
  }

  get steps() {
    return Number(this.host.dataset.steps || 0);
  }

  pin(step) {
    this.host.dispatchEvent(new CustomEvent("explorer:select", { detail: { step, node: null } }));
  }

  /** Lights stop `at`; everything from TURN on. */
  light(at, step, everything) {
    const shown = everything ? TURN : at;
    Object.assign(this, { shown, step });
    this.frame.dataset.at = shown;
    this.frame.dataset.stop = everything ? "all" : STOPS[at] || "turn";
    // Classes “on1” … say what has happened so far, so that each rule is written once.
    STOPS.forEach((_, i) => this.frame.classList.toggle(`on${i}`, shown >= i));
    const before = shown < STOPS.indexOf("commit");
    const certain = this.hideLater();
    this.host.dispatchEvent(new CustomEvent("explorer:look", { detail: { start: shown < STOPS.indexOf("branches") } }));
    const written = [...this.frame.querySelectorAll(`#text .tok[data-step="${step}"]`)].pop();
    requestAnimationFrame(() => this.reveal(before ? certain : written));
  }

  /** Hides what is not written yet at this stop, also of text that is drawn later on; returns the last token that is certain. */
  hideLater() {
    const { shown, step } = this;
    if (shown === undefined) return null;
    const before = shown < STOPS.indexOf("commit");
    for (const token of this.frame.querySelectorAll("#text .tok"))
      token.classList.toggle(
        "later",
        before ? Number(token.dataset.step) >= step : shown < TURN && Number(token.dataset.step) > step,
      );
    const certain = [...this.frame.querySelectorAll(`#text .tok[data-step="${step - 1}"]`)].pop();
    for (const token of this.frame.querySelectorAll("#text .tok.newest"))
      token.classList.toggle("newest", token === certain);
    if (certain) certain.classList.add("newest");
    return certain;
  }

  reveal(token) {
    const box = this.frame.querySelector("#text");
    if (!token || !box) return;
    box.scrollTop = 0; // no further down than it takes
    box.scrollTop = token.getBoundingClientRect().bottom - box.getBoundingClientRect().bottom + BELOW;
  }

  /** How far the target has walked: `at` nodes of the path; null: no walk is on, everything that is known is shown. */
  walk(at, visits, step) {
    this.walked = at === null || at >= visits.length ? null : at;
    this.showWalk();
    const next = at === null ? null : at < visits.length ? visits[at].node : (visits.at(-1).child ?? "bonus");
    this.host.dispatchEvent(new CustomEvent("explorer:select", { detail: { step, node: next } }));
  }

  showWalk() {
    const walked = this.walked ?? Infinity;
    this.frame.classList.toggle("walking", walked < Infinity);
    for (const part of this.frame.querySelectorAll("#tree [data-depth]"))
      part.classList.toggle("unwalked", Number(part.dataset.depth) > walked);
  }

  /** Fades what fewer re-drafts would not have; null: nothing. `brought`: the tokens that the step would have committed. */
  branches(most, brought) {
    Object.assign(this, { most, brought });
    this.showBranches();
  }

  showBranches() {
    const most = this.most ?? Infinity;
    for (const part of this.frame.querySelectorAll(":is(#tree, #strip) [data-draft]"))
      part.classList.toggle("unasked", Number(part.dataset.draft) > most);
    const otherwise = this.frame.querySelector("#tree .strong .edge.unasked") !== null;
    this.frame.classList.toggle("otherwise", otherwise);
    this.said.hidden = !otherwise || !this.brought;
    if (!this.said.hidden)
      this.said.textContent = `With K = ${most} this step would have brought ${count(this.brought, "token")}.`;
  }
}

const WALK_MS = { least: 320, usual: 900, all: 9000 };

/** The walk of the target through the tree, node by node. By itself only where motion is welcome. */
export class WalkView {
  /** `moved(at)`: so many nodes were visited; null: the walk is not on. */
  constructor(moved) {
    Object.assign(this, { moved, visits: [], at: 0, timer: null });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    const tool = (id, words, act) => button(words, { class: "small", id }, act);
    this.back = tool("walk-back", "◂ Node", () => this.go(this.at - 1));
    this.play = tool("walk-play", "▶ Walk", () => (this.timer ? this.go(this.at) : this.start()));
    this.next = tool("walk-next", "Node ▸", () => this.go(this.at + 1));
    this.said = h("p", { class: "said", role: "status" });
    this.box = h(
      "div",
      { class: "walk", role: "group", "aria-label": "Walk through the tree" },
      h("div", { class: "row" }, this.back, this.play, this.next),
      this.said,
    );
  }

  /** Begins at the anchor; where motion is welcome it goes on by itself. */
  load(visits) {
    this.pause(); // of the walk through another step
    Object.assign(this, { visits, at: 0 });
    if (this.still.matches) this.place(0);
    else this.start();
  }

  leave() {
    this.pause();
    this.visits = [];
    this.box.classList.remove("walking");
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
    this.box.classList.toggle("walking", at < visits.length);
    const visit = visits[at - 1];
    const chance = visit && visit.probability !== null ? ` (p = ${probability(visit.probability)})` : "";
    this.said.textContent = !visit
      ? "At the anchor: which token does the target want next?"
      : `Node ${at} of ${visits.length}: the target wants ${quoted(visit.text)}${chance}. ${visit.child === null ? "No node carries it: the walk ends, and this token is the bonus." : at === visits.length ? "A node carries it: accepted; the text ends here." : "A node carries it: accepted, on to that one."}`;
    this.play.textContent = this.timer ? "❚❚ Pause" : at >= visits.length ? "▶ Walk again" : "▶ Walk";
    this.back.disabled = at === 0;
    this.next.disabled = at >= visits.length;
  }
}

/** Drawing from the target's own probabilities at one place, again and again: how often a drafted token comes up. */
export class DrawsView {
  constructor() {
    this.rows = h("tbody", {});
    this.said = h("p", { class: "said", role: "status" });
    const drawer = (words, times) => button(words, { class: "small", "data-times": times }, () => this.draw(times));
    const head = h(
      "tr",
      {},
      ...["the target may write", "p", "drawn"].map((words) => h("th", { scope: "col" }, words)),
    );
    this.box = h(
      "div",
      { class: "draws" },
      h("div", { class: "row" }, drawer("Draw once", 1), drawer("Draw 100 times", 100)),
      h("table", {}, h("thead", {}, head), this.rows),
      this.said,
    );
  }

  /** Shows what can be drawn; what is not listed is drawn as “another token”. */
  load(odds) {
    const known = odds.map(({ text, probability: p, drafted }) => ({ text, p, drafted, count: 0 }));
    const rest = 1 - sum(known.map(({ p }) => p));
    this.odds = rest > 0.0005 ? [...known, { text: null, p: rest, drafted: false, count: 0 }] : known;
    this.total = 0;
    this.show("");
  }

  draw(times) {
    let last = null;
    for (let i = 0; i < times; i += 1) {
      let left = Math.random() * sum(this.odds.map(({ p }) => p));
      last = this.odds.find((o) => (left -= o.p) < 0) || this.odds[0];
      last.count += 1;
    }
    this.total += times;
    const name = last.text === null ? "a token that is not listed" : quoted(last.text);
    const hits = sum(this.odds.map((o) => (o.drafted ? o.count : 0)));
    const now =
      times === 1
        ? `Drawn: ${name}: ${last.drafted ? "a node carries it, accepted" : "no node carries it, the walk ends here"}. `
        : "";
    this.show(`${now}${hits} of ${count(this.total, "draw")} accepted a drafted token.`);
  }

  show(words) {
    this.said.textContent = words;
    const row = ({ text, p, drafted, count: drawn }) =>
      h(
        "tr",
        { class: drafted ? "drafted" : null },
        h(
          "th",
          { scope: "row" },
          text === null ? "another token" : h("bdi", {}, visible(text, 16)),
          drafted ? " ✓ drafted" : "",
        ),
        h("td", {}, probability(p)),
        h("td", {}, this.total ? `${drawn}, ${percent(drawn / this.total)}` : "—"),
      );
    this.rows.replaceChildren(...this.odds.map(row));
  }
}
