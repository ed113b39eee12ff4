// Two runs side by side: bars of their steps, and their texts. Steps at the same place in the text are selected together.

import { button, h, list, s, text, whole } from "../../assets/viewer/dom.js";
import { readToken } from "../../assets/viewer/step.js";
import { count, LONE, OUTCOMES, spoken } from "../../assets/viewer/words.js";

/** Mark and words for the outcome of a step's prediction. */
const outcomeOf = (step) => OUTCOMES[step.fate] || { mark: "", words: "no prediction" };

function readPair(raw) {
  // the text committed by prefill precedes the first step
  const side = (steps, number) => {
    const before = text(list(raw.leads)[number]);
    let from = [...before].length;
    return list(steps).map((step, place) => {
      const [end, tokens, fate, boundary] = list(step);
      const begin = from;
      from = whole(end, begin, 1e9, begin);
      return {
        begin,
        end: from,
        before: place ? "" : before,
        tokens: list(tokens).map(readToken),
        fate: OUTCOMES[fate] ? fate : "",
        boundary: whole(boundary, -1, 1e6, -1),
      };
    });
  };
  return {
    prompt: text(raw.prompt),
    at: whole(raw.differs_at, 0, 1e9, null),
    parts: whole(raw.parts_at, 0, 1e9, null),
    byTokens: raw.by_tokens === true,
    runs: list(raw.runs),
    sides: list(raw.sides).slice(0, 2).map(side),
  };
}

/** A sentence about the first step that ends at different places in A and B, with the step's number of tokens in both. */
function partingWords({ parts, sides }) {
  if (parts === null) return "All steps are the same.";
  const [a, b] = sides.map((steps) => (steps[parts] ? count(steps[parts].tokens.length, "token") : "no step"));
  return `The steps differ from step ${parts + 1} on: this step has ${a} in A and ${b} in B.`;
}

const lengthOf = ({ sides }) => Math.max(...sides.map((steps) => steps.at(-1)?.end ?? 0));

export class TextsView {
  /** `open(side, run, step)` shows a step in Explore. */
  constructor(open) {
    Object.assign(this, { open, pairs: [], pair: null, place: 0 });
    this.choice = h("select", { "aria-label": "Prompt" });
    this.status = h("span", { class: "status", role: "status" });
    this.lanes = ["A", "B"].map((name, side) => this.lane(name, side));
    this.box = h(
      "section",
      { class: "panel texts", "aria-label": "Texts side by side" },
      h("div", { class: "head" }, h("h3", {}, "The same places in both texts"), this.choice, this.status),
      ...this.lanes.map((lane) => lane.track),
      h(
        "ul",
        { class: "legend", "aria-label": "Outcome of the prediction" },
        ...Object.entries(OUTCOMES).map(([kind, { mark, words }]) =>
          h(
            "li",
            {},
            s(
              "svg",
              { width: 16, height: 14, "aria-hidden": "true" },
              s("rect", { class: `bar ${kind}`, width: 16, height: 14 }),
              s("text", { class: "mark", x: 8, y: 11 }, mark),
            ),
            words,
          ),
        ),
      ),
      h("div", { class: "lanes" }, ...this.lanes.map((lane) => lane.box)),
    );
    this.choice.addEventListener("change", () => this.use(Number(this.choice.value)));
    new ResizeObserver(() => this.drawTracks()).observe(this.lanes[0].svg);
  }

