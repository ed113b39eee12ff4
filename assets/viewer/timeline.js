// The steps of a run as bars, and a finder for steps by outcome, length or time.

import { button, clamp, h, oncePerFrame, sum } from "./dom.js";
import { OUTCOMES, PROPOSERS, capital, count, probability, spoken, took } from "./words.js";

// pixels; few: number of steps that fill the width; worded: from this width on a bar has its text below
const BAR = { least: 4, few: 8, most: 240, top: 4, words: 19, track: 5, worded: 72, gap: 10 };

/** All steps as bars: height = committed tokens, stacked by proposer. Drawn on a canvas, visible bars only. */
export class TimelineView {
  uses = ["data", "at", "pinned", "hidden", "filter", "first", "bars", "fresh"];

  constructor(host, store, state, tooltip) {
    Object.assign(this, { host, store, state, tooltip, first: 0, scrubbing: false, size: { width: 0, height: 0 } });
    this.canvas = h("canvas", { ariaHidden: true });
    host.append(this.canvas);
    this.draw = oncePerFrame(() => this.paint());
    this.listen();
  }

  resize(width, height) {
    this.size = { width, height };
  }

  /** `hidden`: the first step whose text stays hidden; `first`: the first bar in view, null: the shown step, or the end of a followed
   *  run, is in view. */
  show({ at, pinned, hidden, filter, first, following }) {
    const { length, summaries } = this.store;
    const matching = new Set(foundBy(filter, summaries) ?? summaries.keys());
    Object.assign(this, { at, pinned, matching, told: hidden ?? Infinity });
    const wanted = first ?? (following ? length : (at ?? 0) - this.capacity / 2);
    this.first = clamp(Math.round(wanted), 0, length - this.capacity);
    this.describe();
    this.draw();
  }

  get room() {
    return Math.max(1, this.size.width);
  }

  get pitch() {
    const even = Math.max(BAR.least, this.room / Math.max(BAR.few, this.store.length));
    return clamp(even * this.state.now.bars, even, BAR.most);
  }

  get capacity() {
    return Math.max(1, Math.floor(this.room / this.pitch));
  }

  /** The fields of the state that keep the bars where they are. */
  get kept() {
    return { first: this.first };
  }

  describe() {
    const { at, store, host } = this;
    const growing = store.live || store.waiting.length ? " so far" : "";
    host.ariaValueMax = Math.max(1, store.length);
    host.ariaValueNow = at === null ? 1 : at + 1;
    host.ariaValueText =
      at === null
        ? "no steps yet"
        : `Step ${at + 1} of ${store.length}${growing}, ${count(store.summaries[at].total, "token")}`;
  }

