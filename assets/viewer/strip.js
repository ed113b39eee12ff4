// The strip under the tree, on the same x axis: the drafter's confidence in each token, and the predicted rejection boundaries. On a narrow
// screen the titles have separate lines, because the drawing has no left margin for them.

import { clamp, h, s } from "./dom.js";
import { boundaryWords, fateOf, inTree, levelWords } from "./explain.js";
import { NARROW } from "./tree.js";
import { capital, count, joined, ordinal, afterToken, probability, quoted, share, visible } from "./words.js";

// y coordinates of bars, triangles and their numbers, from the top
export const BANDS = {
  wide: { bars: [12, 58], marks: [63, 74], values: 88, titles: [34, 48, 74, 88], height: 94 },
  narrow: { bars: [20, 66], marks: [88, 99], values: 113, titles: [12, 82], height: 118 },
};

const VALUE = 36; // pixels: width of a number under a triangle
const TITLED = 92; // pixels: width of the titles at the left
const INVITED = 170; // pixels: width of the invitation at the right
const CLOSED = "the draft ends the text here";
const SURE = "How sure the|drafter was";
const BREAKS = "Expected to break|after this token";

/** Which triangles get a number, so that none overlap. `places`: x coordinates, by priority. */
export function numbered(places) {
  const taken = [];
  for (const x of places) taken.push(taken.every((other, n) => !other || Math.abs(places[n] - x) >= VALUE));
  return taken;
}

const MOST_DECADES = 5; // range of the logarithmic scale of path probabilities

const titlesOf = (titles, strong = 1) =>
  s(
    "g.titles",
    {},
    ...titles.map(([words, y], at) => s("text", { x: 4, y, class: at < strong ? "strong" : null }, words)),
  );

export class StripView {
  constructor(host, tree, viewport, tooltip) {
    Object.assign(this, { host, tree, viewport, tooltip, step: null });
    this.svg = s("svg", {
      role: "img",
      ariaLabel: "How sure the drafter was",
      width: "100%",
      height: "100%",
    });
    host.append(this.svg);
    this.placed = () => {}; // callback after every drawing
    host.addEventListener("pointermove", (event) => this.point(event));
    host.addEventListener("pointerleave", () => this.tooltip.hide());
    this.svg.addEventListener("click", (event) => this.step && this.tree.answered(Math.round(this.depthAt(event))));
  }

  show({ step, fresh, secret }) {
    const drawn = [step, fresh, this.tree.columns, this.viewport.k, this.viewport.x];
    if (drawn.every((value, at) => value === this.drawn?.[at])) return;
    Object.assign(this, { step, drawn });
    this.place();
    this.svg.ariaLabel = secret || !step ? "How sure the drafter was" : this.summary();
  }

  summary() {
    const { selected, levels } = this.step;
    if (levels.length)
      return `${levelWords(this.step)} ${levels.map((l, at) => `Level ${at + 1}: ${inTree(l)} of ${l.best.length} kept nodes are in the tree.`).join(" ")}`;
    const named = this.step.random ? "Places drawn at random" : "Expected to break, likeliest first";
    const expected = selected.length ? `${named}: ${joined(selected.map((kept) => afterToken(kept)))}. ` : "";
    return `How sure the drafter was. ${expected}${boundaryWords(this.step)}`;
  }

  /** Scale of the strip: the strip grows less than the tree, so that both fit while presenting. */
  get scale() {
    return 1 + 0.7 * ((this.tree.larger ?? 1) - 1);
  }

  x(depth) {
    return (this.viewport.x + this.viewport.k * this.tree.x(depth)) / this.scale;
  }

  put(...parts) {
    this.svg.replaceChildren(...(this.scale === 1 ? parts : [s("g", { transform: `scale(${this.scale})` }, ...parts)]));
  }

  /** Redraws at the current zoom: positions follow the tree, text keeps its size. */
  place() {
    const { step } = this;
    this.host.classList.toggle("narrow", this.narrow);
    this.placed();
    if (!step) return this.svg.replaceChildren();
    if (step.levels.length) return this.put(this.drawAxis(), this.drawLevels(), this.drawLevelTitles());
    if (!step.draft) return this.put(s("text.none", { x: "50%", y: 23 }, "Nothing was drafted in this step."));
    const broke = step.boundary === null ? "" : this.drawBoundary();
    return this.put(
      this.drawAxis(),
      broke,
      this.drawBars(),
      step.posterior.length ? this.drawMarks() : "",
      this.drawTitles(),
    );
  }

