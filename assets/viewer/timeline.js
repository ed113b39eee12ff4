// The steps of a run as bars, and a finder for steps by outcome, length or time.

import { button, clamp, h, oncePerFrame, sum } from "./dom.js";
import { OUTCOMES, PROPOSERS, capital, count, probability, spoken, took } from "./words.js";

// pixels; few: number of steps that fill the width; worded: from this width on a bar has its text below
const BAR = { least: 4, few: 8, most: 240, top: 4, words: 19, track: 5, worded: 72, gap: 10 };

/** All steps as bars: height = committed tokens, stacked by proposer. Drawn on a canvas, visible bars only. */
export function timelineView(host, store, state, tooltip) {
  let [width, height] = [0, 0];
  let [at, pinned, told, matching] = [null, null, Infinity, new Set()]; // what is drawn; told: the first step whose text stays hidden
  let left = 0; // the first bar in view
  let scrubbing = false;
  const canvas = h("canvas", { ariaHidden: true });
  host.append(canvas);
  const draw = oncePerFrame(paint);
  const kept = () => ({ first: left }); // the fields of the state that keep the bars where they are

  function resize(...size) {
    [width, height] = size;
  }

  /** `hidden`: the first step whose text stays hidden; `first`: the first bar in view, null: the shown step, or the end of a followed
   *  run, is in view. */
  function show({ at: shown, pinned: chosen, hidden, filter, first, following }) {
    const { length, summaries } = store;
    [at, pinned, told] = [shown, chosen, hidden ?? Infinity];
    matching = new Set(foundBy(filter, summaries) ?? summaries.keys());
    const wanted = first ?? (following ? length : (at ?? 0) - capacity() / 2);
    left = clamp(Math.round(wanted), 0, length - capacity());
    const growing = store.live || store.waiting.length ? " so far" : "";
    host.ariaValueMax = Math.max(1, length);
    host.ariaValueNow = (at ?? 0) + 1;
    host.ariaValueText =
      at === null ? "no steps yet" : `Step ${at + 1} of ${length}${growing}, ${count(summaries[at].total, "token")}`;
    draw();
  }

  const room = () => Math.max(1, width);

  /** Pixels from a bar to the next. */
  function pitch() {
    const even = Math.max(BAR.least, room() / Math.max(BAR.few, store.length));
    return clamp(even * state.now.bars, even, BAR.most);
  }

  const capacity = () => Math.max(1, Math.floor(room() / pitch()));

  function paint() {
    if (!width || !height) return;
    const dense = Math.min(2, devicePixelRatio || 1);
    const [across, down] = [width, height].map((size) => Math.round(size * dense));
    if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(host);
    const names = ["first", "second", "target", "ink", "muted", "sunken", "panel"];
    const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
    const worded = pitch() >= BAR.worded;
    const track = store.length > capacity() ? BAR.track : 0;
    const base = height - track - (worded ? BAR.words : 0);
    const fills = patterns(pen, colours);
    const paper = { pen, colours, family: style.fontFamily, fills, base, worded, tall: height - track };
    const end = Math.min(store.length, left + capacity() + 1);
    for (let i = left; i < end; i += 1) paintBar(paper, i);
    if (!track) return;
    const share = width / store.length;
    pen.fillStyle = colours.sunken;
    pen.fillRect(0, height - 4, width, 4);
    pen.fillStyle = colours.muted;
    pen.fillRect(left * share, height - 4, Math.max(8, capacity() * share), 4);
  }

  function paintBar({ pen, colours, family, fills, base, worded, tall }, i) {
    const wide = pitch();
    const x = (i - left) * wide;
    const gap = worded ? BAR.gap : wide > 6 ? 2 : wide > 3 ? 1 : 0;
    const unit = (base - BAR.top) / store.most;
    pen.globalAlpha = matching.has(i) ? 1 : 0.22;
    if (at === i || pinned === i) {
      pen.fillStyle = colours.sunken;
      pen.beginPath();
      pen.roundRect(x, 0, wide, tall, Math.min(8, wide / 3));
      pen.fill();
    }
    let y = base;
    for (const who of PROPOSERS) {
      const part = store.summaries[i].counts[who] * unit;
      const seam = part > 4 ? 0.75 : 0;
      y -= part;
      pen.fillStyle = fills[who];
      pen.fillRect(x + gap / 2, y + seam, wide - gap, part - seam);
    }
    if (pinned === i) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.roundRect(x + 1, 1, Math.max(2, wide - 2), tall - 2, Math.min(7, wide / 3));
      pen.stroke();
    }
    if (worded && i < told) {
      pen.font = `${at === i ? 600 : 400} 13px ${family}`;
      pen.fillStyle = at === i ? colours.ink : colours.muted;
      pen.fillText(fitted(pen, wordsOf(i), wide - gap), x + gap / 2, base + 14);
    }
    pen.globalAlpha = 1;
  }

  function wordsOf(i) {
    const texts = store.committed[i].map(({ text }) => text);
    return spoken(texts.join("").trim(), 60);
  }

  /** A tooltip with the text of a step, its number of tokens, outcome and time. */
  function tell(i, event) {
    if (i === null || i >= told) return tooltip.hide();
    const { total, verdict } = store.summaries[i];
    const seconds = sum(store.secondsOf(i));
    const time = seconds ? took({ drawing: store.live }, seconds) : "";
    const facts = [count(total, "token"), OUTCOMES[verdict]?.words, time].filter(Boolean).join(" · ");
    return tooltip.show(h("div", {}, h("b", {}, `Step ${i + 1}`), h("p", {}, wordsOf(i)), facts), event);
  }

  function stepAt({ clientX }) {
    const step = left + Math.floor((clientX - host.getBoundingClientRect().left) / pitch());
    return step >= 0 && step < store.length ? step : null;
  }

  host.addEventListener("pointerdown", (event) => {
    const step = stepAt(event);
    if (event.button > 0 || step === null) return;
    host.setPointerCapture(event.pointerId);
    scrubbing = true;
    state.pin(step, null, kept());
  });
  host.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    if (scrubbing && step !== null) state.pin(step, null, kept());
    else if (!scrubbing && event.pointerType !== "touch") {
      state.preview(step, kept());
      tell(step, event);
    }
  });
  host.addEventListener("pointerleave", () => {
    tooltip.hide();
    if (!scrubbing) state.preview(null);
  });
  for (const end of ["pointerup", "pointercancel"]) host.addEventListener(end, () => (scrubbing = false));
  host.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const bars = clamp(state.now.bars * (event.deltaY < 0 ? 1.25 : 0.8), 1, 16);
        state.set({ bars, first: null });
        return;
      }
      if (store.length <= capacity()) return;
      event.preventDefault();
      left += (event.deltaX + event.deltaY) / pitch() / 2;
      state.set({ first: clamp(left, 0, store.length - capacity()) });
    },
    { passive: false },
  );

  const uses = ["data", "at", "pinned", "hidden", "filter", "first", "bars", "fresh"];
  return { uses, show, resize, draw };
}