  colours() {
    const style = getComputedStyle(this.host);
    this.family = style.fontFamily;
    const names = ["first", "second", "target", "line", "ink", "muted", "reject", "sunken", "panel"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  }

  paint() {
    const { width, height } = this.size;
    if (!width || !height) return;
    const dense = Math.min(2, devicePixelRatio || 1);
    const { canvas } = this;
    const [across, down] = [width, height].map((size) => Math.round(size * dense));
    if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    const worded = this.pitch >= BAR.worded;
    const track = this.store.length > this.capacity ? BAR.track : 0;
    const base = height - track - (worded ? BAR.words : 0);
    const paint = { pen, pitch: this.pitch, colours: this.colours(), base, worded, height: height - track };
    paint.fills = this.patterns(paint);
    const end = Math.min(this.store.length, this.first + this.capacity + 1);
    for (let i = this.first; i < end; i += 1) this.paintBar(paint, i);
    if (track) this.paintTrack(paint, width, height);
  }

  /** Fills that differ by pattern as well as colour: plain, hatched, dotted. */
  patterns({ pen, colours }) {
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

  paintBar({ pen, pitch, colours, base, fills, worded, height }, i) {
    const summary = this.store.summaries[i];
    const x = (i - this.first) * pitch;
    const gap = worded ? BAR.gap : pitch > 6 ? 2 : pitch > 3 ? 1 : 0;
    const unit = (base - BAR.top) / this.store.most;
    pen.globalAlpha = this.matching.has(i) ? 1 : 0.22;
    const [shown, pinned] = [this.at === i, this.pinned === i];
    if (shown || pinned) {
      pen.fillStyle = colours.sunken;
      pen.beginPath();
      pen.roundRect(x, 0, pitch, height, Math.min(8, pitch / 3));
      pen.fill();
    }
    let y = base;
    for (const who of PROPOSERS) {
      const tall = summary.counts[who] * unit;
      const seam = tall > 4 ? 0.75 : 0;
      y -= tall;
      pen.fillStyle = fills[who];
      pen.fillRect(x + gap / 2, y + seam, pitch - gap, tall - seam);
    }
    if (pinned) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.roundRect(x + 1, 1, Math.max(2, pitch - 2), height - 2, Math.min(7, pitch / 3));
      pen.stroke();
    }
    if (worded && i < this.told) {
      pen.font = `${shown ? 600 : 400} 13px ${this.family}`;
      pen.fillStyle = shown ? colours.ink : colours.muted;
      pen.fillText(fitted(pen, this.words(i), pitch - gap), x + gap / 2, base + 14);
    }
    pen.globalAlpha = 1;
  }

  words(i) {
    const texts = this.store.committed[i].map(({ text }) => text);
    return spoken(texts.join("").trim(), 60);
  }

  paintTrack({ pen, colours }, width, height) {
    const share = width / this.store.length;
    pen.fillStyle = colours.sunken;
    pen.fillRect(0, height - 4, width, 4);
    pen.fillStyle = colours.muted;
    pen.fillRect(this.first * share, height - 4, Math.max(8, this.capacity * share), 4);
  }

  /** A tooltip with the text of a step, its number of tokens, outcome and time. */
  tell(at, event) {
    if (at === null || at >= this.told) return this.tooltip.hide();
    const { total, verdict } = this.store.summaries[at];
    const seconds = sum(this.store.secondsOf(at));
    const time = seconds ? took({ drawing: this.store.live }, seconds) : "";
    const facts = [count(total, "token"), OUTCOMES[verdict]?.words, time].filter(Boolean).join(" · ");
    const card = h("div", {}, h("b", {}, `Step ${at + 1}`), h("p", {}, this.words(at)), facts);
    return this.tooltip.show(card, event.clientX, event.clientY);
  }

  stepAt(event) {
    const x = event.clientX - this.host.getBoundingClientRect().left;
    const step = this.first + Math.floor(x / this.pitch);
    return step >= 0 && step < this.store.length ? step : null;
  }

  listen() {
    const { host, state } = this;
    host.addEventListener("pointerdown", (event) => {
      const at = this.stepAt(event);
      if (event.button > 0 || at === null) return;
      host.setPointerCapture(event.pointerId);
      this.scrubbing = true;
      state.pin(at, null, this.kept);
    });
    host.addEventListener("pointermove", (event) => {
      const at = this.stepAt(event);
      if (this.scrubbing && at !== null) state.pin(at, null, this.kept);
      else if (!this.scrubbing && event.pointerType !== "touch") {
        state.preview(at, this.kept);
        this.tell(at, event);
      }
    });
    host.addEventListener("pointerleave", () => {
      this.tooltip.hide();
      if (!this.scrubbing) state.preview(null);
    });
    for (const end of ["pointerup", "pointercancel"]) host.addEventListener(end, () => (this.scrubbing = false));
    host.addEventListener(
      "wheel",
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          const bars = clamp(state.now.bars * (event.deltaY < 0 ? 1.25 : 0.8), 1, 16);
          state.set({ bars, first: null });
          return;
        }
        if (this.store.length <= this.capacity) return;
        event.preventDefault();
        this.first += (event.deltaX + event.deltaY) / this.pitch / 2;
        state.set({ first: clamp(this.first, 0, this.store.length - this.capacity) });
      },
      { passive: false },
    );
  }
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

/** Filters for steps: a name, and a `test` of a summary, or its `size` if the largest are sought. */
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
  longest: { name: `the ${MOST} longest`, size: ({ total }) => total },
  slowest: { name: `the ${MOST} slowest`, size: ({ seconds }) => sum(seconds) },
};

/** Indices of the summaries that pass a test. */
export const where = (summaries, test) => [...summaries.keys()].filter((at) => test(summaries[at]));

/** Indices of the steps that match a filter, null for all. */
export function foundBy(filter, summaries) {
  const { test, size } = FILTERS[filter];
  if (test) return where(summaries, test);
  if (!size) return null;
  const sizes = summaries.map(size);
  const largest = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, MOST);
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
