// Learn: the story of a step, then its stops, a card each beside the live step.

import { readAddress } from "../../assets/viewer/address.js";
import { button, h, markCurrent, oneWait, text } from "../../assets/viewer/dom.js";
import { withTerms } from "../../assets/viewer/glossary.js";
import { Store, inflate } from "../../assets/viewer/store.js";
import { DrawsView, Stage, TURN, WalkView } from "./stage.js";
import { LiveView, PassView } from "./live.js";
import { stopsOf, tokensWith } from "./stops.js";
import { StoryView } from "./story.js";

const EXPLORE_MS = 20000; // how long Explore may take to show the step
const READ_MS = 10000; // how long reading the run may take
const TURN_TITLE = "Now change K and γ";

/** The card of one stop: words, equation, the numbers of the step, and the way on. */
class CardView {
  /** `go(at)` shows a stop (`TURN` after the last one, where K and γ can be changed), `all()` shows everything, `open()` leads
   *  to Explore. */
  constructor({ go, all, open, walk, draws, pass, live }) {
    Object.assign(this, { go, walk, draws, pass, live, at: 0, first: 0, about: "", examples: [] });
    this.title = h("h3", { tabindex: -1 });
    this.where = h("p", { class: "where" });
    this.body = h("div", {
      class: "body",
      tabindex: 0,
      role: "region",
      "aria-label": "What this stop says",
      "aria-live": "polite",
      "aria-atomic": "true",
    });
    this.dots = h("ol", { class: "dots", "aria-label": "Stops" });
    this.back = button("← Back", { class: "move", id: "learn-back" }, () => this.go(this.at - 1));
    this.next = button("Next →", { class: "move next", id: "learn-next" }, () => this.go(this.at + 1));
    this.all = button("Show everything", { class: "quiet", id: "learn-all", "aria-pressed": "false" }, all);
    this.open = button("Open in Explore →", { class: "move next", id: "learn-open" }, open);
    this.keys = h(
      "p",
      { class: "keys" },
      h("kbd", {}, "←"),
      h("kbd", {}, "→"),
      " between stops, ",
      h("kbd", {}, "Esc"),
      " everything",
    );
    this.foot = h("div", { class: "foot" }, this.all, this.keys);
    this.box = h(
      "section",
      { class: "card", "aria-label": "Tour" },
      this.where,
      this.title,
      this.body,
      h("div", { class: "ways" }, this.back, this.next, this.open),
      this.dots,
      this.foot,
    );
    this.dots.addEventListener("click", (event) => {
      const dot = event.target.closest("button");
      if (dot) this.go(Number(dot.dataset.stop));
    });
  }

  /** Where the tour ends: K and γ cannot be changed where no other settings were replayed. */
  get last() {
    return this.live.live ? TURN : TURN - 1;
  }

  /** Shows stop `at` of step number `step`, `this.first` being where Back ends; behind the last stop K and γ can be changed. */
  show(stops, at, step, everything) {
    this.at = at;
    const turn = at >= stops.length;
    const stop = turn ? null : stops[at];
    this.where.textContent = turn
      ? `Step ${step + 1} of a recorded run · your turn`
      : `Step ${step + 1} of a recorded run · stop ${at + 1} of ${stops.length}`;
    this.title.textContent = turn ? TURN_TITLE : stop.title;
    const shown = `${at} ${step}`;
    if (shown !== this.shown || turn) this.body.replaceChildren(...(turn ? this.turn() : this.stop(stop, at)));
    if (shown !== this.shown) this.enter(stop);
    this.shown = shown;
    this.back.disabled = at === this.first;
    this.back.textContent = at === 0 && this.first < 0 ? "← The story" : "← Back";
    this.next.hidden = at >= this.last;
    this.open.hidden = !this.next.hidden;
    this.all.hidden = this.keys.hidden = turn; // everything is shown there anyway
    this.next.textContent = at === stops.length - 1 ? "Your turn →" : "Next →";
    this.all.setAttribute("aria-pressed", everything);
    this.all.textContent = everything ? "Back to this stop" : "Show everything";
    const names = [...stops.map(({ title }) => title), TURN_TITLE].slice(0, this.last + 1);
    if (this.dots.children.length !== names.length)
      this.dots.replaceChildren(
        ...names.map((name, i) =>
          h(
            "li",
            {},
            h(
              "button",
              {
                type: "button",
                "data-stop": i,
                "aria-label": `${i < stops.length ? `Stop ${i + 1}` : "Your turn"}: ${name}`,
                title: name,
              },
              i < stops.length ? i + 1 : "K",
            ),
          ),
        ),
      );
    const dots = [...this.dots.children].map((li) => li.firstChild);
    dots.forEach((dot, i) => dot.classList.toggle("done", i < at));
    markCurrent(dots, at);
  }