  /** For every level, the nodes that the next pass continued, by path probability; hollow circles: nodes that were not verified. */
  drawLevels() {
    const { step } = this;
    const [top, bottom] = [this.band.bars[0], this.band.bars[1]];
    const group = s("g.levels", {});
    const least = Math.min(...step.levels.flatMap(({ best }) => best.map(({ p }) => p)));
    const decades = clamp(Math.ceil(-Math.log10(least)), 1, MOST_DECADES);
    const height = (p) => top + ((bottom - top) * Math.min(decades, -Math.log10(p))) / decades; // log scale: path probabilities are products
    for (let n = 0; n <= decades; n += 1) {
      const y = height(10 ** -n);
      group.append(
        s("line.base", { x1: 0, x2: "100%", y1: y, y2: y }),
        n && n < decades ? s("text.tick", { x: TITLED - 8, y: y + 4 }, probability(10 ** -n, n)) : "",
      );
    }
    step.levels.forEach((level, at) => {
      const x = this.x(at + 1);
      for (const { p, node } of level.best) {
        group.append(
          s("circle", {
            class: `kept ${node ? node.state : "left-out"}`,
            "data-depth": at + 1,
            cx: x,
            cy: height(p),
            r: 3,
          }),
        );
      }
      group.append(s("text", { "data-depth": at + 1, x, y: bottom + 14 }, `${inTree(level)}/${level.best.length}`));
    });
    return group;
  }

  drawLevelTitles() {
    const { bars, values } = this.band;
    const words = this.narrow ? levelWords(this.step).split(": ") : [levelWords(this.step)];
    return titlesOf([
      ["path p", bars[0] + 14],
      ...words.map((line, at) => [line, values - 15 * (words.length - 1 - at)]),
    ]);
  }

  width(depth) {
    return (this.tree.columns.width(depth) * this.viewport.k) / this.scale;
  }

  get narrow() {
    return this.viewport.size.width < NARROW;
  }

  get band() {
    return this.narrow ? BANDS.narrow : BANDS.wide;
  }

  /** Numbers of the positions, for the quiz. */
  drawAxis() {
    const axis = s("g.axis", {});
    const free = 4;
    for (let d = 0; d < this.step.columns; d += 1)
      if (this.x(d) > free && this.readable(d)) axis.append(s("text", { x: this.x(d), y: 11 }, d));
    return axis;
  }

  /** Whether to number a column: if the number fits, or else every fourth column, unless columns are slim. */
  readable(depth) {
    return this.width(depth) >= 18 || (!this.tree.columns.slim && depth % 4 === 0);
  }

  drawBars() {
    const { step } = this;
    const [top, bottom] = this.band.bars;
    const bars = s("g.bars", {});
    bars.append(s("line.base", { x1: 0, x2: "100%", y1: bottom, y2: bottom }));
    step.draft.confidence.forEach((c, j) => {
      const k = j + 1;
      const state = fateOf(step, k);
      const height = Math.max(1, c * (bottom - top - 14));
      const x = this.x(k);
      const w = clamp(this.width(k) * 0.6, 3, 48);
      const column = s("g.column", { "data-depth": k });
      bars.append(column);
      column.append(
        s("rect", {
          class: `bar ${state}`,
          "data-depth": k,
          x: x - w / 2,
          y: bottom - height,
          width: w,
          height,
          rx: 2,
        }),
        this.tree.small(share(c), state !== "unseen") <= this.width(k) - 2 && (this.narrow || x > TITLED + 18)
          ? s("text", { class: `value ${state}`, x, y: bottom - height - 4 }, share(c))
          : "",
      );
      if (j < step.trained.length)
        column.append(
          s("path.trained", {
            d: `M${x.toFixed(1)} ${(bottom - step.trained[j] * (bottom - top - 14) - 4.5).toFixed(1)}l4.5 4.5l-4.5 4.5l-4.5-4.5Z`,
          }),
        ); // the confidence head's value, on the same scale
    });
    return bars;
  }

  /** A triangle at every start of a second draft, with the predicted probability of that boundary. */
  drawMarks() {
    const { step, band } = this;
    const all = [...step.posterior, step.full];
    const xs = step.selected.map((i) => this.x(i + 0.5));
    const counted = numbered(xs);
    const [top, bottom] = band.marks;
    const group = s("g.posterior", {});
    if (step.closed !== null) group.append(...this.drawClosed());
    step.selected.forEach((i, n) => {
      const x = xs[n];
      group.append(
        s(
          "g",
          {
            class: `flag${i === step.boundary ? " hit" : ""}${n && !step.random ? "" : " first"}${step.branches[n]?.unread ? " unread" : ""}`,
            "data-draft": step.random ? null : n + 1,
            "data-nth": n,
            "data-at": i,
          },
          s("path", { d: `M${x.toFixed(1)} ${top}l6.5 ${bottom - top}h-13Z` }),
          counted[n] ? s("text", { x, y: band.values }, step.random ? "?" : share(all[i])) : "",
        ),
      );
    });
    const end = this.x(step.posterior.length + 0.5);
    if (!this.narrow && step.closed === null && !xs.some((x) => x > end - INVITED))
      group.append(s("text.invitation", { x: end, y: band.values }, "click a place: what if?"));
    return group;
  }

