// The strip under the tree, on the same x axis: the drafter's confidence in each token, and the predicted rejection boundaries. On a narrow
// screen the titles have separate lines, because the drawing has no left margin for them.

import { clamp, h, s } from "./dom.js";
import { boundaryWords, fateOf, inTree, levelWords } from "./explain.js";
import { counted } from "./quiz.js";
import { NARROW } from "./tree.js";
import { capital, count, joined, ordinal, afterToken, probability, quoted, share, visible } from "./words.js";

// y coordinates of bars, triangles and their numbers, from the top
export const BANDS = {
  wide: { bars: [12, 58], marks: [63, 74], values: 88, titles: [34, 48, 74, 88], height: 94 },
  narrow: { bars: [20, 66], marks: [88, 99], values: 113, titles: [12, 82], height: 118 },
};

const VALUE = 36; // pixels: width of a number under a triangle
const TITLED = 92; // pixels: width of the titles at the left
const NUMBERED = 18; // pixels above a full bar, for its per cent and for the number of its position
const INVITED = 190; // pixels: width of the invitation at the right
const CLOSED = "the draft ends the text here";
const TITLES = [
  ["How sure the", "drafter was"],
  ["Expected to break", "after this token"],
];
const SURE = TITLES[0].join(" ");

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

/** Draws the strip; `placed` of the result is called with the step and the place below the bars, whenever the strip is drawn. */
export function stripView(host, tree, viewport, tooltip) {
  let step = null;
  let drawn = []; // what the latest drawing depends on
  let narrow, band, scale;
  let votes = null; // places that the class voted for, null if none are counted
  const svg = s("svg", { role: "img", ariaLabel: SURE, width: "100%", height: "100%" });
  host.append(svg);
  host.addEventListener("pointermove", point);
  host.addEventListener("pointerleave", tooltip.hide);
  svg.addEventListener("click", (event) => step && tree.answered(Math.round(depthAt(event))));
  const strip = {
    host,
    svg,
    viewport,
    left: (depth) => viewport.x + viewport.k * tree.x(depth),
    show,
    place,
    placed() {},
  };

  function show({ step: shown, fresh, secret, hands, votes: cast }) {
    votes = secret && hands ? cast : null;
    const now = [shown, fresh, votes, tree.columns, viewport.k, viewport.x];
    if (now.every((value, at) => value === drawn[at])) return;
    [step, drawn] = [shown, now];
    place();
    svg.ariaLabel = secret || !step ? SURE : summary();
  }

  function summary() {
    const { selected, levels } = step;
    if (levels.length)
      return `${levelWords(step)} ${levels.map((l, at) => `Level ${at + 1}: ${inTree(l)} of ${l.best.length} continued nodes are in the tree.`).join(" ")}`;
    const named = step.random ? "Places drawn at random" : "Expected to break, likeliest first";
    const expected = selected.length ? `${named}: ${joined(selected.map((kept) => afterToken(kept)))}. ` : "";
    return `${SURE}. ${expected}${boundaryWords(step)}`;
  }

  const xOf = (depth) => strip.left(depth) / scale;

  /** Redraws at the current zoom: positions follow the tree, text keeps its size. */
  function place() {
    narrow = viewport.size.width < NARROW;
    band = narrow ? BANDS.narrow : BANDS.wide;
    scale = tree.larger;
    host.classList.toggle("narrow", narrow);
    const top = band.bars[1] + 2;
    strip.placed(step, top * scale, (band.height - top) * scale);
    const parts = step ? partsOf() : [];
    svg.replaceChildren(...(scale === 1 ? parts : [s("g", { transform: `scale(${scale})` }, ...parts)]));
  }

  function partsOf() {
    if (step.levels.length) return [drawAxis(), drawLevels(), drawLevelTitles()];
    if (!step.draft) return [s("text.none", { x: "50%", y: 23 }, "Nothing was drafted in this step.")];
    const broke = step.boundary === null ? "" : drawBoundary();
    return [
      drawAxis(),
      broke,
      drawBars(),
      step.posterior.length ? drawMarks() : "",
      votes ? drawVotes() : "",
      drawTitles(),
    ];
  }

  /** For every level, the nodes that the next pass continued, by path probability; hollow circles: nodes that were not verified. */
  function drawLevels() {
    const [top, bottom] = band.bars;
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
      const x = xOf(at + 1);
      const depth = { "data-depth": at + 1 };
      group.append(
        ...level.best.map(({ p, node }) =>
          s("circle", { class: `kept ${node ? node.state : "left-out"}`, ...depth, cx: x, cy: height(p), r: 3 }),
        ),
        s("text", { ...depth, x, y: bottom + 14 }, `${inTree(level)}/${level.best.length}`),
      );
    });
    return group;
  }

  function drawLevelTitles() {
    const { bars, values } = band;
    const words = narrow ? levelWords(step).split(": ") : [levelWords(step)];
    return titlesOf([
      ["path p", bars[0] + 14],
      ...words.map((line, at) => [line, values - 15 * (words.length - 1 - at)]),
    ]);
  }

  const widthOf = (depth) => (tree.columns.width(depth) * viewport.k) / scale;

  /** Numbers of the positions, for the quiz. */
  function drawAxis() {
    const depths = [...Array(step.drafted + 2).keys()].filter((depth) => depth && widthOf(depth) >= 18);
    const name = (depth) => (depth > step.drafted ? "none" : depth);
    return s("g.axis", {}, ...depths.map((depth) => s("text", { x: xOf(depth), y: 11 }, name(depth))));
  }

  /** The number of votes for each place, in the quiz. */
  function drawVotes() {
    const y = band.values;
    const numbers = counted(votes).map(([place, hands]) => s("text", { x: xOf(place), y }, hands));
    return s("g.votes", {}, ...numbers, titlesOf([["Hands", y]]));
  }

  function drawBars() {
    const [top, bottom] = band.bars;
    const bars = s("g.bars", {});
    bars.append(s("line.base", { x1: 0, x2: "100%", y1: bottom, y2: bottom }));
    step.draft.confidence.forEach((c, j) => {
      const k = j + 1;
      const state = fateOf(step, k);
      const height = Math.max(1, c * (bottom - top - NUMBERED));
      const x = xOf(k);
      const w = clamp(widthOf(k) * 0.6, 3, 48);
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
        tree.small(share(c), state !== "unseen") <= widthOf(k) - 2 && (narrow || x > TITLED + 18)
          ? s("text", { class: `value ${state}`, x, y: bottom - height - 4 }, share(c))
          : "",
      );
      if (j < step.trained.length)
        column.append(
          s("path.trained", {
            d: `M${x.toFixed(1)} ${(bottom - step.trained[j] * (bottom - top - NUMBERED) - 4.5).toFixed(1)}l4.5 4.5l-4.5 4.5l-4.5-4.5Z`,
          }),
        ); // the confidence head's value, on the same scale
    });
    return bars;
  }

  /** A triangle at every start of a second draft, with the predicted probability of that boundary. */
  function drawMarks() {
    const all = [...step.posterior, step.full];
    const xs = step.selected.map((i) => xOf(i + 0.5));
    const counted = numbered(xs);
    const [top, bottom] = band.marks;
    const group = s("g.posterior", {});
    if (step.closed !== null) group.append(...drawClosed());
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
    const end = xOf(step.posterior.length + 0.5);
    if (!narrow && step.closed === null && !xs.some((x) => x > end - INVITED))
      group.append(s("text.invitation", { x: end, y: band.values }, "click a place to re-draft there"));
    return group;
  }

  /** Shades the positions after a drafted end of the text, where no second draft starts. */
  function drawClosed() {
    const [left, right] = [xOf(step.closed), xOf(step.posterior.length + 0.8)];
    const width = Math.max(0, right - left);
    const [y, height] = [band.marks[0] - 2, band.values - band.marks[0] + 4];
    const words = width > INVITED ? s("text.closed", { x: left + 8, y: band.values - 7 }, CLOSED) : "";
    return [s("rect.closed", { x: left, y, width, height }), words];
  }

  function drawBoundary() {
    const x = xOf(step.boundary + 0.5);
    return s("line.boundary.truth", { "data-verdict": step.verdict, x1: x, x2: x, y1: 0, y2: band.marks[0] - 2 });
  }

  function drawTitles() {
    const titles = step.posterior.length ? TITLES : TITLES.slice(0, 1);
    const lines = narrow ? titles.map((words) => words.join(" ")) : titles.flat();
    return titlesOf(
      lines.map((words, at) => [words, band.titles[at]]),
      narrow ? 1 : 2,
    );
  }

  function depthAt(event) {
    return tree.columns.depth((event.clientX - svg.getBoundingClientRect().left - viewport.x) / viewport.k);
  }

  /** Shows exact values under the pointer: confidences in the upper part, boundary probabilities below. */
  function point(event) {
    if (event.target.dataset.meaning) return tooltip.hide();
    if (!step || (!step.draft && !step.levels.length) || event.pointerType === "touch") return;
    const box = svg.getBoundingClientRect();
    const depth = depthAt(event);
    const inBars = (event.clientY - box.top) / scale < band.bars[1] + 2;
    const at = inBars ? Math.round(depth) : Math.round(depth - 0.5);
    const card = step.levels.length ? levelCard(Math.round(depth)) : inBars ? barCard(at) : pointCard(at);
    if (card) tooltip.show(card, event);
    else tooltip.hide();
  }

  function levelCard(number) {
    const level = step.levels[number - 1];
    if (!level) return null;
    const row = ({ text: words, p, node }) =>
      h("li", {}, h("bdi", {}, visible(words, 14)), ` ${probability(p, 3)}${node ? "" : " (not verified)"}`);
    return h(
      "div",
      {},
      h("b", {}, `Level ${number}: draft pass ${number}`),
      h(
        "p",
        {},
        `${count(level.scored, "candidate")} scored by the probability of the whole path. The next one continues the best ${level.best.length}:`,
      ),
      h("ol", {}, ...level.best.slice(0, 6).map(row)),
    );
  }

  function barCard(k) {
    const { draft } = step;
    if (k < 1 || k > draft.confidence.length) return null;
    const fate = {
      right: "The large model accepted this token.",
      wrong: step.sampled ? "The large model drew another token." : "The large model rejected this token.",
      unseen: "The large model’s choice here is not known.",
    }[fateOf(step, k)];
    const trained = step.trained[k - 1];
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

  function pointCard(i) {
    const { posterior, full, selected, boundary } = step;
    if (i < 0 || i > posterior.length || !posterior.length) return null;
    const last = i === posterior.length;
    const rank = selected.indexOf(i);
    const closed = step.closed !== null && i >= step.closed && rank < 0 && !last;
    const notes = [
      closed ? "No second draft starts here, even if this place is likely: the draft ends the text before it." : "",
      rank < 0
        ? ""
        : step.random
          ? "Drawn at random: a second draft started here."
          : `${capital(`${rank ? `${ordinal(rank + 1)} ` : ""}likeliest`)} place: a second draft started here.`,
      i === boundary ? "The first draft did break here." : "",
      "Click to re-draft here.",
    ];
    const title = last ? `all = ${probability(full, 4)}` : `r(${i}) = ${probability(posterior[i], 4)}`;
    const meaning = last
      ? "Estimated probability that the whole first draft is accepted."
      : `Estimated probability that the first draft breaks ${afterToken(i)}.`;
    return h("div", {}, h("b", {}, title), h("p", {}, [meaning, ...notes].filter(Boolean).join(" ")));
  }

  return strip;
}
