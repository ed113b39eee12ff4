// The appendix of Learn about sampling: a step drawn again and again.

import { button, h, table } from "../../assets/viewer/dom.js";
import { drawnAfter, oddsAfter } from "../../assets/viewer/sampling.js";
import { percent, probability, quoted, visible } from "../../assets/viewer/words.js";

/** The node after which the target decides at the boundary of the first draft, or the anchor if there is no boundary. */
export const placeOf = ({ boundary, accepted }) => [0, ...accepted][boundary ?? 0] ?? 0;

/** A table that counts what the target draws at one place, with buttons that draw again. `redraw(seed)` draws the step with another seed. */
function drawsBox(step, redraw) {
  const place = placeOf(step);
  const counts = new Map(); // by token id
  let seed = 0; // number of draws so far
  const said = h("p.said", { role: "status" });
  const drawer = (words, times) => button(words, { class: "small", "data-times": times }, () => draw(times));
  const drawn = table(["the large model may write", "p", "drawn"], []);
  const tools = h("div.row", {}, drawer("Draw again", 1), drawer("Draw 100 times", 100));
  const drafted = new Set([...step.nodes.values()].filter(({ parent }) => parent === place).map(({ token }) => token));
  const after = quoted(place ? step.nodes.get(place).text : step.anchorText);

  function draw(times) {
    for (let n = 0; n < times; n += 1) {
      seed += 1;
      const { id } = drawnAfter(step, place, seed);
      counts.set(id, 1 + (counts.get(id) ?? 0));
    }
    redraw(seed);
    show();
  }

  function show() {
    said.textContent = seed
      ? `The drawing shows draw ${seed}${step.sampled ? "" : ", at temperature 1"}. After ${after}, each token is drawn as often as its probability p says.`
      : `What the large model may draw after ${after}; “(another)”: any token whose probability was not recorded.`;
    drawn.tBodies[0].replaceChildren(...oddsAfter(step, place).map(row));
  }

  function row({ id, text, p }) {
    const word = h("bdi", {}, visible(text.replace(/^ (?=\S)/, ""), 16, " "));
    const times = counts.get(id) ?? 0;
    return h(
      "tr",
      { class: drafted.has(id) ? "drafted" : null },
      h("th", { scope: "row" }, word, drafted.has(id) ? " ✓ drafted" : ""),
      h("td", {}, probability(p)),
      h("td", {}, seed ? `${times}, ${percent(times / seed)}` : "—"),
    );
  }

  show();
  return h("div.draws", {}, tools, said, drawn);
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
      box: drawsBox(step, redraw),
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
