// Under the tree, on its x axis: the drafter's confidence, the predicted boundaries and the true one. On a narrow screen the titles have
// lines of their own: the drawing has no margin to put them into.

import { h, s } from "./dom.js";
import { boundaryWords, fateOf, inTree, levelWords } from "./explain.js";
import { GLOSSARY } from "./glossary.js";
import { NARROW } from "./tree.js";
import { count, joined, probability, quoted, visible } from "./words.js";

export const BANDS = {
  wide: { bars: [18, 56], points: [87, 108], ends: 122, truth: 127, titles: [32, 85, 122], height: 150 },
  narrow: { bars: [34, 78], points: [124, 148], ends: 162, truth: 167, titles: [28, 96, 162], height: 190 },
};

const FLAG = 23; // how high a flag is
const VALUE = 48; // how far to the right its number goes
const TITLED = 84; // so far go the titles at the left, where they have no lines of their own
const CLOTH = { width: 19, height: 15 }; // what carries the number, with some air

/** How far every flag is lifted above its place, so that none hides the number of a likelier one; `flags`: places, likeliest
 *  first. */
export function liftFlags(flags) {
  const lifts = [];
  for (const [x, y] of flags) {
    const near = flags
      .slice(0, lifts.length)
      .map(([a, b], n) => [a, b - lifts[n]])
      .filter(([a]) => Math.abs(a - x) < CLOTH.width);
    let lift = 0;
    for (let hit; (hit = near.find(([, b]) => Math.abs(b - (y - lift)) < CLOTH.height));)
      lift = y - hit[1] + CLOTH.height;
    lifts.push(lift);
  }
  return lifts;
}

const MOST_DECADES = 5; // of the logarithmic scale of path probabilities
const MEANINGS = { c: GLOSSARY.c, r: GLOSSARY["r(i)"] };

/** Titles, whose letters say what they mean. */
const titlesOf = (titles) =>
  s(
    "g",
    { class: "titles" },
    ...titles.map(([words, y]) =>
      s(
        "text",
        { x: 4, y },
        ...words
          .split(/\b(c|r)$/)
          .map((part) => (MEANINGS[part] ? s("tspan", { class: "term", "data-meaning": MEANINGS[part] }, part) : part)),
      ),
    ),
  );

export class StripView {
  constructor(host, tree, viewport, tooltip) {
    Object.assign(this, { host, tree, viewport, tooltip, step: null });
    this.svg = s("svg", {
      role: "img",
      "aria-label": "Confidence and predicted boundaries",
      width: "100%",
      height: "100%",
    });
    host.append(this.svg);
    this.placed = () => {}; // it was drawn, at a new place of the tree maybe
    host.addEventListener("pointermove", (event) => this.point(event));
    host.addEventListener("pointerleave", () => this.tooltip.hide());
    this.svg.addEventListener("click", (event) => this.step && this.tree.answered(Math.round(this.depthAt(event))));
  }

  show({ step, fresh, secret }) {
    if (!fresh) return;
    this.step = step;
    this.place();
    this.svg.setAttribute(
      "aria-label",
      secret ? "Confidence of the first draft" : step ? this.summary() : "Confidence and predicted boundaries",
    );
  }

  summary() {
    const { selected, levels } = this.step;
    if (levels.length)
      return `${levelWords(this.step)} ${levels.map((l, at) => `Level ${at + 1}: ${inTree(l)} of ${l.best.length} kept nodes are in the tree.`).join(" ")}`;
    const named = this.step.random ? "Prefixes drawn at random" : "Predicted boundaries, likeliest first";
    const predicted = selected.length ? `${named}: ${joined(selected.map(String))}. ` : "";
    const closed =
      this.step.closed === null
        ? ""
        : `From ${this.step.closed} on nothing is re-drafted: the draft ends the text before it. `;
    return `Confidence of the first draft. ${predicted}${closed}${boundaryWords(this.step).long}`;
  }

  /** Times its usual size: a little less than the tree, so that both fit on a wall. */
  get scale() {
    return 1 + 0.7 * (this.viewport.larger - 1);
  }

  x(depth) {
    return (this.viewport.x + this.viewport.k * this.tree.x(depth)) / this.scale;
  }

