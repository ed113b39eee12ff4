// Finding words in prompt and output: every match is marked, Enter goes to the next one and pins its step.

import { h } from "./dom.js";

const MOST_MATCHES = 1000;

export class SearchView {
  constructor(host, textView, selection) {
    Object.assign(this, { textView, selection, matches: [], at: -1, marked: [] });
    this.input = h("input", { type: "search", placeholder: "Find in prompt and text", "aria-label": "Find in the prompt and the generated text", spellcheck: "false" });
    this.count = h("span", { class: "count", "aria-live": "polite" });
    this.box = h("div", { class: "search", role: "search" }, this.count, this.input);
    host.append(this.box);
    this.input.addEventListener("input", () => {
      this.find();
      this.openNearest();
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  open() {
    this.input.focus();
    this.input.select();
  }

  close() {
    this.input.value = "";
    this.find();
    this.textView.host.focus();
  }

  /** Another text is about to come. */
  reset() {
    this.size = "";
    this.find();
  }

  find() {
    for (const token of this.marked) token.classList.remove("found", "current");
    this.marked = [];
    this.at = -1;
    const wanted = this.input.value.toLowerCase();
    const inPrompt = this.textView.markPrompt(wanted, MOST_MATCHES).map((mark) => ({ mark }));
    this.matches = [...inPrompt, ...(wanted ? this.match(wanted) : [])];
    const said = [inPrompt.length ? `${inPrompt.length} in the prompt` : "", this.matches.length > inPrompt.length ? `${this.matches.length - inPrompt.length} in the text` : ""].filter(Boolean);
    this.count.textContent = wanted ? said.join(", ") || "nothing found" : "";
  }

  /** Looks again where the text has grown; the place that was reached stays. */
  grown() {
    const { promptText, tokens } = this.textView;
    const size = `${promptText && promptText.length} ${tokens.length}`;
    if (size === this.size) return;
    this.size = size;
    if (!this.input.value) return;
    const { at } = this;
    this.find();
    this.at = Math.min(at, this.matches.length - 1);
  }

  /** The steps in whose tokens the words begin, or, before the first step, the token itself. */
  match(wanted) {
    const tokens = [...this.textView.opening, ...this.textView.tokens.flat()];
    const starts = [];
    const found = [];
    let whole = "";
    for (const token of tokens) {
      starts.push(whole.length);
      whole += token.textContent.toLowerCase();
    }
    let first = 0;
    for (let at = whole.indexOf(wanted); at >= 0 && found.length < MOST_MATCHES; at = whole.indexOf(wanted, at + wanted.length)) {
      while (first + 1 < tokens.length && starts[first + 1] <= at) first += 1;
      const { step } = tokens[first].dataset;
      const match = step === undefined ? { mark: tokens[first] } : { step: Number(step) };
      match.tokens = [];
      found.push(match);
      for (let i = first; i < tokens.length && starts[i] < at + wanted.length; i += 1) {
        tokens[i].classList.add("found");
        match.tokens.push(tokens[i]);
        this.marked.push(tokens[i]);
      }
    }
    return found;
  }

  /** While one types: the first match in the text from the shown step on is opened, or else the first one. */
  openNearest() {
    const here = this.selection.shown ?? 0;
    const at = this.matches.findIndex(({ step }) => step !== undefined && step >= here);
    if (this.matches.length) this.show(Math.max(0, at));
  }

  go(by) {
    if (this.matches.length) this.show((this.at + by + this.matches.length) % this.matches.length);
  }

  show(at) {
    for (const token of this.marked) token.classList.remove("current");
    for (const { mark } of this.matches) if (mark) mark.classList.remove("current");
    this.at = at;
    this.count.textContent = `${this.at + 1} of ${this.matches.length}`;
    const { step, mark, tokens } = this.matches[this.at];
    for (const token of tokens || [mark]) token.classList.add("current");
    if (mark) return this.textView.reveal(mark);
    this.selection.pause();
    return this.selection.pin(step);
  }
}
