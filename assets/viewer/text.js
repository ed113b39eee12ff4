// The prompt and every committed token, coloured and underlined by proposer.

import { button, h } from "./dom.js";
import { BONUS } from "./tree_layout.js";
import { LONE } from "./words.js";

const LONG_PROMPT = 72; // characters; of longer prompts only the end is shown
const MANY_LINES = 60; // from this number on, lines out of view are not laid out
const FEW_LINES = 3; // boxes with fewer lines show none above the revealed token
const SETTLE = 120; // ms until lines that came into view are laid out

/** A token, coloured and underlined by proposer, with visible line breaks; `first`: whether it is the first of its step. */
export function tokenSpan({ text, proposer }, first) {
  const span = h("span", { class: `tok ${proposer}${first ? " border" : ""}`, dir: "auto" });
  text
    .replace(LONE, "\ufffd")
    .split("\n")
    .forEach((part, at) => {
      if (at) span.append(h("i", { class: "newline", "aria-hidden": "true" }), "\n");
      span.append(part);
    });
  return span;
}

export class TextView {
  constructor(host, store, selection) {
    Object.assign(this, { host, store, selection });
    this.prompt = h("span", { class: "prompt", dir: "auto" });
    this.output = h("div", { class: "output" });
    host.append(this.prompt, this.output);
    this.reset();
    this.listen();
  }

  reset() {
    clearTimeout(this.resting); // the preview of a step of the previous run
    Object.assign(this, {
      tokens: [],
      shown: null,
      sticky: true,
      late: null,
      line: null,
      opening: [],
      promptText: null,
      hidden: null,
    });
    this.prompt.replaceChildren();
    this.output.replaceChildren();
    this.output.classList.remove("long");
  }

  /** Adds new steps; existing tokens are not touched. */
  append() {
    if (this.store.prompt !== this.promptText) this.showPrompt();
    if (!this.opening.length) this.opening = this.store.opening.map((c) => this.addToken(c, null, 0));
    const before = this.tokens.length;
    for (let i = before; i < this.store.length; i += 1) {
      this.tokens.push(this.store.committed[i].map((c, at) => this.addToken(c, i, at)));
    }
    const follows = !this.store.recorded && this.selection.pinned === null; // also true for steps that arrive with the end of the run
    if (this.sticky && follows && this.tokens.length > before) this.host.scrollTop = this.host.scrollHeight;
  }

  showPrompt() {
    this.promptText = this.store.prompt;
    this.prompt.classList.toggle("asked", this.store.header.config.chat === true); // the text answers the prompt instead of continuing it
    const all = this.promptText.replace(LONE, "\ufffd");
    if (all.length <= LONG_PROMPT) return this.prompt.replaceChildren(all);
    const title = "Show the whole prompt";
    const more = button("…", { class: "more", title, "aria-label": title }, () => this.prompt.replaceChildren(all));
    return this.prompt.replaceChildren(more, all.slice(-LONG_PROMPT).trimStart());
  }

  /** Appends a token. Each line is a separate block, so that a long text is laid out line by line. `step`: null for prefill. */
  addToken(token, step, at) {
    if (!this.line) {
      this.line = h("div", { class: "line" });
      this.output.append(this.line);
      if (this.output.childElementCount === MANY_LINES) this.output.classList.add("long");
    }
    const span = tokenSpan(token, at === 0);
    span.dataset.index = at;
    if (step !== null) span.dataset.step = step;
    span.classList.toggle("empty", !token.text);
    // a run may arrive in several slices, so `hide` may be called before all steps are added
    span.classList.toggle("unasked", this.hidden !== null && step !== null && step >= this.hidden);
    this.line.append(span);
    if (token.text.endsWith("\n")) this.line = null;
    return span;
  }

  show({ at, hidden }) {
    this.append();
    this.mark(at);
    this.hide(hidden);
  }

  /** Marks the shown step, and scrolls it into view unless the pointer is over the text. */
  mark(step) {
    const pinned = this.selection.pinned;
    for (const token of (this.shown !== null && this.tokens[this.shown]) || [])
      token.classList.remove("shown", "pinned");
    this.shown = step;
    const tokens = (step !== null && this.tokens[step]) || [];
    for (const token of tokens) {
      token.classList.add("shown");
      token.classList.toggle("pinned", step === pinned);
    }
    if (tokens.length && !this.pointed && !this.selection.following) this.reveal(tokens[0]);
  }

  /** Hides the tokens of step `from` and all later ones, for games and Learn; null shows all. */
  hide(from) {
    if (from === this.hidden) return;
    this.hidden = from;
    this.tokens.forEach((tokens, step) =>
      tokens.forEach((token) => token.classList.toggle("unasked", from !== null && step >= from)),
    );
  }

  reveal(token) {
    this.late = this.visible ? null : token;
    const [box, own] = [this.host.getBoundingClientRect(), token.getClientRects()[0] ?? token.getBoundingClientRect()];
    if (own.top < box.top + 8 || own.bottom > box.bottom - 8) {
      const line = parseFloat(getComputedStyle(this.host).lineHeight); // scroll by whole lines
      const before = Math.floor((this.host.scrollTop + (own.top + own.bottom) / 2 - box.top) / line);
      this.host.scrollTop = (before - (box.height < FEW_LINES * line ? 0 : 1)) * line;
    }
  }

  listen() {
    const { host, selection } = this;
    const stepOf = (event) => {
      const token = event.target.closest && event.target.closest(".tok");
      return token && token.dataset.step ? Number(token.dataset.step) : null;
    };
    host.addEventListener("pointerover", (event) => {
      if (event.pointerType === "touch") return;
      this.pointed = true;
      clearTimeout(this.resting);
      const step = stepOf(event);
      // a short delay, so that a pointer that only crosses the text changes nothing
      this.resting = setTimeout(() => selection.preview(step), 50);
    });
    host.addEventListener("pointerleave", () => {
      this.pointed = false;
      clearTimeout(this.resting);
      selection.preview(null);
    });
    host.addEventListener("click", (event) => {
      const step = stepOf(event);
      // selecting text to copy it must not pin a step
      if (step === null || String(getSelection()).length) return;
      clearTimeout(this.resting);
      const { node } = this.store.committed[step][Number(event.target.closest(".tok").dataset.index)];
      selection.pin(step, node === null ? BONUS : node);
    });
    // lines that were never on screen have an estimated height: reveal the token again when the text comes into view
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      if (this.visible && this.late) setTimeout(() => this.late && this.reveal(this.late), SETTLE);
    }).observe(host);
    host.addEventListener("scroll", () => {
      this.sticky = host.scrollHeight - host.scrollTop - host.clientHeight < 40;
    });
  }
}
