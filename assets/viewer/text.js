// The prompt and every committed token, coloured and underlined by proposer.

import { BONUS } from "./step.js";
import { button, h } from "./dom.js";

const LONG_PROMPT = 72; // characters; of longer prompts only the end is shown
const MANY_LINES = 60; // from this number on, lines out of view are not laid out
const FEW_LINES = 3; // boxes with fewer lines show none above the revealed token
const SETTLE = 120; // ms until lines that came into view are laid out

/** Text as nodes, with visible line breaks. */
export const broken = (text) =>
  text
    .toWellFormed()
    .split("\n")
    .flatMap((part, at) => (at ? [h("i.newline", { ariaHidden: true }), "\n", part] : [part]));

/** A token, coloured and underlined by proposer; `first`: whether it is the first of its step. */
function tokenSpan({ text, proposer }, first) {
  const span = h("span", { class: `tok ${proposer}${first ? " border" : ""}`, dir: "auto" });
  span.append(...broken(text));
  return span;
}

export class TextView {
  uses = ["data", "unfolded", "at", "pinned", "hidden", "moving", "top", "present", "fresh"];

  constructor(host, store, state) {
    Object.assign(this, { host, store, state });
    this.prompt = h("span.prompt", { dir: "auto" });
    this.output = h("div.output", {});
    host.append(this.prompt, this.output);
    this.reset();
    this.listen();
  }

  reset() {
    clearTimeout(this.resting); // the preview of a step of the previous run
    Object.assign(this, { tokens: [], shown: [], line: null, opening: [], promptText: null, scrolled: 0 });
    this.from = { unasked: null, ahead: null }; // for each class the first step whose tokens have it
    this.prompt.replaceChildren();
    this.output.replaceChildren();
    this.output.classList.remove("long");
  }

  /** Adds new steps; existing tokens are not touched. */
  append(unfolded) {
    const prompt = `${unfolded} ${this.store.prompt}`;
    if (prompt !== this.promptText) this.showPrompt(unfolded);
    this.promptText = prompt;
    if (!this.opening.length) this.opening = this.store.opening.map((c) => this.addToken(c, null, 0));
    for (let i = this.tokens.length; i < this.store.length; i += 1) {
      this.tokens.push(this.store.committed[i].map((c, at) => this.addToken(c, i, at)));
    }
  }

  showPrompt(unfolded) {
    this.prompt.classList.toggle("asked", this.store.header.config.chat === true); // the text answers the prompt instead of continuing it
    const all = this.store.prompt.toWellFormed();
    if (unfolded || all.length <= LONG_PROMPT) return this.prompt.replaceChildren(all);
    const title = "Show the whole prompt";
    const more = button("…", { class: "more", title, ariaLabel: title }, () => this.state.set({ unfolded: true }));
    return this.prompt.replaceChildren(more, all.slice(-LONG_PROMPT).trimStart());
  }

  /** Appends a token. Each line is a separate block, so that a long text is laid out line by line. `step`: null for prefill. */
  addToken(token, step, at) {
    if (!this.line) {
      this.line = h("div.line", {});
      this.output.append(this.line);
      if (this.output.childElementCount === MANY_LINES) this.output.classList.add("long");
    }
    const span = tokenSpan(token, at === 0);
    span.dataset.index = at;
    if (step !== null) span.dataset.step = step;
    span.classList.toggle("empty", !token.text);
    // a run may arrive in several slices, after `classify`
    for (const [name, from] of Object.entries(this.from))
      span.classList.toggle(name, from !== null && step !== null && step >= from);
    this.line.append(span);
    if (token.text.endsWith("\n")) this.line = null;
    return span;
  }

  /** `hidden`: the first step whose text is hidden; `moving`: whether the step is shown at a place before its end, so that later text is
   *  pale. */
  show({ unfolded, at, pinned, hidden, moving, top, following }) {
    this.append(unfolded);
    this.mark(at, pinned);
    this.classify("unasked", hidden);
    this.classify("ahead", moving ? at + 1 : null);
    this.place = { top, end: following || (hidden !== null && hidden <= at) };
  }

  mark(step, pinned) {
    for (const token of this.shown) token.classList.remove("shown", "pinned");
    this.shown = this.tokens[step] ?? [];
    for (const token of this.shown) {
      token.classList.add("shown");
      token.classList.toggle("pinned", step === pinned);
    }
  }

  classify(name, from) {
    if (from === this.from[name]) return;
    this.from[name] = from;
    this.tokens.forEach((tokens, step) =>
      tokens.forEach((token) => token.classList.toggle(name, from !== null && step >= from)),
    );
  }

  /** Scrolls to `top`, else to the end of a followed run or before a hidden step, else by whole lines until the shown step is on the
   *  second line. */
  scroll() {
    const { host, shown, place } = this;
    const [token] = shown;
    if (!host.clientHeight) return;
    let { top } = place;
    if (top === null && place.end) top = host.scrollHeight;
    else if (top === null && token) {
      const line = parseFloat(getComputedStyle(host).lineHeight);
      const box = token.getClientRects()[0] ?? token.getBoundingClientRect();
      const above = (box.top + box.bottom) / 2 - host.getBoundingClientRect().top + host.scrollTop;
      top = (Math.floor(above / line) - (host.clientHeight < FEW_LINES * line ? 0 : 1)) * line;
    }
    if (top !== null) host.scrollTop = top;
    this.scrolled = host.scrollTop;
  }

  /** The fields of the state that keep the text where it is. */
  get kept() {
    const { scrollHeight, scrollTop, clientHeight } = this.host;
    return { top: this.state.following && scrollHeight - scrollTop - clientHeight < 40 ? null : scrollTop };
  }

  listen() {
    const { host, state } = this;
    const stepOf = (event) => {
      const token = event.target.closest?.(".tok");
      return token && token.dataset.step ? Number(token.dataset.step) : null;
    };
    host.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      clearTimeout(this.resting);
      const step = stepOf(event);
      // not "pointerover", which also fires when the text scrolls below a resting pointer. After a short delay, so that a pointer that
      // only crosses the text changes nothing
      this.resting = setTimeout(() => state.preview(step, this.kept), 50);
    });
    host.addEventListener("pointerleave", () => {
      clearTimeout(this.resting);
      state.preview(null, this.kept);
    });
    host.addEventListener("click", (event) => {
      const step = stepOf(event);
      // selecting text to copy it must not pin a step
      if (step === null || String(getSelection()).length) return;
      clearTimeout(this.resting);
      const { node } = this.store.committed[step][Number(event.target.closest(".tok").dataset.index)];
      state.pin(step, node ?? BONUS, this.kept);
    });
    // lines that were never on screen have an estimated height: scroll again when the text comes into view
    new IntersectionObserver(([{ isIntersecting }]) => {
      if (isIntersecting && this.place) setTimeout(() => this.scroll(), SETTLE);
    }).observe(host);
    host.addEventListener("scroll", () => {
      if (host.clientHeight && Math.abs(host.scrollTop - this.scrolled) > 1) state.set(this.kept);
    });
  }
}
