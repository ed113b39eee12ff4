// The story of one step in 90 seconds: six frames of words with the numbers of the recorded run, scrolled past a drawing of its drafts.

import { cycleBars, cycleOf, cycleWords, elsewhereWords } from "../../assets/viewer/numbers.js";
import { count, fixed, joined, milliseconds, quoted, visible } from "../../assets/viewer/words.js";
import { button, h, markCurrent, s, sum } from "../../assets/viewer/dom.js";
import { PAPER } from "../../assets/viewer/constants.js";
import { meanCost } from "../../assets/viewer/machine.js";

/** The draft whose tokens the target accepted last, 0 for the first draft; null where nothing was accepted. */
export function winnerOf(step) {
  const last = step.nodes.get(step.accepted.at(-1));
  return last && last.candidates.length ? Math.min(...last.candidates) : null;
}

/** Whether the step can be told: all of its nodes belong to a first draft or to re-drafts of it. */
const canTell = (step) =>
  Boolean(
    step &&
    step.draft &&
    step.boundary !== null &&
    step.nodes.size > 1 &&
    [...step.nodes.values()].every(
      (n) => n.depth === 0 || (n.candidates.length && Math.max(...n.candidates) <= step.branches.length),
    ),
  );

/** How many places are drawn: those of the text that the step brings and a few more, of `most`. */
export function placesOf(step, most) {
  const deepest = Math.max(step.drafted, ...[...step.nodes.values()].map((n) => n.depth));
  return Math.min(most, deepest, Math.max(step.committed.length, step.boundary + 4, 6));
}

/** Rows of the drawing, first draft first: its candidate number, its name and its cells. `most`: re-drafts at most; the one that
 *  won is among them. A cell is `own` where no row above has its node, and `accepted` where the target accepted it. */
export function rowsOf(step, places, most) {
  const numbers = step.branches.map((_, at) => at + 1);
  const winner = winnerOf(step);
  const shown = numbers.slice(0, most);
  if (winner > most) shown[most - 1] = winner;
  const accepted = new Set(step.accepted);
  const seen = new Set();
  return [0, ...shown].map((candidate) => {
    const nodes = [...step.nodes.values()].filter(
      (n) => n.depth > 0 && n.depth <= places && n.candidates.includes(candidate),
    );
    const cells = nodes.map((n) => ({
      id: n.id,
      parent: n.parent,
      place: n.depth,
      text: n.text,
      own: !seen.has(n.id),
      accepted: accepted.has(n.id),
    }));
    for (const { id } of cells) seen.add(id);
    return { candidate, name: candidate ? `from ${step.branches[candidate - 1].prefix}` : "draft", cells };
  });
}

const tokens = (n) => count(n, "token");
const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

/**
 * The frames of a step; none where it cannot be told.
 *
 * `run`: `steps` of the run, `plain` tokens per second of plain decoding (null: not timed), `cycle`: what `cycleOf` returns.
 */
export function framesOf(step, run) {
  if (!canTell(step)) return [];
  return [
    plainFrame(step, run),
    draftFrame(step, run),
    rejectionFrame(step),
    redraftFrame(step),
    treeFrame(step),
    costFrame(step, run),
  ].filter(Boolean);
}

function plainFrame({ committed, anchorText }, { plain }) {
  const n = committed.length;
  return {
    id: "plain",
    title: "One token in each pass",
    say: [
      `A language model writes one token, a word or a piece of one, in each pass. These ${tokens(n)} after ${quoted(anchorText)} take ${n === 1 ? "one pass" : `${n} passes, one after the other`}.`,
      plain
        ? `Where this run was recorded, plain decoding wrote a token in ${milliseconds(1 / plain)}: ${milliseconds(n / plain)} for them all.`
        : "",
    ],
  };
}

