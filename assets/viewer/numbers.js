// The row of totals, each with the shown step's own value.

import { cycleBars, cycleOf, cycleWords, elsewhere } from "./cost.js";
import { h } from "./dom.js";
import { judged } from "./store.js";
import { count, fixed, OUTCOMES, percent, STAGES } from "./words.js";

const CARDS = [
  ["alpha", "Mean tokens/step α", "Mean acceptance length over all steps: committed tokens per step, the target’s own token included."],
  ["speed", "Tokens per second", "Of the run that is drawn here: committed tokens over the time since the prompt was read. To record every step for the drawing costs time: the speedup beside it is timed without."],
  ["speedup", "Speedup", "Tokens per second over plain decoding with the same target, both timed in turns right after the run, without drawing them: to draw a run slows it on a small machine. Below 1×, a step costs more plain steps than it brings tokens: cost-aware, or fewer nodes B, may help."],
  ["nodes", "Mean nodes/step", "Tree nodes that the target checks in one pass, anchor included; mean over the steps."],
  ["repaired", "Repaired drafts", "Of the steps whose first draft was partly rejected: how often a re-draft started exactly there and added tokens."],
  ["gain", "Gained per re-draft", "Tokens that the drafts behind the first added, over the number of those drafts."],
];

/** Tokens per second, as short as is of use. */
const perSecond = (speed) => fixed(speed, speed >= 100 ? 0 : 1);

export class NumbersView {
  constructor(host, store) {
    Object.assign(this, { host, store, cells: {} });
    for (const [id, name, title] of CARDS) {
      const cell = { value: h("dd", { class: "value" }), note: h("dd", { class: "note" }) };
      this.cells[id] = cell;
      host.append(h("div", { class: "stat", "data-stat": id, title }, h("dt", {}, name, id === "speedup" ? this.whyButton() : null), cell.value, cell.note));
    }
    this.segments = STAGES.map(([stage, name]) => [stage, name, h("span", { class: `segment ${stage}` })]);
    this.bar = h("dd", { class: "stack", role: "img" }, ...this.segments.map(([, , segment]) => segment));
    this.shares = h("dd", { class: "note" });
    this.box = h("div", { class: "why", role: "note", hidden: true });
    host.append(h("div", { class: "stat wide", "data-stat": "stages" }, h("dt", {}, "Time by stage"), this.bar, this.shares), this.box);
  }

  /** Opens what a step costs and brings. */
  whyButton() {
    this.why = h("button", { class: "why-open", type: "button", "aria-expanded": "false", hidden: true }, "why?");
    this.why.addEventListener("click", () => {
      this.box.hidden = !this.box.hidden;
      this.why.setAttribute("aria-expanded", String(!this.box.hidden));
    });
    return this.why;
  }

  showWhy(cycle) {
    this.why.hidden = !cycle;
    if (!cycle) this.box.hidden = true;
    else this.box.replaceChildren(h("b", {}, cycle.gain < 1 ? "Why slower" : "Why faster"), h("p", {}, cycleWords(cycle)), cycleBars(cycle), h("p", {}, elsewhere()));
  }

  show(shown) {
    const { store, cells } = this;
    const { tokens, nodes, outcomes, gained, redrafts } = store.sums;
    const cases = judged(store.sums);
    const steps = store.length;
    const last = steps ? store.summaries[steps - 1].elapsed : 0;
    const speed = last > 0 ? tokens / last : null;
    const here = shown === null ? null : store.summaries[shown];
    const set = (id, value, note) => {
      cells[id].value.textContent = value;
      cells[id].note.textContent = note;
    };
    const decimals = (value, digits) => (value === null ? "—" : fixed(value, digits));
    set("alpha", steps ? decimals(tokens / steps, 2) : "—", here ? `this step: ${here.total}` : "");
    set("speed", speed === null ? "—" : perSecond(speed), !steps ? "" : !last ? "no times in this run" : store.unwatched ? "while recording" : `${count(tokens, "token")} in ${last.toFixed(last < 10 ? 2 : 0)} s`);
    const base = store.baseline;
    const timed = store.unwatched || speed; // in turns with plain decoding, where that was done
    const gain = speed !== null && base ? timed / base : null;
    const costs = gain !== null && gain < 1 ? `a step = ${(tokens / steps / gain).toFixed(1)} plain` : null;
    const unmeasured = store.header.method === "autoregressive" ? "nothing is drafted" : store.live ? "not measured yet" : "not measured";
    set("speedup", gain === null ? "—" : fixed(gain, 2) + "×", costs || (base ? store.unwatched ? `else ${perSecond(timed)} vs ${perSecond(base)}` : `${perSecond(timed)} vs ${perSecond(base)} plain` : unmeasured));
    this.showWhy(gain === null ? null : cycleOf({ tokens, steps, speed: timed, plain: base, seconds: store.sums.seconds }));
    cells.speedup.value.classList.toggle("slower", gain !== null && gain < 1);
    set("nodes", steps ? decimals(nodes / steps, 1) : "—", here ? `this step: ${here.nodes}` : "");
    const verdict = here && OUTCOMES[here.verdict];
    const none = !steps || store.seen.selected ? "no prediction yet" : "none predicted";
    set("repaired", cases ? percent(outcomes.repaired / cases) : "—", verdict ? `this step: ${verdict.mark} ${verdict.short || verdict.words}` : cases ? `${outcomes.repaired} of ${cases}` : none);
    set("gain", redrafts ? fixed(gained / redrafts, 2) : "—", redrafts ? (here ? `this step: ${here.gained} by ${here.redrafts}` : `${gained} by ${redrafts}`) : "no re-drafts");
    this.showStages();
  }

  showStages() {
    const { seconds } = this.store.sums;
    const all = Object.values(seconds).reduce((a, b) => a + b, 0);
    const share = (stage) => (all ? seconds[stage] / all : 0);
    for (const [stage, , segment] of this.segments) segment.style.flexGrow = share(stage).toFixed(4);
    const words = this.segments.map(([stage, name]) => `${name} ${percent(share(stage))}`);
    this.bar.setAttribute("aria-label", all ? words.join(", ") : "no stage times");
    this.bar.title = all ? words.join("\n") : "";
    const largest = this.segments.filter(([stage]) => share(stage) >= 0.1).sort((a, b) => share(b[0]) - share(a[0]));
    this.shares.textContent = largest.slice(0, 3).map(([stage, name]) => `${name.toLowerCase()} ${percent(share(stage))}`).join(" · ");
  }
}
