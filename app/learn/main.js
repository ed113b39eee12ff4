// Learn: explains a step chapter by chapter beside its drawing; the appendices follow.

import { PAYS, readAddress } from "../../assets/viewer/address.js";
import { button, emit, h, markCurrent, oneWait } from "../../assets/viewer/dom.js";
import { withTerms } from "../../assets/viewer/glossary.js";
import { start as startView } from "../../assets/viewer/main.js";
import { STAGE_SECONDS, showPlaying } from "../../assets/viewer/player.js";
import { inflate } from "../../assets/viewer/store.js";
import { explorer } from "../static/explorer.js";
import { chaptersOf } from "./chapters.js";
import { sampling } from "./draws.js";

const READ_MS = 10000; // timeout for reading the run
const EXPLORE_MS = 20000; // timeout for Explore to show the run
const WORDS_PER_SECOND = 3.6;

/** The drawing of the step, in a shadow root because Explore uses the same element ids. */
function drawingIn(host, styles, lines) {
  const root = host.attachShadow({ mode: "open" });
  const [frame, place] = [h("div.told-frame", {}), h("div", {})];
  frame.append(place);
  root.append(h("style", {}, styles), frame);
  const dark = () => frame.classList.toggle("dark", document.body.classList.contains("dark"));
  new MutationObserver(dark).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  dark();
  const nothing = () => {};
  return startView(place, nothing, { value: lines, told: true }, nothing);
}

class Tour {
  /** `trigger` sends an event to the server; `styles`: style sheet of the drawing. */
  constructor(element, trigger, { styles }) {
    Object.assign(this, { element, trigger, styles, chapters: [], at: 0, step: 0, timer: 0, about: "" });
    this.whenShown = oneWait(EXPLORE_MS);
    this.notice = h("p.notice", { role: "alert", hidden: true });
    this.rail = h("ol.rail", { ariaLabel: "Chapters" });
    this.rail.addEventListener("click", ({ target }) => {
      const at = target.closest("button")?.dataset.at;
      if (at) this.go(Number(at));
    });
    this.whose = h("p.whose", {});
    this.title = h("h3", { tabindex: -1 });
    this.body = h("div.body", { ariaLive: "polite" });
    this.stage = h("div.stage", { role: "group", ariaLabel: "The step" });
    this.back = button("←", { class: "move", ariaLabel: "Previous chapter (←)", title: "←" }, () =>
      this.go(this.at - 1),
    );
    this.next = button("Next →", { class: "move", id: "learn-next" }, () => this.go(this.at + 1));
    this.player = button("", { class: "play" }, () => this.toggle());
    this.scene = h(
      "div.scene",
      {},
      this.rail,
      h("section.words", { ariaLabel: "Chapter", tabindex: 0 }, this.whose, this.title, this.body),
      this.stage,
      h("div.ways", {}, this.player, this.back, this.next),
    );
    this.track = h("div.track", {}, this.scene);
    element.replaceChildren(h("section.panels.tour", { ariaLabel: "Learn" }, this.notice, this.track));
    this.keys = (event) => this.onKey(event);
    this.scrolled = () => this.onScroll();
    document.addEventListener("keydown", this.keys, true);
    addEventListener("scroll", this.scrolled, { passive: true });
    new ResizeObserver(() => this.settle()).observe(this.track); // also when the tab is opened again
  }

  /** Loads the run; if that fails, shows a notice with a button to try again. `ask()` returns the packed tour; `lines`: trace lines,
   *  needed if the tour lacks them; `address`: the chapter and step to begin with. */
  async load(ask, lines, address) {
    this.notice.hidden = true;
    try {
      await this.begin(JSON.parse(await inflate(await ask())), lines, address);
    } catch (error) {
      console.warn(error);
      this.notice.hidden = false;
      this.notice.replaceChildren(
        "Learn could not be loaded. Is the connection lost? ",
        button("Try again", { class: "small" }, () => this.load(ask, lines, address)),
      );
    }
  }

  async begin(tour, ownLines, { chapter, step }) {
    this.example = { value: ownLines ?? tour.lines, step: tour.start, about: tour.about ?? "" };
    this.view = drawingIn(this.stage, this.styles, this.example.value);
    await this.tell({ ...this.example, step: chapter && step ? step - 1 : tour.start }, chapter ?? 1);
    this.element.addEventListener("learn:go", ({ detail }) => this.follow(detail));
    this.element.dataset.ready = "yes";
  }