/** Fills that differ by pattern as well as colour: plain, hatched, dotted. */
function patterns(pen, colours) {
  const tile = (draw, colour) => {
    const canvas = h("canvas", { width: 6, height: 6 });
    const p = canvas.getContext("2d");
    p.fillStyle = colour;
    p.fillRect(0, 0, 6, 6);
    p.strokeStyle = p.fillStyle = colours.panel;
    draw(p);
    return pen.createPattern(canvas, "repeat");
  };
  const hatch = (p) => {
    p.lineWidth = 1.1;
    p.beginPath();
    for (const d of [-6, 0, 6]) {
      p.moveTo(d - 1, 7);
      p.lineTo(d + 7, -1);
    }
    p.stroke();
  };
  const dots = (p) => {
    p.fillRect(1, 1, 1.4, 1.4);
    p.fillRect(4, 4, 1.4, 1.4);
  };
  return { first: colours.first, second: tile(hatch, colours.second), target: tile(dots, colours.target) };
}

/** The words, cut to fit into `room` pixels. */
function fitted(pen, words, room) {
  if (pen.measureText(words).width <= room) return words;
  let most = words.length;
  while (most > 1 && pen.measureText(`${words.slice(0, most)}…`).width > room) most -= 1;
  return `${words.slice(0, most).trimEnd()}…`;
}