  /** What moves at a stop begins when it is entered. */
  enter(stop) {
    const { walk, odds } = stop || { walk: [], odds: [] };
    if (walk.length) this.walk.load(walk);
    else this.walk.leave();
    if (odds.length) this.draws.load(odds);
    if (stop && stop.verified) this.pass.load(stop.verified);
  }

  stop(stop, at) {
    const rows = stop.numbers.map(([name, value]) =>
      h("div", {}, h("dt", {}, h("bdi", {}, name)), h("dd", {}, h("bdi", {}, value))),
    );
    const known = new Set(); // the words that this card has explained
    const said = stop.say.map((sentence) => h("p", {}, h("bdi", {}, ...withTerms(sentence, known))));
    return [
      ...said.slice(0, 1),
      stop.verified ? this.pass.box : "",
      ...said.slice(1),
      stop.odds.length ? this.draws.box : "",
      stop.equation.length
        ? h(
            "p",
            { class: "equation", role: "math", "aria-label": stop.equation.map(spokenPiece).join("") },
            ...stop.equation.map(drawnPiece),
          )
        : "",
      stop.walk.length ? this.walk.box : "",
      rows.length && !stop.odds.length ? h("dl", { class: "values" }, ...rows) : "",
      ...stop.questions.map(([question, answer]) =>
        h("details", { class: "asked" }, h("summary", {}, question), h("p", {}, answer)),
      ),
      at === 0 && this.about
        ? h(
            "p",
            { class: "about" },
            this.about,
            " Its examples: ",
            ...this.examples.flatMap(([name, prompt], i) => [i ? ", " : "", h("span", { title: prompt }, name)]),
            ".",
          )
        : "",
    ];
  }

  turn() {
    return [
      h(
        "p",
        {},
        "K is how many flags get a re-draft, γ how long a block is. Move them: the text is cut into the steps that it would have taken.",
      ),
      this.live.box,
    ];
  }
}

const drawnPiece = (piece) => (Array.isArray(piece) ? h(piece[0] === "var" ? "i" : piece[0], {}, piece[1]) : piece);
const spokenPiece = (piece) => (!Array.isArray(piece) ? piece : piece[0] === "sub" ? ` sub ${piece[1]} ` : piece[1]);

/** The tour over one run, first the story of a step, then its stops. */
class Tour {
  /** `trigger` reaches the server; `styles`: of the live view. */
  constructor(element, trigger, { styles }) {
    Object.assign(this, { element, trigger, at: 0, step: 0, everything: false });
    this.whenShown = oneWait(EXPLORE_MS);
    this.store = new Store(
      () => {},
      () => {},
    );
    this.walk = new WalkView((at) => this.stage.walk(at, this.walk.visits, this.step));
    this.live = new LiveView((k) => this.stage.branches(k, this.tokensWith(k)));
    this.card = new CardView({
      go: (at) => this.go(at),
      all: () => this.toggleAll(),
      open: () => this.open(),
      walk: this.walk,
      draws: new DrawsView(),
      pass: new PassView(),
      live: this.live,
    });
    this.stage = new Stage(styles, (step) => this.follow(step));
    this.story = new StoryView(
      this.store,
      () => this.go(0),
      () => this.go(TURN),
    );
    this.notice = h("p", { class: "notice", role: "alert", hidden: true });
    this.layout = h(
      "div",
      { class: "layout", hidden: true },
      this.card.box,
      h("div", { class: "beside" }, this.live.cut, this.stage.box),
    );
    element.replaceChildren(
      h(
        "section",
        { class: "panels tour", "aria-label": "Learn how a step works" },
        this.notice,
        this.story.box,
        this.layout,
      ),
    );
    this.keys = (event) => this.onKey(event);
    document.addEventListener("keydown", this.keys, true);
  }

  /** Loads the run, with a notice and another try where that fails. `ask()` is answered with the packed tour; `lines`: of the run
   *  where they are not in it; `address`: the stop and step to begin with. */
  async load(ask, lines, address) {
    this.notice.hidden = true;
    try {
      await this.begin(JSON.parse(await inflate(await ask())), lines, address);
    } catch (error) {
      console.warn(error);
      this.notice.hidden = false;
      this.notice.replaceChildren(
        "The tour did not load; is the connection lost? ",
        button("Try again", { class: "small" }, () => this.load(ask, lines, address)),
      );
    }
  }

  async begin(tour, ownLines, { stop, step }) {
    const { card, element, live, stage, store } = this;
    this.layout.hidden = false;
    this.run = text(tour.run);
    card.about = text(tour.about);
    card.examples = Object.entries(tour.examples || {}).map(([name, prompt]) => [name, text(prompt)]);
    const lines = ownLines ?? tour.lines;
    stage.load(lines);
    store.feed(lines);
    live.load(tour.live, tour.here, tour.opening);
    this.story.turn.hidden = !live.live;
    await until(() => store.complete);
    this.step = stop === null || step === null ? tour.start : Math.min(step, store.length) - 1;
    await until(() => stage.steps > this.step);
    stage.pin(this.step);
    this.at = this.within((stop ?? 0) - 1);
    this.show();
    element.addEventListener("learn:go", ({ detail }) => {
      if (detail.step && detail.step - 1 !== this.step) stage.pin(detail.step - 1);
      if (detail.stop - 1 !== this.at) this.go(detail.stop - 1);
    });
    element.dataset.ready = "yes";
  }

