// Finding words in the output: every match is marked, Enter goes to the next one and pins its step.

class SearchView {
  constructor(host, textView, selection) {
    Object.assign(this, { textView, selection, matches: [], at: -1, marked: [] });
    this.input = h("input", { type: "search", placeholder: "Find in text", "aria-label": "Find in the generated text", spellcheck: "false" });
    this.count = h("span", { class: "count", "aria-live": "polite" });
    this.box = h("div", { class: "search", hidden: true }, this.input, this.count);
    host.append(this.box);
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  open() {
    this.box.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    this.box.hidden = true;
    this.input.value = "";
    this.find();
    this.textView.host.focus();
  }

  find() {
    for (const token of this.marked) token.classList.remove("found");
    this.marked = [];
    this.matches = [];
    this.at = -1;
    const wanted = this.input.value.toLowerCase();
    if (wanted) this.match(wanted);
    this.count.textContent = wanted ? (this.matches.length ? `${this.matches.length} found, Enter goes on` : "nothing found") : "";
  }

  match(wanted) {
    const tokens = this.textView.tokens.flat();
    const starts = [];
    let whole = "";
    for (const token of tokens) {
      starts.push(whole.length);
      whole += token.textContent.toLowerCase();
    }
    let first = 0;
    for (let found = whole.indexOf(wanted); found >= 0 && this.matches.length < 1000; found = whole.indexOf(wanted, found + wanted.length)) {
      while (first + 1 < tokens.length && starts[first + 1] <= found) first += 1;
      this.matches.push(Number(tokens[first].dataset.step));
      for (let i = first; i < tokens.length && starts[i] < found + wanted.length; i += 1) {
        tokens[i].classList.add("found");
        this.marked.push(tokens[i]);
      }
    }
  }

  go(by) {
    if (!this.matches.length) return;
    this.at = (this.at + by + this.matches.length) % this.matches.length;
    this.count.textContent = `${this.at + 1} of ${this.matches.length}`;
    this.selection.pin(this.matches[this.at]);
  }
}
