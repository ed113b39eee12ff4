// Drawing from the target's own probabilities at one place, again and again: how often a drafted token comes up.

import { h, list, number, text } from "../../../assets/viewer/dom.js";
import { count, percent, probability, quoted, visible } from "../../../assets/viewer/words.js";

export class DrawsView {
  constructor() {
    this.rows = h("tbody", {});
    this.said = h("p", { class: "said", role: "status" });
    const button = (words, times) => {
      const made = h("button", { type: "button", class: "small", "data-times": times }, words);
      made.addEventListener("click", () => this.draw(times));
      return made;
    };
    const head = h("tr", {}, ...["the target may write", "p", "drawn"].map((words) => h("th", { scope: "col" }, words)));
    this.box = h("div", { class: "draws" }, h("div", { class: "row" }, button("Draw once", 1), button("Draw 100 times", 100)), h("table", {}, h("thead", {}, head), this.rows), this.said);
  }

  /** Shows what can be drawn; what is not listed is drawn as “another token”. */
  load(odds) {
    const known = list(odds).map((o) => ({ text: text(o.text), p: number(o.probability, 0, 1, 0), drafted: o.drafted === true, count: 0 }));
    const rest = 1 - known.reduce((sum, o) => sum + o.p, 0);
    this.odds = rest > 0.0005 ? [...known, { text: null, p: rest, drafted: false, count: 0 }] : known;
    this.total = 0;
    this.box.hidden = !known.length;
    this.show("");
  }

  draw(times) {
    let last = null;
    for (let i = 0; i < times; i += 1) {
      let left = Math.random() * this.odds.reduce((sum, o) => sum + o.p, 0);
      last = this.odds.find((o) => (left -= o.p) < 0) || this.odds[0];
      last.count += 1;
    }
    this.total += times;
    const name = last.text === null ? "a token that is not listed" : quoted(last.text);
    const hits = this.odds.filter((o) => o.drafted).reduce((sum, o) => sum + o.count, 0);
    const now = times === 1 ? `Drawn: ${name}: ${last.drafted ? "a node carries it, accepted" : "no node carries it, the walk ends here"}. ` : "";
    this.show(`${now}${hits} of ${count(this.total, "draw")} accepted a drafted token.`);
  }

  show(words) {
    this.said.textContent = words;
    this.rows.replaceChildren(
      ...this.odds.map((o) =>
        h(
          "tr",
          { class: o.drafted ? "drafted" : null },
          h("th", { scope: "row" }, o.text === null ? "another token" : h("bdi", {}, visible(o.text, 16)), o.drafted ? " ✓ drafted" : ""),
          h("td", {}, probability(o.p)),
          h("td", {}, this.total ? `${o.count}, ${percent(o.count / this.total)}` : "—"),
        ),
      ),
    );
  }
}