  lane(name, side) {
    const svg = s("svg", { width: "100%", height: 20, role: "img", "aria-label": `Steps of ${name}` });
    const words = h("div", {
      class: "words",
      tabindex: 0,
      role: "region",
      "aria-label": `Text of ${name}: arrow keys move from step to step`,
    });
    const about = h("div", { class: "about" });
    const choose = (event) => {
      const step = event.target.closest("[data-step]");
      if (step) this.choose(this.pair.sides[side][Number(step.dataset.step)].begin);
    };
    words.addEventListener("click", choose);
    svg.addEventListener("click", choose);
    words.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const steps = this.pair ? this.pair.sides[side] : [];
      if (!by || !steps.length) return;
      this.choose(steps[Math.min(steps.length - 1, Math.max(0, this.stepAt(side) + by))].begin);
      event.preventDefault();
    });
    return {
      svg,
      words,
      about,
      track: h("div", { class: "track" }, h("b", {}, name), svg),
      box: h("div", { class: "lane" }, about, words),
    };
  }

  show(raw) {
    this.pairs = list(raw).map(readPair);
    this.box.hidden = !this.pairs.length;
    this.choice.hidden = this.pairs.length < 2;
    this.choice.replaceChildren(
      ...this.pairs.map((pair, n) =>
        h("option", { value: n }, `${n + 1}. ${spoken(pair.prompt, 60)}${pair.at === null ? "" : " (differ)"}`),
      ),
    );
    if (this.pairs.length) this.use(0);
  }

  use(n) {
    this.pair = this.pairs[n];
    const { at, sides } = this.pair;
    const same = this.pair.byTokens
      ? "A log contains no text, so steps are aligned by tokens."
      : `The texts are the same, ${count(lengthOf(this.pair), "character")}.`;
    this.status.textContent =
      at === null ? `${same} ${partingWords(this.pair)}` : `The texts differ from character ${at + 1} on.`;
    this.lanes.forEach((lane, side) =>
      lane.words.replaceChildren(...sides[side].map((step, number) => this.stepWords(step, number))),
    );
    this.choose(at ?? 0);
  }

  stepWords(step, number) {
    const { at } = this.pair;
    const apart = at !== null && step.end > at;
    return h(
      "span",
      { class: `step${apart ? " apart" : ""}`, "data-step": number },
      step.before ? h("span", { class: "tok target" }, step.before.replace(LONE, "\ufffd")) : "",
      ...step.tokens.map((token) => h("span", { class: `tok ${token.proposer}` }, token.text.replace(LONE, "\ufffd"))),
    );
  }

  stepAt(side) {
    const steps = this.pair.sides[side];
    const found = steps.findIndex((step) => this.place < step.end);
    return found < 0 ? steps.length - 1 : found;
  }

  choose(place) {
    this.place = place;
    this.lanes.forEach((lane, side) => {
      const at = this.stepAt(side);
      for (const node of lane.words.children) node.classList.toggle("chosen", Number(node.dataset.step) === at);
      const chosen = lane.words.children[at];
      if (chosen) lane.words.scrollTop = Math.max(0, chosen.offsetTop - lane.words.offsetTop - 60);
      this.tell(lane, side, at);
    });
    this.drawTracks();
  }

  tell({ about }, side, at) {
    const step = this.pair.sides[side][at];
    if (!step) return about.replaceChildren("no steps");
    const { mark, words } = outcomeOf(step);
    const open = button("Explore →", {}, () => this.open(side, this.pair.runs[side], at));
    return about.replaceChildren(
      h("b", {}, `Step ${at + 1}`),
      h(
        "span",
        {},
        `${mark} ${words}; ${count(step.tokens.length, "token")} committed${step.boundary >= 0 ? `, ${step.boundary} of the first draft accepted` : ""}`,
      ),
      open,
    );
  }

  drawTracks() {
    if (!this.pair) return;
    const end = Math.max(1, lengthOf(this.pair));
    this.lanes.forEach(({ svg }, side) => {
      const width = svg.clientWidth || 600;
      const x = (place) => (width * place) / end;
      const chosen = this.stepAt(side);
      const bars = this.pair.sides[side].map((step, n) => {
        const wide = Math.max(1, x(step.end) - x(step.begin));
        const { mark, words } = outcomeOf(step);
        const title = s("title", {}, `Step ${n + 1}: ${words}, ${count(step.tokens.length, "token")}`);
        const bar = s("rect", {
          class: `bar ${step.fate}${n === chosen ? " chosen" : ""}`,
          x: x(step.begin).toFixed(1),
          y: 2,
          width: wide.toFixed(1),
          height: 16,
        });
        return s(
          "g",
          { "data-step": n },
          title,
          bar,
          wide >= 10 ? s("text", { class: "mark", x: (x(step.begin) + wide / 2).toFixed(1), y: 14 }, mark) : "",
        );
      });
      const at = this.pair.at;
      svg.replaceChildren(
        ...bars,
        ...(at === null ? [] : [s("path", { class: "differs", d: `M${x(at).toFixed(1)} 0V20` })]),
      );
    });
  }
}
