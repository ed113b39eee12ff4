// The live view of the recorded run, in a shadow root, lit stop by stop: what has not happened yet is not shown yet.

import { h } from "../../assets/viewer/dom.js";
import { start as startLiveView } from "../../assets/viewer/main.js";
import { count } from "../../assets/viewer/words.js";

const STOPS = ["anchor", "draft", "confidence", "boundary", "branches", "verify", "commit", "cost", "temperature"];
export const TURN = STOPS.length;

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

  /** Draws the run; called once. */
  load(lines) {
    startLiveView(this.host, () => {}, { value: lines }, () => {});
    const [tree, written] = ["#tree", "#text"].map((part) => this.frame.querySelector(part));
    new MutationObserver(() => this.hideLater()).observe(written, { childList: true, subtree: true });
    new MutationObserver(() => {
      this.hideOutcome();
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
    this.hideOutcome();
    this.host.dispatchEvent(new CustomEvent("explorer:look", { detail: { start: shown < STOPS.indexOf("branches") } }));
    const written = this.frame.querySelector(`#text .tok[data-step="${step}"]`);
    requestAnimationFrame(() => this.reveal(before ? certain : written));
  }

  /** Hides what is not written yet at this stop, also of text that is drawn later on; returns the last token that is certain. */
  hideLater() {
    const { shown, step } = this;
    if (shown === undefined) return null;
    const before = shown < STOPS.indexOf("commit");
    for (const token of this.frame.querySelectorAll("#text .tok")) token.classList.toggle("later", before ? Number(token.dataset.step) >= step : shown < TURN && Number(token.dataset.step) > step);
    const certain = [...this.frame.querySelectorAll(`#text .tok[data-step="${step - 1}"]`)].pop();
    for (const token of this.frame.querySelectorAll("#text .tok.newest")) token.classList.toggle("newest", token === certain);
    if (certain) certain.classList.add("newest");
    return certain;
  }

  /** Scrolls the text, and nothing else, to a token. */
  reveal(token) {
    const box = this.frame.querySelector("#text");
    if (token && box) box.scrollTop += token.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight * 0.55;
  }

  /** How far the target has walked: `at` nodes of the path; null: no walk is on, everything that is known is shown. */
  walk(at, visits, step) {
    this.walked = at === null || at >= visits.length ? null : at;
    this.showWalk();
    const last = visits.length ? visits[visits.length - 1] : null;
    const next = at === null ? null : at < visits.length ? visits[at].node : (last.child ?? "bonus");
    this.host.dispatchEvent(new CustomEvent("explorer:select", { detail: { step, node: next } }));
  }

  showWalk() {
    this.frame.classList.toggle("walking", this.walked !== null && this.walked !== undefined);
    for (const part of this.frame.querySelectorAll("#tree [data-depth]")) part.classList.toggle("unwalked", this.walked !== null && this.walked !== undefined && Number(part.dataset.depth) > this.walked);
  }

  /** Fades what fewer re-drafts would not have; null: nothing. `brought`: the tokens that the step would have committed. */
  branches(kept, brought) {
    Object.assign(this, { kept, brought });
    this.showBranches();
  }

  showBranches() {
    const kept = this.kept ?? Infinity;
    for (const part of this.frame.querySelectorAll(":is(#tree, #strip) [data-draft]")) part.classList.toggle("unasked", Number(part.dataset.draft) > kept);
    const otherwise = this.frame.querySelector("#tree .strong .edge.unasked") !== null;
    this.frame.classList.toggle("otherwise", otherwise);
    this.said.hidden = !otherwise || !this.brought;
    if (!this.said.hidden) this.said.textContent = `With K = ${kept} this step would have brought ${count(this.brought, "token")}.`;
  }

  /** The names of the lanes tell what was accepted; before the check that is not known. */
  hideOutcome() {
    for (const lane of this.frame.querySelectorAll("#tree .lane")) {
      if (lane.dataset.whole === undefined) lane.dataset.whole = lane.textContent;
      const words = this.shown >= STOPS.indexOf("verify") ? lane.dataset.whole : lane.dataset.whole.split(" · ")[0];
      if (lane.textContent !== words) lane.textContent = words;
    }
  }
}