  /** Explains step `step` of a run, from chapter number `chapter` on. */
  async tell({ value, step, about = "" }, chapter) {
    const { view } = this;
    view.store.feed(value);
    await until(() => view.store.complete);
    const { store } = view;
    this.step = Math.min(step, store.length - 1);
    view.state.pin(this.step);
    this.run ??= store.run; // the first run is the example
    this.own = store.run !== this.run;
    const told = store.step(this.step);
    const appendix = sampling(told, (seed) => view.state.set({ seed }));
    this.chapters = [...chaptersOf(told, store), appendix].filter(Boolean);
    if (about) this.chapters[0].asked.push(["Which models are these?", about]);
    this.showRail();
    const scrolls = window === window.parent; // not in a frame, which may be as high as its content
    this.track.style.setProperty("--pages", scrolls ? this.chapters.length - 1 : 0);
    this.at = -1;
    this.enter(this.placeOf(chapter));
    this.align();
  }

  /** Goes to a chapter, and to a step if given; `value`: lines of another run, which is then explained. */
  follow({ chapter, step = null, value = "" }) {
    if (value) return this.tell({ value, step }, chapter);
    if (step && step - 1 !== this.step) return this.tell({ ...this.example, step: step - 1 }, chapter);
    return this.go(this.placeOf(chapter));
  }

  /** Index of the chapter with this number; if the step has no such chapter, index of the chapter before. */
  placeOf(chapter) {
    const at = this.chapters.findLastIndex(({ id }) => id <= chapter);
    return Math.max(0, at);
  }

  showRail() {
    let number = 0;
    this.rail.replaceChildren(
      ...this.chapters.map(({ name, box }, at) =>
        h(
          "li",
          { class: box ? "appendix" : null },
          button(h("span", {}, box ? name : `${(number += 1)} ${name}`), { "data-at": at, title: name }),
        ),
      ),
    );
  }

  /** Shows chapter `at` and plays it. */
  enter(at) {
    if (at === this.at || !this.chapters[at]) return;
    const back = at < this.at;
    this.at = at;
    const { id, title, say, from, to, box = "" } = this.chapters[at];
    const { view } = this;
    const other = this.own || this.step !== this.example.step;
    this.whose.replaceChildren(
      other ? `${this.own ? "Your run" : "A recorded run"}, step ${this.step + 1} ` : "From a recorded run",
      other ? button("Back to the example", { class: "small" }, () => this.tell(this.example, 1)) : "",
    );
    this.title.textContent = title;
    const explained = new Set(); // terms that this chapter has explained
    this.body.replaceChildren(
      ...say.map((sentence) => h("p", {}, h("bdi", {}, ...withTerms(sentence, explained)))),
      box,
      ...this.folds(this.chapters[at]),
      ...(id === PAYS ? [this.waysOn()] : []),
    );
    this.body.parentNode.scrollTop = 0;
    view.state.set({ seed: null, why: id === PAYS });
    view.page.root.dataset.told = id;
    view.player.play(back ? to : from, to);
    [...this.rail.children].forEach((item, n) => item.classList.toggle("done", n <= at));
    markCurrent(
      [...this.rail.children].map((item) => item.firstChild),
      at,
    );
    this.back.disabled = at === 0;
    this.next.disabled = at === this.chapters.length - 1;
    this.showPlayer();
    Object.assign(this.element.dataset, { chapter: id, step: this.step });
    emit(this.element, "learn:moved");
  }

  /** The foldable details below a chapter. */
  folds({ formula, numbers, asked }) {
    const fold = (name, ...parts) => h("details.asked", {}, h("summary", {}, name), ...parts);
    const values = numbers.map(([name, value]) =>
      h("div", {}, h("dt", {}, h("bdi", {}, name)), h("dd", {}, h("bdi", {}, value))),
    );
    const written = formula.length
      ? h("p.equation", { role: "math", ariaLabel: formula.map(spokenPiece).join("") }, ...formula.map(drawnPiece))
      : "";
    const name = formula.length ? "Show the formula" : "Show the numbers";
    return [
      ...(formula.length || numbers.length ? [fold(name, written, h("dl.values", {}, ...values))] : []),
      ...asked.map(([question, answer]) => fold(question, h("p", {}, answer))),
    ];
  }

  /** Buttons below the last chapter: the quiz, and Explore. */
  waysOn() {
    return h(
      "div.on",
      {},
      button("Quiz", {}, () => this.open("quiz")),
      button("Open in Explore", { id: "learn-open" }, () => this.open("")),
    );
  }