const SURE = 0.8;
const MOST = 10;

/** Filters for steps: a name, and a `test` of a summary, or its `size` if the `most` largest are sought (given the mean of written
 *  tokens). */
const FILTERS = {
  any: { name: "any step" },
  ...Object.fromEntries(
    Object.entries(OUTCOMES).map(([id, { words }]) => [id, { name: words, test: ({ verdict }) => verdict === id }]),
  ),
  undrafted: { name: "nothing drafted (quickest here)", test: ({ undrafted }) => undrafted },
  sure: {
    name: `rejected though sure (c ≥ ${probability(SURE)})`,
    test: ({ sureOfWrong }) => sureOfWrong !== null && sureOfWrong >= SURE,
  },
  typical: { name: "a typical step", size: ({ total }, mean) => -Math.abs(total - mean), most: 1 },
  longest: { name: `the ${MOST} longest`, size: ({ total }) => total },
  slowest: { name: `the ${MOST} slowest`, size: ({ seconds }) => sum(seconds) },
};

/** Indices of the summaries that pass a test. */
export const where = (summaries, test) => [...summaries.keys()].filter((at) => test(summaries[at]));

/** Indices of the steps that match a filter, null for all. */
export function foundBy(filter, summaries) {
  const { test, size, most = MOST } = FILTERS[filter];
  if (test) return where(summaries, test);
  if (!size) return null;
  const mean = sum(summaries.map(({ total }) => total)) / summaries.length;
  const sizes = summaries.map((summary) => size(summary, mean));
  const largest = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, most);
  return largest.sort((a, b) => a - b);
}

/** Finds steps by outcome, length or time; in the box `finder` of the page. */
export function finderView(page, store, state) {
  const tool = (words, title, act) => button(words, { class: "icon", title, ariaLabel: title }, act);
  const options = Object.entries(FILTERS).map(([id, { name }]) => h("option", { value: id }, capital(name)));
  const choice = h(
    "select",
    { id: "step-filter", ariaLabel: "Which steps to look for", onchange: () => choose(choice.value) },
    ...options,
  );
  const counted = h("span.count", { role: "status" });
  const marks = Object.entries(OUTCOMES).map(([id, { mark, words }]) => {
    const parts = [h("i", { ariaHidden: true }, mark), words, h("b", {})];
    const attributes = { class: id, "data-outcome": id, title: `Show only these steps: ${words}` };
    return button(parts, attributes, () => choose(state.now.filter === id ? "any" : id));
  });
  const before = tool("‹", "Previous matching step (P)", () => go(-1));
  const next = tool("›", "Next matching step (N)", () => go(1));
  const items = marks.map((mark) => h("li", { class: mark.dataset.outcome }, mark));
  const list = h("ul.glyphs", { ariaLabel: "Outcomes of the predicted places" }, ...items);
  page.finder.append(h("div.finder", {}, h("div.row", {}, choice, before, next, counted), list));

  /** The steps that match the filter, null for all. */
  const matching = () => foundBy(state.now.filter, store.summaries);

  /** Applies the filter, and goes to the next match unless a matching step is shown. */
  function choose(filter) {
    state.set({ filter });
    if (matching()?.includes(state.shown) === false) go(1);
  }

  function show({ at, filter, finder }) {
    page.finder.hidden = !finder;
    page.find.ariaExpanded = finder;
    choice.value = filter;
    for (const mark of marks) {
      mark.ariaPressed = filter === mark.dataset.outcome;
      mark.lastChild.textContent = store.sums.outcomes[mark.dataset.outcome];
    }
    const steps = matching();
    const place = steps?.includes(at) ? `${steps.indexOf(at) + 1} of ` : "";
    counted.textContent = steps ? place + (steps.length || "none") : "";
  }

  /** Goes to the next or previous match, with wrap-around. */
  function go(by) {
    const steps = matching() ?? [...store.summaries.keys()];
    if (!steps.length) return;
    const here = state.shown ?? -1;
    const beyond = by > 0 ? steps.find((at) => at > here) : steps.findLast((at) => at < here);
    state.pin(beyond ?? steps.at(by > 0 ? 0 : -1));
  }

  return { uses: ["data", "at", "filter", "finder"], show, go };
}
