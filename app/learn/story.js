// The story of one step in 90 seconds: paragraphs that are scrolled past a drawing, which shows what the paragraph in view says.

import { cycleBars, cycleOf, elsewhereWords } from "../../assets/viewer/cost.js";
import { h, text } from "../../assets/viewer/dom.js";
import { MachineChoice, meanCost } from "../../assets/viewer/machine.js";
import { Store } from "../../assets/viewer/store.js";
import { framesOf } from "../static/story/frames.js";
import { Sketch } from "../static/story/sketch.js";

export class StoryView {
  /** `leave()`: on to the stops, which tell the same step in detail. */
  constructor(leave) {
    this.at = 0;
    this.index = null;
    this.frames = [];
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.store = new Store(() => {}, () => {});
    this.sketch = new Sketch();
    this.choice = new MachineChoice(() => this.showCosts());
    this.costs = h("div", { class: "costs" });
    this.elsewhere = h("p", { class: "elsewhere" });
    const on = (words) => {
      const made = h("button", { type: "button", class: "on" }, words);
      made.addEventListener("click", leave);
      return made;
    };
    this.dots = h("ol", { class: "frames", "aria-label": "The story" });
    this.dots.addEventListener("click", ({ target }) => target.dataset.frame && this.go(Number(target.dataset.frame)));
    this.text = h("div", { class: "paragraphs" });
    this.picture = h("figure", { class: "picture" }, h("div", { class: "head" }, this.dots, on("All stops →")), this.sketch.svg, this.costs);
    this.end = h("p", { class: "end" }, "Each part of it in detail: ", on("The stops of this step →"));
    this.box = h("div", { class: "story", hidden: true }, this.text, this.picture);
    new ResizeObserver(() => this.draw()).observe(this.picture);
    this.seen = null;
  }

  /** Reads a run; `read` is true when it is read to its end. */
  load(lines) {
    this.store.feed(lines);
  }

  get read() {
    return this.store.complete;
  }

  /** What the frames say of the run as a whole. */
  sum() {
    const { sums, summaries, baseline, unwatched, header } = this.store;
    const { tokens, steps, seconds } = sums;
    const last = steps ? summaries[steps - 1].elapsed : 0;
    this.run = { steps, plain: baseline, alpha: tokens / Math.max(1, steps), cycle: cycleOf({ tokens, steps, speed: unwatched || (last ? tokens / last : null), plain: baseline, seconds }) };
    this.method = text(header.method);
    this.works = summaries.map(({ work }) => work);
  }

  /** Whether the story of step `index` can be told. */
  tells(index) {
    if (!this.run && this.read) this.sum();
    return Boolean(this.run) && framesOf(this.store.step(index), this.run).length > 0;
  }

  /** Tells step `index`, from its beginning. */
  show(index) {
    if (index !== this.index) {
      this.index = index;
      this.step = this.store.step(index);
      this.frames = framesOf(this.step, this.run);
      this.sections = this.frames.map(({ title, say }, at) => h("section", { "data-frame": at, tabindex: -1 }, h("p", { class: "which" }, `${at + 1} of ${this.frames.length}`), h("h3", {}, title), ...say.filter(Boolean).map((words) => h("p", {}, h("bdi", {}, words)))));
      this.sections[this.sections.length - 1].append(this.elsewhere, this.end);
      this.text.replaceChildren(...this.sections);
      this.dots.replaceChildren(...this.frames.map(({ title }, at) => h("li", {}, h("button", { type: "button", "data-frame": at, "aria-label": `${at + 1}: ${title}`, title }, at + 1))));
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
    this.seen = new IntersectionObserver(() => this.look(), { rootMargin: `0px 0px -${innerHeight - this.line}px 0px` });
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

  /** The drawing shows frame `at`. */
  mark(at) {
    this.at = at;
    this.box.dataset.frame = this.frames[at].id;
    this.sketch.svg.setAttribute("aria-label", this.frames[at].title);
    [this.sections, [...this.dots.children].map((li) => li.firstChild)].forEach((parts) =>
      parts.forEach((part, n) => {
        if (n === at) part.setAttribute("aria-current", "step");
        else part.removeAttribute("aria-current");
      }),
    );
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

  /** What a step costs: here where that was measured, and on the machine that is chosen. */
  showCosts() {
    if (!this.step) return;
    const { machine } = this.choice;
    const there = meanCost(machine, this.method, this.works);
    const bars = this.run.cycle || (there && { cost: there, brought: this.run.alpha, parts: [{ stage: "verify", name: "Step", cost: there }] });
    this.costs.replaceChildren(...(bars ? [h("h4", {}, this.run.cycle ? "A step of this run, where it was recorded" : `A step of this run, with an 8B model on ${machine.name}`), cycleBars(bars)] : []));
    this.elsewhere.replaceChildren("Elsewhere: ", this.choice.select, " ", elsewhereWords(machine, there, this.run.alpha));
  }
}
