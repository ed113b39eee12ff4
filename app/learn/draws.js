// The appendix of Learn about sampling: a step drawn again and again.

import { button, h } from "../../assets/viewer/dom.js";
import { drawnAfter, oddsAfter } from "../../assets/viewer/sampling.js";
import { percent, probability, quoted, visible } from "../../assets/viewer/words.js";

/** The node after which the target decides at the boundary of the first draft, or the anchor if there is no boundary. */
export const placeOf = ({ boundary, accepted }) => [0, ...accepted][boundary ?? 0] ?? 0;

/** Draws the step again with other seeds, and counts what the target draws at one place. */
class DrawsView {
  /** `redraw(seed)` draws the step with another seed, or as recorded (null). */
  constructor(step, redraw) {
    Object.assign(this, { step, place: placeOf(step), redraw, seed: 0, counts: new Map() });
    this.odds = oddsAfter(step, this.place);
    this.rows = h("tbody", {});
    this.said = h("p.said", { role: "status" });
    const drawer = (words, times) => button(words, { class: "small", "data-times": times }, () => this.draw(times));
    const head = h(
      "tr",
      {},
      ...["the large model may write", "p", "drawn"].map((words) => h("th", { scope: "col" }, words)),
    );
    this.box = h(
      "div.draws",
      {},
      h("div.row", {}, drawer("Draw again", 1), drawer("Draw 100 times", 100)),
      this.said,
      h("table", {}, h("thead", {}, head), this.rows),
    );
    this.show();
  }

  draw(times) {
    for (let n = 0; n < times; n += 1) {
      this.seed += 1;
      const { id } = drawnAfter(this.step, this.place, this.seed);
      this.counts.set(id, 1 + (this.counts.get(id) ?? 0));
    }
    this.redraw(this.seed);
    this.show();
  }

  show() {
    const { step, place, seed, counts } = this;
    const after = quoted(place ? step.nodes.get(place).text : step.anchorText);
    this.said.textContent = seed
      ? `The drawing shows draw ${seed}${step.sampled ? "" : ", at temperature 1"}. After ${after}, each token is drawn as often as its probability p says.`
      : `What the large model may draw after ${after}; “(another)”: any token whose probability was not recorded.`;
    const drafted = new Set(
      [...step.nodes.values()].filter(({ parent }) => parent === place).map(({ token }) => token),
    );
    const row = ({ id, text, p }) =>
      h(
        "tr",
        { class: drafted.has(id) ? "drafted" : null },
        h(
          "th",
          { scope: "row" },
          h("bdi", {}, visible(text.replace(/^ (?=\S)/, ""), 16, " ")),
          drafted.has(id) ? " ✓ drafted" : "",
        ),
        h("td", {}, probability(p)),
        h("td", {}, seed ? `${counts.get(id) ?? 0}, ${percent((counts.get(id) ?? 0) / seed)}` : "—"),
      );
    this.rows.replaceChildren(...this.odds.map(row));
  }
}

/** The appendix of a step, a chapter with a `box`; false if the target's probabilities are not known. `redraw(seed)` draws the step with
 *  another seed. */
export function sampling(step, redraw) {
  return (
    oddsAfter(step, 0).length > 0 && {
      from: Infinity, // the whole step
      to: Infinity,
      numbers: [],
      id: 10,
      name: "Sampling",
      title: "Draw instead of taking the likeliest",
      say: [
        `${step.sampled ? "At temperature 0 the large model takes" : "At temperature 0, as in this run, the large model takes"} the likeliest token at every position. At a higher temperature it draws a token at random, by its probabilities.`,
        "The token is drawn first, as if nothing had been drafted. Only then is it compared with the nodes of the tree. So drafting does not change how the text is drawn.",
      ],
      box: new DrawsView(step, redraw).box,
      formula: [["var", "x"], " ~ ", ["var", "p"], "( · | text, path ),   accepted if ", ["var", "x"], " was drafted"],
      asked: [
        [
          "Textbooks accept a guess with probability min(1, p/q). Why not here?",
          "In textbooks, the drafter draws its guess at random from its probabilities q. The guess is accepted with probability min(1, p/q), where p is the large model’s probability; a rejected guess is replaced by a draw from what is left, max(0, p − q). Here, the large model draws first, and a guess is accepted if it is that draw. Both ways give the large model’s own distribution. In Explore, the card of a token shows both.",
        ],
      ],
    }
  );
}
