// One method: a bar in the overview, and its text growing in the measured time.

import { button, h, list, number, sum, text, whole } from "../../assets/viewer/dom.js";
import { readToken } from "../../assets/viewer/step.js";
import { tokenSpan } from "../../assets/viewer/text.js";
import { count, methodName, milliseconds, PROPOSERS } from "../../assets/viewer/words.js";

const ORDINALS = ["", "1st", "2nd", "3rd"];
export const ordinal = (place) => ORDINALS[place] || `${place}th`;

/** Steps as they were measured, with everything that the replay needs at a given time. */
export function readLane(raw) {
  const steps = list(raw.steps).map((step) => {
    const [elapsed, tokens] = list(step);
    return { elapsed: number(elapsed, 0, 1e6, 0), tokens: list(tokens).map(readToken) };
  });
  const row = raw.row && typeof raw.row === "object" ? raw.row : null;
  const total = sum(steps.map((step) => step.tokens.length));
  return { method: text(raw.method), name: methodName(text(raw.method)), sentence: text(raw.sentence), state: text(raw.state), problem: text(raw.problem), steps, row, total, end: steps.at(-1)?.elapsed ?? 0 };
}

export class LaneView {
  /** `longest`: seconds of the slowest lane, the full width of a bar; `decided`: no other lane is still to come; `open()` shows
   *  the lane's run in Explore. */
  constructor(lane, longest, decided, open) {
    const ends = lane.steps.map((step) => step.elapsed);
    Object.assign(this, { lane, decided, ends, longest: Math.max(1e-9, longest), shown: 0, painted: false });
    this.rail = h("span", { class: "rail" });
    this.result = h("span", { class: "result" });
    this.track = h("li", { class: "track", "data-method": lane.method }, h("span", { class: "name", title: lane.name }, lane.name), this.rail, this.result);
    this.note = h("span", { class: "note" });
    this.words = h("div", { class: "words", tabindex: 0, role: "region", "aria-label": `Text of ${lane.name}` });
    const opener = decided && lane.total ? button("Explore →", { class: "explore", "aria-label": `Explore → the run of ${lane.name}` }, open) : null;
    this.panel = h(
      "article",
      { class: `panel lane ${lane.state.replace(/ /g, "-")}`, "data-method": lane.method, "data-state": lane.state },
      h("div", { class: "head" }, h("h3", { title: lane.sentence }, lane.name), this.note, opener),
      this.words,
    );
    new ResizeObserver(() => this.follow()).observe(this.words); // also when it is first seen
    if (lane.problem) this.words.append(h("p", { class: "problem" }, lane.problem));
    this.tokens = lane.steps.flatMap((step, number) => step.tokens.map((token, at) => this.addToken(token, at, number)));
    this.rail.append(...this.blocks());
  }

  /** The steps on the bar, each as wide as the time that it took, in it its tokens by proposer. */
  blocks() {
    const { ends } = this;
    const share = (seconds) => `${((100 * seconds) / this.longest).toFixed(3)}%`;
    return this.lane.steps.map((step, at) => {
      const from = at ? ends[at - 1] : 0;
      const counts = PROPOSERS.map((who) => [who, step.tokens.filter((token) => token.proposer === who).length]).filter(([, n]) => n);
      const title = `${count(step.tokens.length, "token")} in ${milliseconds(ends[at] - from)}`;
      return h("span", { class: "block", title, style: `left:${share(from)};width:${share(ends[at] - from)}` }, ...counts.map(([who, n]) => h("span", { class: `segment ${who}`, style: `flex-grow:${n}` })));
    });
  }

  addToken(token, at, step) {
    const node = tokenSpan(token, at === 0);
    node.hidden = true;
    this.words.append(node);
    return { node, step };
  }

  /** Shows the tokens committed by a time of the race; returns whether their number changed, so that `follow` has to scroll. */
  show(time) {
    const { tokens, lane, ends } = this;
    const before = this.shown;
    this.rail.style.clipPath = `inset(0 ${Math.max(0, 100 - (100 * time) / this.longest).toFixed(3)}% 0 0)`;
    while (this.shown < tokens.length && ends[tokens[this.shown].step] <= time) tokens[this.shown++].node.hidden = false;
    while (this.shown > 0 && ends[tokens[this.shown - 1].step] > time) tokens[--this.shown].node.hidden = true;
    if (before === this.shown && this.painted) return false;
    this.painted = true;
    const over = this.shown === tokens.length && tokens.length > 0;
    this.panel.classList.toggle("over", over);
    this.note.textContent = this.shown ? count(this.shown, "token") : { waiting: "waiting", running: "running now", "not run": "not run" }[lane.state] || "";
    this.result.textContent = over ? this.verdict() : "";
    return true;
  }

  verdict() {
    const { row, state, end } = this.lane;
    const time = end < 1 ? `${(end * 1000).toFixed(0)} ms` : `${end.toFixed(2)} s`;
    const place = row && this.decided && whole(row.place, 1, 99, null);
    return place ? `${ordinal(place)} · ${time}` : `${state} · ${time}`;
  }

  follow() {
    const { words } = this;
    if (!this.shown) return;
    const token = this.tokens[this.shown - 1].node;
    words.scrollTop = Math.max(0, token.offsetTop + token.offsetHeight - words.clientHeight + 10);
  }
}