  put(...parts) {
    this.svg.replaceChildren(...(this.scale === 1 ? parts : [s("g", { transform: `scale(${this.scale})` }, ...parts)]));
  }

  /** Redraws at the current zoom: text keeps its size, only positions follow the tree. */
  place() {
    const { step } = this;
    this.host.classList.toggle("narrow", this.narrow);
    this.placed();
    if (!step) return this.svg.replaceChildren();
    if (step.levels.length) return this.put(this.drawAxis(), this.drawLevels(), this.drawLevelTitles());
    if (!step.draft)
      return this.put(
        s(
          "text",
          { class: "none", x: "50%", y: 23 },
          "Nothing was drafted in this step, so there is no confidence and no boundary to show.",
        ),
      );
    const parts = [this.drawAxis(), this.drawBars()];
    if (step.boundary !== null) parts.push(this.drawBoundary());
    if (step.posterior.length) parts.push(this.drawPosterior()); // its flag over the line of the boundary
    parts.push(this.drawTitles());
    return this.put(...parts);
  }

  /** Level by level, the nodes that the next pass went on from, by the probability of their path; hollow: not verified. */
  drawLevels() {
    const { step } = this;
    const [top, bottom] = [this.band.bars[0], this.band.points[1] - 28];
    const group = s("g", { class: "levels" });
    const least = Math.min(...step.levels.flatMap(({ best }) => best.map(({ p }) => p)));
    const decades = Math.min(MOST_DECADES, Math.max(1, Math.ceil(-Math.log10(least))));
    const height = (p) => top + ((bottom - top) * Math.min(decades, -Math.log10(p))) / decades; // a path’s probability is a product
    for (let n = 0; n <= decades; n += 1) {
      const y = height(10 ** -n);
      group.append(
        s("line", { class: "base", x1: 0, x2: "100%", y1: y, y2: y }),
        n && n < decades ? s("text", { class: "tick", x: TITLED - 8, y: y + 4 }, probability(10 ** -n, n)) : "",
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
    const { bars, points } = this.band;
    const words = this.narrow ? levelWords(this.step).split(": ") : [levelWords(this.step)];
    const beside = this.narrow
      ? []
      : [
          ["level", 12],
          ["verified", points[1] - 13],
        ];
    return titlesOf([
      ...beside,
      ["path p", bars[0] + 14],
      ...words.map((line, at) => [line, points[1] + 10 + 15 * at]),
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

  drawAxis() {
    const axis = s("g", { class: "axis" });
    const free = this.narrow ? 4 : 70; // the title stands to the left of this
    for (let d = 0; d < this.step.columns; d += 1)
      if (this.x(d) > free && this.readable(d)) axis.append(s("text", { x: this.x(d), y: 12 }, d));
    return axis;
  }

  /** Whether a number fits over a column; where all are slim, over every fourth. */
  readable(depth) {
    return this.width(depth) >= 18 || (!this.tree.columns.slim && depth % 4 === 0);
  }

  drawBars() {
    const { step } = this;
    const [top, bottom] = this.band.bars;
    const bars = s("g", { class: "bars" });
    bars.append(s("line", { class: "base", x1: 0, x2: "100%", y1: bottom, y2: bottom }));
    step.draft.confidence.forEach((c, j) => {
      const k = j + 1;
      const state = fateOf(step, k);
      const height = Math.max(1, c * (bottom - top - 13));
      const x = this.x(k);
      const w = Math.max(3, Math.min(46, this.width(k) * 0.56));
      const column = s("g", { class: "column", "data-depth": k });
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
        // above the cross, where that is taller than the bar
        this.width(k) >= 28 && (this.narrow || x > TITLED + 12)
          ? s(
              "text",
              { class: "value", x, y: bottom - Math.max(height, state === "wrong" ? 12 : 0) - 3 },
              probability(c),
            )
          : "",
      );
      if (j < step.trained.length)
        column.append(
          s("path", {
            class: "trained",
            d: `M${x.toFixed(1)} ${(bottom - step.trained[j] * (bottom - top - 13) - 4.5).toFixed(1)}l4.5 4.5l-4.5 4.5l-4.5-4.5Z`,
          }),
        ); // of the confidence head, on the same scale
      if (state === "wrong") column.append(s("path", { class: "cross", d: `M${x - 3} ${bottom - 9}l6 6m0-6l-6 6` }));
    });
    return bars;
  }

  drawPosterior() {
    const { step } = this;
    const [top, bottom] = this.band.points;
    const all = [...step.posterior, step.full];
    const most = Math.max(...all, 1e-9);
    const likeliest = step.random ? null : step.selected[0];
    const free = this.narrow ? 37 : TITLED; // the title stands to the left of this
    const end = this.x(step.posterior.length + 0.5) - 17; // “all” stands from here on
    const at = all.map((r, i) => [this.x(i + 0.5), bottom - (r / most) * (bottom - top)]);
    const group = s("g", { class: "posterior" });
    group.append(s("line", { class: "base", x1: 0, x2: "100%", y1: bottom, y2: bottom }));
    group.append(
      s("polyline", {
        class: "line",
        pathLength: 1,
        points: at
          .slice(0, -1)
          .map((p) => p.join(","))
          .join(" "),
      }),
    );
    all.forEach((r, i) => {
      const [x, y] = at[i];
      const last = i === step.posterior.length;
      group.append(
        s("line", { class: "stick", "data-at": i, x1: x, x2: x, y1: bottom, y2: y }),
        last
          ? s("rect", { class: "dot", "data-at": i, x: x - 3, y: y - 3, width: 6, height: 6 })
          : s("circle", { class: "dot", "data-at": i, cx: x, cy: y, r: 2.6 }),
        (last || ((this.readable(i) || i === likeliest) && x < end)) && x > free
          ? s("text", { class: "end", "data-at": i, x, y: this.band.ends }, last ? "all" : i)
          : "",
      );
    });
    if (step.closed !== null) group.prepend(this.drawClosed());
    const flags = step.selected.map((i) => at[i]);
    const lifts = liftFlags(flags);
    const groups = step.selected.map((i, n) => {
      const [x, y] = at[i];
      // a number where no other flag is in its way: over wide columns, of the one that came true and of the likeliest, which stands highest
      const clear = !flags.some(
        ([a, b], other) => a > x && a < x + VALUE && b - lifts[other] - FLAG < y - lifts[n] - 8,
      );
      return this.drawFlag(
        x,
        y,
        lifts[n],
        n,
        i === step.boundary,
        all[i],
        clear && (i === likeliest || i === step.boundary || this.width(i) >= 50),
      );
    });
    group.append(...groups.reverse()); // likelier ones over others
    return group;
  }

  /** The places behind a drafted end of the text get no flag, however likely they are. */
  drawClosed() {
    const { step } = this;
    const [left, right] = [this.x(step.closed), this.x(step.posterior.length + 0.8)];
    const [top, bottom] = [this.band.points[0] - 20, this.band.points[1]];
    const words = ["no flag here:", "the draft ends the text"].slice(0, right - left > 150 ? 2 : 0);
    return s(
      "g",
      { class: "closed" },
      s("rect", { x: left, y: top, width: Math.max(0, right - left), height: bottom - top }),
      ...words.map((line, at) => s("text", { x: right - 4, y: top + 12 + 13 * at }, line)),
    );
  }

  /** A numbered flag: the rank of a predicted boundary, “?” where it was drawn at random. The one that came true is filled. */
  drawFlag(x, y, lift, nth, hit, r, valued) {
    const rank = this.step.random ? "?" : nth + 1;
    return s(
      "g",
      {
        class: `flag${hit ? " hit" : ""}`,
        "data-draft": rank === "?" ? null : rank,
        "data-nth": nth,
        transform: `translate(${x.toFixed(1)},${(y - lift).toFixed(1)})`,
      },
      s("path", { d: `M0 ${lift.toFixed(1)}V-${FLAG}H17L13.5-16L17-9H0` }),
      s("text", { x: 6.6, y: -11.5 }, rank),
      valued ? s("text", { class: "r", x: 19, y: -11.5 }, probability(r)) : "",
    );
  }

  drawBoundary() {
    const { step } = this;
    const x = this.x(step.boundary + 0.5);
    const words = boundaryWords(step).short;
    const w = words.length * 6.7 + 18;
    const left = Math.min(Math.max(x - w / 2, 2), this.viewport.size.width / this.scale - w - 2);
    return s(
      "g",
      { class: `truth ${step.verdict ?? ""}`, "data-verdict": step.verdict },
      s("line", { class: "boundary", x1: x, x2: x, y1: 0, y2: this.band.ends - 12 }),
      s("rect", { x: left, y: this.band.truth, width: w, height: 19, rx: 9.5 }),
      s("text", { x: left + w / 2, y: this.band.truth + 13.5 }, words),
    );
  }

  drawTitles() {
    const titles = [
      ["position", 12],
      ["confidence c", this.band.titles[0]],
      [this.step.selected.length && !this.step.random ? "boundary r" : "r, not used", this.band.titles[1]],
      [this.narrow ? "after" : "ends after", this.band.titles[2]],
    ];
    const group = titlesOf(titles.slice(this.narrow ? 1 : 0, this.step.posterior.length ? 4 : 2));
    if (this.narrow) group.append(s("text", { class: "end", x: 80, y: this.band.titles[1] }, this.values())); // which have no room beside their flags
    return group;
  }

  /** The probabilities of the flags, likeliest first. */
  values() {
    const { selected, posterior } = this.step;
    return selected
      .filter((i) => i < posterior.length)
      .map((i) => `${i}: ${probability(posterior[i])}`)
      .join("  ");
  }

  depthAt(event) {
    return this.tree.columns.depth(
      (event.clientX - this.svg.getBoundingClientRect().left - this.viewport.x) / this.viewport.k,
    );
  }

  /** Exact values under the pointer: bars above, boundary points below. */
  point(event) {
    const { step } = this;
    if (event.target.dataset.meaning) return this.tooltip.hide();
    if (
      !step ||
      (!step.draft && !step.levels.length) ||
      event.pointerType === "touch" ||
      this.host.closest("[data-quiz='asking']")
    )
      return;
    const box = this.svg.getBoundingClientRect();
    const depth = this.depthAt(event);
    const inBars = (event.clientY - box.top) / this.scale < this.band.bars[1] + 2;
    const at = inBars ? Math.round(depth) : Math.round(depth - 0.5);
    const card = step.levels.length
      ? this.levelCard(Math.round(depth))
      : inBars
        ? this.barCard(at)
        : this.pointCard(at);
    if (card) this.tooltip.show(card, event.clientX, event.clientY);
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
        `${count(level.scored, "candidate")} scored; the next pass continues from the best ${level.best.length}, by the probability of the whole path:`,
      ),
      h("ol", {}, ...level.best.slice(0, 6).map(row)),
    );
  }

  barCard(k) {
    const { draft } = this.step;
    if (k < 1 || k > draft.confidence.length) return null;
    const fate = {
      right: "The target accepted it.",
      wrong: this.step.sampled ? "The target drew another token." : "The target rejected it.",
      unseen: "The target’s choice here was not seen.",
    }[fateOf(this.step, k)];
    const trained = this.step.trained[k - 1];
    const head = trained === undefined ? "" : h("p", {}, `◆ Its confidence head says ${probability(trained, 4)}.`);
    return h(
      "div",
      {},
      h("b", {}, `c(${k}) = ${probability(draft.confidence[k - 1], 4)}`),
      h("p", {}, `First drafter’s own probability of ${quoted(draft.texts[k - 1])} at position ${k}. ${fate}`),
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
      closed
        ? "No re-draft starts here, however likely it is: the draft ends the text before this place, and nothing can follow that."
        : "",
      rank < 0
        ? ""
        : this.step.random
          ? "Drawn at random: a re-draft started here."
          : `Predicted boundary number ${rank + 1}: a re-draft started here.`,
      i === boundary ? "This is what happened." : "",
      "Click: what would a re-draft from here have added?",
    ];
    const title = last ? `all = ${probability(full, 4)}` : `r(${i}) = ${probability(posterior[i], 4)}`;
    const meaning = last
      ? "Predicted chance that the whole first draft is accepted."
      : `Predicted chance that exactly ${count(i, "drafted token")} ${i === 1 ? "is" : "are"} accepted.`;
    return h("div", {}, h("b", {}, title), h("p", {}, [meaning, ...notes].filter(Boolean).join(" ")));
  }
}