  /** Shades the positions after a drafted end of the text, where no second draft starts. */
  drawClosed() {
    const { step, band } = this;
    const [left, right] = [this.x(step.closed), this.x(step.posterior.length + 0.8)];
    const width = Math.max(0, right - left);
    const [y, height] = [band.marks[0] - 2, band.values - band.marks[0] + 4];
    const words = width > INVITED ? s("text.closed", { x: left + 8, y: band.values - 7 }, CLOSED) : "";
    return [s("rect.closed", { x: left, y, width, height }), words];
  }

  drawBoundary() {
    const x = this.x(this.step.boundary + 0.5);
    return s("line.boundary.truth", {
      "data-verdict": this.step.verdict,
      x1: x,
      x2: x,
      y1: 0,
      y2: this.band.marks[0] - 2,
    });
  }

  drawTitles() {
    const [sure, breaks] = [SURE, this.step.posterior.length ? BREAKS : ""].map((words) => words.split("|"));
    const { titles } = this.band;
    if (this.narrow)
      return titlesOf([
        [sure.join(" "), titles[0]],
        [breaks.join(" "), titles[1]],
      ]);
    return titlesOf(
      [...sure, ...breaks].map((words, at) => [words, titles[at]]),
      sure.length,
    );
  }

  depthAt(event) {
    return this.tree.columns.depth(
      (event.clientX - this.svg.getBoundingClientRect().left - this.viewport.x) / this.viewport.k,
    );
  }

  /** Shows exact values under the pointer: confidences in the upper part, boundary probabilities below. */
  point(event) {
    const { step } = this;
    if (event.target.dataset.meaning) return this.tooltip.hide();
    if (!step || (!step.draft && !step.levels.length) || event.pointerType === "touch") return;
    const box = this.svg.getBoundingClientRect();
    const depth = this.depthAt(event);
    const inBars = (event.clientY - box.top) / this.scale < this.band.bars[1] + 2;
    const at = inBars ? Math.round(depth) : Math.round(depth - 0.5);
    const card = step.levels.length
      ? this.levelCard(Math.round(depth))
      : inBars
        ? this.barCard(at)
        : this.pointCard(at);
    if (card) this.tooltip.show(card, event);
    else this.tooltip.hide();
  }

  levelCard(number) {
    const level = this.step.levels[number - 1];
    if (!level) return null;
    const row = ({ text: words, p, node }) =>
      h("li", {}, h("bdi", {}, visible(words, 14)), ` ${probability(p, 3)}${node ? "" : " (not verified)"}`);
    return h(
      "div",
      {},
      h("b", {}, `Level ${number}: pass ${number} of the drafter`),
      h(
        "p",
        {},
        `${count(level.scored, "candidate")} scored by the probability of the whole path. The next pass continues the best ${level.best.length}:`,
      ),
      h("ol", {}, ...level.best.slice(0, 6).map(row)),
    );
  }

  barCard(k) {
    const { draft } = this.step;
    if (k < 1 || k > draft.confidence.length) return null;
    const fate = {
      right: "The large model accepted this token.",
      wrong: this.step.sampled ? "The large model drew another token." : "The large model rejected this token.",
      unseen: "The large model’s choice here is not known.",
    }[fateOf(this.step, k)];
    const trained = this.step.trained[k - 1];
    const head = trained === undefined ? "" : h("p", {}, `◆ Confidence head: ${probability(trained, 4)}.`);
    return h(
      "div",
      {},
      h("b", {}, `c(${k}) = ${probability(draft.confidence[k - 1], 4)}`),
      h(
        "p",
        {},
        `The first drafter’s own probability of ${quoted(draft.texts[k - 1])}, token ${k} of its draft. ${fate}`,
      ),
      head,
    );
  }

  pointCard(i) {
    const { posterior, full, selected, boundary } = this.step;
    if (i < 0 || i > posterior.length || !posterior.length) return null;
    const last = i === posterior.length;
    const rank = selected.indexOf(i);
    const closed = this.step.closed !== null && i >= this.step.closed && rank < 0 && !last;
    const notes = [
      closed ? "No second draft starts here, even if this place is likely: the draft ends the text before it." : "",
      rank < 0
        ? ""
        : this.step.random
          ? "Drawn at random: a second draft started here."
          : `${capital(`${rank ? `${ordinal(rank + 1)} ` : ""}likeliest`)} place: a second draft started here.`,
      i === boundary ? "The first draft did break here." : "",
      "Click: what if a second draft had started here?",
    ];
    const title = last ? `all = ${probability(full, 4)}` : `r(${i}) = ${probability(posterior[i], 4)}`;
    const meaning = last
      ? "Estimated probability that the whole first draft is right."
      : `Estimated probability that the first draft breaks ${afterToken(i)}.`;
    return h("div", {}, h("b", {}, title), h("p", {}, [meaning, ...notes].filter(Boolean).join(" ")));
  }
}