function draftFrame({ drafted, seconds }, { plain }) {
  const took = seconds.first_draft
    ? `It took ${milliseconds(seconds.first_draft)}${plain ? `; one pass of plain decoding takes ${milliseconds(1 / plain)}` : ""}.`
    : "";
  return {
    id: "draft",
    title: "A small model drafts ahead",
    say: [
      `A drafter, a much smaller network, guesses ${tokens(drafted)} at once. ${took}`.trim(),
      "A guess may be wrong. The large model, the target, has the last word.",
    ],
  };
}

function rejectionFrame({ boundary, drafted, draft, committed }) {
  if (boundary >= drafted)
    return {
      id: "rejection",
      title: "The target accepts the whole draft",
      say: [
        `The target checks all ${tokens(drafted)} in one pass, and they are what it would have written. Where it rejects one, all that follow are lost.`,
      ],
    };
  const wanted = committed[boundary];
  const wrote = quoted(draft.texts[boundary]);
  const said = wanted ? `The drafter wrote ${wrote}, the target wants ${quoted(wanted.text)}` : `It rejects ${wrote}`;
  return {
    id: "rejection",
    title: `The target rejects the ${ORDINALS[boundary] || `${boundary + 1}th`} token`,
    say: [
      `The target checks all guesses in one pass and accepts them up to the first one that it would not have written. ${said}: ${boundary ? `${tokens(boundary)} accepted` : "nothing is accepted"}, and the ${tokens(drafted - boundary)} from there on are lost.`,
      wanted ? `With the target’s own token this draft alone would bring ${tokens(boundary + 1)}.` : "",
    ],
  };
}

function redraftFrame({ branches, seconds, selected, boundary, drafted, rank, gained, random }) {
  if (!branches.length) return null;
  const second = branches.some(({ drafter }) => drafter === "second");
  const places = joined(branches.map(({ prefix }) => String(prefix)));
  const why = random
    ? "the places are drawn at random"
    : selected.length
      ? "the drafter’s own confidences tell where that is likely"
      : "there is more than one way to go on";
  const came = {
    hit: gained
      ? `One of them starts just where the draft is rejected. The re-drafts add ${tokens(gained)} that the target accepts.`
      : "One of them starts just where the draft is rejected, and is wrong at once.",
    miss: gained
      ? `They add ${tokens(gained)} that the target accepts.`
      : "None of them has what the target wants: this step is lost to the rejection.",
  };
  return {
    id: "redraft",
    title: "Draft again from there, before it happens",
    say: [
      `Where the rejection comes is not known while one drafts, but ${why}. So ${second ? "a second drafter" : "a drafter"} goes on anew after ${places} of its tokens${branches.length > 1 ? `: ${branches.length} re-drafts in one batch` : ""}${seconds.second_draft ? `, in ${milliseconds(seconds.second_draft)}` : ""}.`,
      boundary >= drafted
        ? "This time the draft was right as a whole, and they were not needed."
        : rank
          ? came.hit
          : came.miss,
    ],
  };
}

function treeFrame(step) {
  const { nodes, branches, accepted, bonus, seconds, drafted } = step;
  const all = drafted + sum(branches.map(({ prefix, texts }) => prefix + texts.length));
  const merged = branches.length
    ? `The ${branches.length + 1} drafts share their beginnings. Merged, their ${tokens(all)} are a tree of ${count(nodes.size, "node")}, the anchor included.`
    : `The draft is a chain of ${count(nodes.size, "node")}, the anchor included.`;
  const won = winnerOf(step);
  const end = bonus
    ? ` Its own next token, ${quoted(bonus.text)}, comes for free: ${tokens(accepted.length + 1)} in this step.`
    : " The text ends there.";
  return {
    id: "tree",
    title: "One tree, one pass",
    say: [
      merged,
      `The target verifies ${branches.length ? "the tree" : "it"} in one pass${seconds.verify ? `, in ${milliseconds(seconds.verify)},` : ""} and accepts ${accepted.length ? `${tokens(accepted.length)} along one path${won ? `, which ends in the re-draft from ${branches[won - 1].prefix}` : ""}` : "nothing"}.${end}`,
    ],
  };
}