  go(at) {
    this.rest();
    if (at < 0 || at >= this.chapters.length) return;
    this.enter(at);
    this.align();
    this.title.focus({ preventScroll: true });
  }

  // Playing and scrolling

  /** Plays the chapters one after the other, with time to read each. */
  play() {
    const last = this.chapters.findLastIndex(({ box }) => !box);
    if (this.at >= last) this.enter(0);
    const read = () => {
      const { say, from, to } = this.chapters[this.at];
      const seconds = Math.max((to - from) * STAGE_SECONDS + 2, say.join(" ").split(" ").length / WORDS_PER_SECOND);
      this.timer = setTimeout(() => {
        if (this.at >= last) return this.rest();
        this.enter(this.at + 1);
        this.align();
        return read();
      }, 1000 * seconds);
    };
    read();
    this.align();
    this.showPlayer();
  }

  toggle() {
    if (this.timer) this.rest();
    else this.play();
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.showPlayer();
  }

  showPlayer() {
    showPlaying(this.player, this.timer > 0, "Play the story", "space");
  }

  /** Pixels to scroll from a chapter to the next. */
  get pitch() {
    return (this.track.offsetHeight - this.scene.offsetHeight) / Math.max(1, this.chapters.length - 1);
  }

  /** Index of the chapter that the page is scrolled to. */
  get place() {
    return Math.round(scrollY / this.pitch);
  }

  /** Keeps the scene at its initial position while the page scrolls. */
  settle() {
    const { track } = this;
    this.settled = track.offsetParent !== null; // if false, another tab is open, and the page scrolls that tab
    if (!this.settled) return;
    track.style.setProperty("--top", `${Math.round(track.getBoundingClientRect().top + scrollY)}px`);
    this.align();
  }

  align() {
    const { track, pitch, at } = this;
    if (!track.offsetParent || pitch < 1 || this.place === at) return;
    this.aligned = true;
    scrollTo({ top: at * pitch, behavior: "instant" });
  }

  onScroll() {
    if (!this.element.isConnected) return removeEventListener("scroll", this.scrolled);
    if (this.aligned) return (this.aligned = false);
    if (!this.settled || !this.track.offsetParent || this.pitch < 1 || this.place === this.at) return undefined;
    this.rest();
    return this.enter(Math.min(this.chapters.length - 1, this.place));
  }

  /** Handles keys before the drawing does, so that ← and → move through chapters, not through steps. */
  onKey(event) {
    const { element } = this;
    if (!element.isConnected) return document.removeEventListener("keydown", this.keys, true);
    const from = event.composedPath()[0];
    if (
      !(from instanceof Element) ||
      from.closest("dialog[open], input, textarea, select, [role='textbox'], [role='slider']")
    )
      return;
    // After a click on the tab, its button has the focus.
    const ours =
      event.target === document.body || element.contains(event.target) || event.target.matches("[role='tab']");
    if (!ours || !element.offsetParent || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === " " && !from.closest("button:not([role='tab']), summary")) this.toggle();
    else if (event.key === "ArrowLeft") this.go(this.at - 1);
    else if (event.key === "ArrowRight") this.go(this.at + 1);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** Opens this step of the example or of the user's run in Explore, and begins a `game` if one is named. */
  open(game) {
    const { own, step, trigger } = this;
    trigger("select", { step, game, own });
    const { run } = this.view.store;
    const find = () => {
      const view = explorer();
      return view?.offsetParent && view.dataset.run === run && (own || view.dataset.pinned === String(step)) && view;
    };
    this.whenShown(find, (view) => {
      emit(view, "explorer:select", { step, node: null });
      if (game) emit(view, "explorer:guess", { name: game, on: true });
    });
  }
}

const drawnPiece = (piece) => (Array.isArray(piece) ? h(piece[0] === "var" ? "i" : piece[0], {}, piece[1]) : piece);
const spokenPiece = (piece) => (!Array.isArray(piece) ? piece : piece[0] === "sub" ? ` sub ${piece[1]} ` : piece[1]);

export async function start(element, trigger, props, watch, server, options) {
  const tour = new Tour(element, trigger, options);
  await tour.load(() => server.tour(), props.lines, readAddress(props.address || location.search));
}

const until = (test) => new Promise((go, fail) => oneWait(READ_MS)(test, go, () => fail(new Error("timed out"))));