  follow(step) {
    if (step === this.step) return;
    this.step = step;
    this.show();
  }

  show() {
    const { element, layout, story, store } = this;
    const step = store.step(this.step);
    if (!step) return;
    const telling = this.at < 0;
    [story.box.hidden, layout.hidden] = [!telling, telling];
    if (telling) story.show(this.step);
    else this.showStop(step);
    Object.assign(element.dataset, { at: this.at, step: this.step, everything: this.everything });
    element.dispatchEvent(new CustomEvent("learn:moved", { bubbles: true }));
  }

  showStop(step) {
    const { card, live, stage, store } = this;
    const run = { steps: store.length, alpha: store.sums.tokens / store.length, plain: store.baseline };
    card.first = this.within(-1);
    card.show(stopsOf(step, run), this.at, this.step, this.everything);
    live.cut.hidden = this.at < TURN;
    if (this.at < TURN) stage.branches(null, 0);
    else live.show();
    requestAnimationFrame(() => stage.light(this.at, this.step, this.everything));
  }

  /** The nearest stop to `at` that there is; the story, where it can be told, is before the first. */
  within(at) {
    return Math.min(this.card.last, Math.max(this.story.tells(this.step) ? -1 : 0, at));
  }

  go(at) {
    const { card, layout, story } = this;
    this.at = this.within(at);
    this.everything = false;
    this.show();
    if (this.at < 0) return story.go(0);
    card.title.focus({ preventScroll: true });
    if (layout.getBoundingClientRect().top < 0) layout.scrollIntoView({ block: "start" });
    return requestAnimationFrame(() => card.title.scrollIntoView({ block: "nearest" })); // below the picture on a phone, once that is drawn
  }

  /** One frame of the story on or back, or one stop; behind the last frame comes the first stop. */
  move(by) {
    if (this.at >= 0) this.go(this.at + by);
    else if (!this.story.go(this.story.at + by) && by > 0) this.go(0);
  }

  toggleAll() {
    if (this.at < 0 || this.at >= TURN) return;
    this.everything = !this.everything;
    this.show();
  }

  /** Tokens of the step with its first `k` re-drafts alone; 0: not known. */
  tokensWith(k) {
    const step = this.store.step(this.step);
    return k !== null && step && k <= step.branches.length ? tokensWith(step, k) : 0;
  }

  /** Explore gets the recorded run, this step is selected there, and the field for K is ready to be changed. */
  open() {
    this.trigger("select", { step: this.step });
    const find = () => {
      const view = document.querySelector("#explorer [data-run]");
      return (
        view &&
        view.offsetParent &&
        view.dataset.run === this.run.slice(0, 200) &&
        view.dataset.pinned === String(this.step)
      );
    };
    this.whenShown(find, () => this.showField());
  }

  /** The field for K; on a narrow page the settings are unfolded for it. */
  showField() {
    const { live } = this;
    const fold = document.querySelector("#fold button[aria-expanded='false']");
    if (fold && fold.offsetParent) fold.click();
    const field = document.querySelector("#branches input");
    if (!field || !field.offsetParent) return;
    if (this.at >= TURN && live.live) {
      field.value = live.at().point.k; // what was set here
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    field.focus();
    field.select();
    const box = field.closest("#branches");
    box.classList.add("look-here");
    setTimeout(() => box.classList.remove("look-here"), 4000);
  }

  /** First in line, so that ← and → lead through the stops here and not through the steps of the live view. */
  onKey(event) {
    const { element } = this;
    if (!element.isConnected) {
      document.removeEventListener("keydown", this.keys, true);
      return;
    }
    const from = event.composedPath()[0];
    if (from instanceof Element && from.closest("dialog[open]")) return; // its keys are its own
    const typing =
      from instanceof Element && from.closest("input, textarea, select, [contenteditable='true'], [role='textbox']");
    // After a click on the tab its button has the focus.
    const ours =
      event.target === document.body ||
      element.contains(event.target) ||
      (event.target instanceof Element && event.target.matches("[role='tab']"));
    if (!ours || typing || !element.offsetParent || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey)
      return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) this.move(by);
    else if (event.key === "Escape") this.toggleAll();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}

export async function start(element, trigger, props, watch, server, options) {
  const tour = new Tour(element, trigger, options);
  await tour.load(() => server.tour(), props.lines, readAddress(text(props.address) || location.search));
}

/** Waits until something is true; gives up after a while. */
const until = (test) => new Promise((go, fail) => oneWait(READ_MS)(test, go, () => fail(new Error("nothing came"))));