function costFrame(_, { steps, alpha, cycle }) {
  return {
    id: "cost",
    title: cycle ? `${fixed(alpha, 1)} tokens for the price of ${fixed(cycle.cost, 1)}` : "What it costs",
    say: [
      `Over all ${count(steps, "step")} of this run, a step brings α = ${fixed(alpha, 2)} tokens. It also costs more than a step of plain decoding: drafts, re-drafts, and a pass over a whole tree.`,
      cycle ? cycleWords(cycle) : "Plain decoding was not timed with this run, so its speedup here is not known.",
    ],
  };
}

const NARROW = 560; // pixels; below it the drafts stand beside each other
const CHARACTER = 7.4; // width of a character of 12 pixels
const LAYOUTS = {
  wide: { gutter: 50, head: 12, least: 60, most: 110, height: 36, step: 62, places: 16, redrafts: 5, size: 13 },
  narrow: { gutter: 0, head: 22, least: 0, most: 999, height: 22, step: 26, places: 10, redrafts: 3, size: 12 },
};

/** Where the cell of a row and a place stands: place 0 is the anchor, row 0 the text of the target. */
function layoutOf(step, width) {
  const way = width < NARROW ? "narrow" : "wide";
  const l = LAYOUTS[way];
  const fit = way === "wide" ? Math.floor((width - l.gutter) / l.least) - 1 : l.places;
  const places = placesOf(step, Math.min(l.places, fit));
  const rows = rowsOf(step, places, l.redrafts);
  const across = way === "wide" ? places + 1 : rows.length + 1;
  const pitch = Math.min(l.most, (width - l.gutter - 2) / across);
  const at = (row, place) =>
    way === "wide"
      ? { x: l.gutter + place * pitch, y: l.head + row * l.step }
      : { x: row * pitch, y: l.head + place * l.step };
  const high = way === "wide" ? l.head + (rows.length + 1) * l.step : l.head + (places + 1) * l.step;
  return { ...l, way, places, rows, at, width, high, cell: pitch - (way === "wide" ? 6 : 4) };
}

/** The drawing of the story: drafts as rows of tokens, as columns on a narrow screen. What a frame shows of it is in story.css. */
class Sketch {
  constructor() {
    this.svg = s("svg", { class: "sketch", role: "img" });
  }

  draw(step, width) {
    const layout = layoutOf(step, width);
    const { svg } = this;
    svg.setAttribute("viewBox", `0 0 ${width} ${layout.high}`);
    svg.setAttribute("height", layout.high);
    svg.dataset.way = layout.way;
    svg.replaceChildren(
      ...this.edges(layout),
      ...this.names(layout),
      ...this.drafts(step, layout),
      ...this.target(step, layout),
      this.anchor(step, layout),
    );
  }

  cell({ cell, height, size }, { x, y }, kind, words) {
    const most = Math.max(2, Math.floor((cell - 6) / ((CHARACTER * size) / 12)));
    return s(
      "g",
      { class: `cell ${kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
      s("title", {}, visible(words, 60)),
      s("rect", { width: cell.toFixed(1), height, rx: 6 }),
      s(
        "text",
        { class: "word", x: (cell / 2).toFixed(1), y: height / 2 + 4.5, "font-size": size },
        visible(words, most),
      ),
    );
  }

  anchor(step, layout) {
    return this.cell(layout, layout.at(0, 0), "anchor", step.anchorText);
  }

  /** The text of the target: in the first frame each token with the number of its pass. */
  target(step, layout) {
    return step.committed.slice(0, layout.places).map(({ text }, at) => {
      const cell = this.cell(
        layout,
        layout.at(0, at + 1),
        `target${at > step.boundary ? " beyond" : ""}${at === step.boundary ? " wanted" : ""}`,
        text,
      );
      const wide = layout.way === "wide";
      cell.append(
        s(
          "text",
          {
            class: "pass",
            x: wide ? layout.cell / 2 : layout.cell + 10,
            y: wide ? layout.height + 14 : layout.height / 2 + 4.5,
            "text-anchor": wide ? "middle" : "start",
          },
          `pass ${at + 1}`,
        ),
      );
      return cell;
    });
  }

  drafts(step, layout) {
    return layout.rows.flatMap(({ candidate, cells }, row) =>
      cells.map((c) => {
        const verdict = candidate
          ? c.accepted
            ? "kept"
            : "idle"
          : c.place <= step.boundary
            ? "kept"
            : c.place === step.boundary + 1
              ? "wrong"
              : "lost";
        return this.cell(
          layout,
          layout.at(row + 1, c.place),
          `${candidate ? "again" : "first"} ${verdict}${c.own ? "" : " copy"}${c.accepted ? " accepted" : ""}`,
          c.text,
        );
      }),
    );
  }

  names(layout) {
    const wide = layout.way === "wide";
    return [{ name: "text", candidate: -1 }, ...layout.rows].map(({ name, candidate }, row) => {
      const { x, y } = layout.at(row, 0);
      const kind = candidate < 0 ? "of-text" : candidate ? "of-again" : "of-first";
      return s(
        "text",
        {
          class: `name ${kind}`,
          x: wide ? 0 : x + layout.cell / 2,
          y: wide ? y + layout.height / 2 + 4.5 : 14,
          "text-anchor": wide ? "start" : "middle",
        },
        name,
      );
    });
  }

  /** From every node to its children, where both are drawn; the anchor's come from the text's row. */
  edges(layout) {
    const { rows, at, cell, height, way } = layout;
    const placed = new Map();
    rows.forEach(({ cells }, row) =>
      cells.forEach((c) => c.own && placed.set(c.id, { ...c, ...at(row + 1, c.place) })),
    );
    const from = ({ x, y }) => (way === "wide" ? [x + cell, y + height / 2] : [x + cell / 2, y + height]);
    const to = ({ x, y }) => (way === "wide" ? [x, y + height / 2] : [x + cell / 2, y]);
    return [...placed.values()].map((c) => {
      const [[x0, y0], [x1, y1]] = [from(placed.get(c.parent) || at(0, 0)), to(c)];
      const mid =
        way === "wide"
          ? `${((x0 + x1) / 2).toFixed(1)} ${y0.toFixed(1)} ${((x0 + x1) / 2).toFixed(1)} ${y1.toFixed(1)}`
          : `${x0.toFixed(1)} ${((y0 + y1) / 2).toFixed(1)} ${x1.toFixed(1)} ${((y0 + y1) / 2).toFixed(1)}`;
      return s("path", {
        class: `link${c.accepted ? " accepted" : ""}`,
        d: `M${x0.toFixed(1)} ${y0.toFixed(1)}C${mid} ${x1.toFixed(1)} ${y1.toFixed(1)}`,
      });
    });
  }
}

/** Paragraphs that are scrolled past a drawing, which shows what the paragraph in view says. */
export class StoryView {
  /** `store`: of the run; `leave()`: on to the stops, which tell the same step in detail; `turn()`: to where K and γ can be changed. */
  constructor(store, leave, turn) {
    Object.assign(this, { store, at: 0, index: null, frames: [], seen: null });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.sketch = new Sketch();
    this.costs = h("div", { class: "costs" });
    this.elsewhere = h("p", {});
    const on = (words) => button(words, { class: "on" }, leave);
    this.turn = button("Now change K and γ →", { class: "main", hidden: true }, turn);
    this.dots = h("ol", { class: "frames", "aria-label": "The story" });
    this.dots.addEventListener("click", ({ target }) => target.dataset.frame && this.go(Number(target.dataset.frame)));
    this.text = h("div", { class: "paragraphs" });
    this.picture = h(
      "figure",
      { class: "picture" },
      h("div", { class: "head" }, this.dots, on("All stops →")),
      this.sketch.svg,
      this.costs,
    );
    this.end = h("p", { class: "end" }, this.turn, on("The stops of this step →"));
    this.box = h("div", { class: "story", hidden: true }, this.text, this.picture);
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  sumUp() {
    const { sums, summaries, baseline, header } = this.store;
    const { tokens, steps } = sums;
    this.run = { steps, plain: baseline, alpha: tokens / Math.max(1, steps), cycle: cycleOf(this.store) };
    this.method = header.method;
    this.works = summaries.map(({ work }) => work);
  }

  tells(index) {
    if (!this.run && this.store.complete) this.sumUp();
    return Boolean(this.run) && framesOf(this.store.step(index), this.run).length > 0;
  }

  show(index) {
    if (index !== this.index) {
      this.index = index;
      this.step = this.store.step(index);
      this.frames = framesOf(this.step, this.run);
      this.sections = this.frames.map(({ title, say }, at) =>
        h(
          "section",
          { "data-frame": at, tabindex: -1 },
          h("p", { class: "which" }, `${at + 1} of ${this.frames.length}`),
          h("h3", {}, title),
          ...say.filter(Boolean).map((words) => h("p", {}, h("bdi", {}, words))),
        ),
      );
      this.sections[this.sections.length - 1].append(this.elsewhere, this.end);
      this.text.replaceChildren(...this.sections);
      this.dots.replaceChildren(
        ...this.frames.map(({ title }, at) =>
          h(
            "li",
            {},
            h("button", { type: "button", "data-frame": at, "aria-label": `${at + 1}: ${title}`, title }, at + 1),
          ),
        ),
      );
      this.showCosts();
    }
    this.draw();
    this.mark(0);
  }

  /** The paragraph that is read is the last one whose top is above a line: half down the screen, or a third of what is left
   *  of it below the drawing. */
  watch() {
    const above = this.narrow ? this.picture.offsetHeight : 0;
    this.line = Math.round(above + (innerHeight - above) * (this.narrow ? 0.35 : 0.5));
    this.seen?.disconnect();
    this.seen = new IntersectionObserver(() => this.look(), {
      rootMargin: `0px 0px -${innerHeight - this.line}px 0px`,
    });
    for (const section of this.sections) this.seen.observe(section);
  }

  look() {
    const at = this.sections.findLastIndex((section) => section.getBoundingClientRect().top <= this.line);
    if (!this.going && !this.box.hidden && at >= 0 && at !== this.at) this.mark(at);
  }

  get narrow() {
    return this.sketch.svg.dataset.way === "narrow";
  }

  draw() {
    const width = this.picture.clientWidth - 24;
    if (!this.step || this.box.hidden || width < 100) return;
    this.sketch.draw(this.step, width);
    this.watch();
  }

  mark(at) {
    this.at = at;
    this.box.dataset.frame = this.frames[at].id;
    this.sketch.svg.setAttribute("aria-label", this.frames[at].title);
    for (const parts of [this.sections, [...this.dots.children].map((li) => li.firstChild)]) markCurrent(parts, at);
  }

  /** Scrolls to paragraph `at`; false where there is none. */
  go(at) {
    if (!this.frames[at]) return false;
    this.mark(at);
    clearTimeout(this.going);
    this.going = setTimeout(() => (this.going = null), this.still.matches ? 100 : 900); // paragraphs on the way are not meant
    const section = this.sections[at];
    section.focus({ preventScroll: true });
    const top = section.getBoundingClientRect().top - (this.narrow ? this.picture.offsetHeight + 8 : innerHeight * 0.3);
    scrollBy({ top, behavior: this.still.matches ? "instant" : "smooth" });
    return true;
  }

  showCosts() {
    if (!this.step) return;
    const there = meanCost(PAPER, this.method, this.works);
    const bars =
      this.run.cycle ||
      (there && { cost: there, brought: this.run.alpha, parts: [{ stage: "verify", name: "Step", cost: there }] });
    this.costs.replaceChildren(
      ...(bars
        ? [
            h(
              "h4",
              {},
              this.run.cycle
                ? "A step of this run, where it was recorded"
                : `A step of this run, with an 8B model on ${PAPER.name}`,
            ),
            cycleBars(bars),
          ]
        : []),
    );
    this.elsewhere.textContent = elsewhereWords(this.method, there, this.run.alpha);
  }
}
