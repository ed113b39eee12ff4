// Learn: explains a step chapter by chapter beside its drawing; the appendices follow.

import { PAYS, readAddress } from "../../assets/viewer/address.js";
import { button, emit, fold, h, markCurrent, oneWait } from "../../assets/viewer/dom.js";
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
  new MutationObserver(dark).observe(document.body, { attributeFilter: ["class"] });
  dark();
  const nothing = () => {};
  return startView(place, nothing, { value: lines, told: true }, nothing);
}

/** The view of the chapters; returns a function that loads a run. `trigger` sends an event to the server; `styles`: style sheet of the
 *  drawing. */
function tourView(element, trigger, { styles }) {
  let [chapters, here, step, timer] = [[], 0, 0, 0]; // here: index of the shown chapter
  let view, example, firstRun, own; // own: whether the run is not the example
  let settled, aligned; // whether the place of the scene is known; whether the next scroll event is that of `align`
  const whenShown = oneWait(EXPLORE_MS);
  const notice = h("p.notice", { role: "alert", hidden: true });
  const rail = h("ol.rail", { ariaLabel: "Chapters" });
  const whose = h("p.whose", {});
  const title = h("h3", { tabindex: -1 });
  const body = h("div.body", { ariaLive: "polite" });
  const words = h("section.words", { ariaLabel: "Chapter", tabindex: 0 }, whose, title, body);
  const stage = h("div.stage", { role: "group", ariaLabel: "The step" });
  const back = button("←", { class: "move", ariaLabel: "Previous chapter (←)", title: "←" }, () => go(here - 1));
  const next = button("Next →", { class: "move", id: "learn-next" }, () => go(here + 1));
  const player = button("", { class: "play" }, toggle);
  const scene = h("div.scene", {}, rail, words, stage, h("div.ways", {}, player, back, next));
  const track = h("div.track", {}, scene);
  element.replaceChildren(h("section.panels.tour", { ariaLabel: "Learn" }, notice, track));
  document.addEventListener("keydown", onKey, true);
  addEventListener("scroll", onScroll, { passive: true });
  new ResizeObserver(settle).observe(track); // also when the tab is opened again

  /** Loads the run; if that fails, shows a notice with a button to try again. `ask()` returns the packed tour; `lines`: trace lines,
   *  needed if the tour lacks them; `address`: the chapter and step to begin with. */
  async function load(ask, lines, address) {
    notice.hidden = true;
    try {
      await begin(JSON.parse(await inflate(await ask())), lines, address);
    } catch (error) {
      console.warn(error);
      notice.hidden = false;
      notice.replaceChildren(
        "Learn could not be loaded. Is the connection lost? ",
        button("Try again", { class: "small" }, () => load(ask, lines, address)),
      );
    }
  }

  async function begin(tour, ownLines, { chapter, step: wanted }) {
    example = { value: ownLines ?? tour.lines, step: tour.start, about: tour.about ?? "" };
    view = drawingIn(stage, styles, example.value);
    await tell({ ...example, step: chapter && wanted ? wanted - 1 : tour.start }, chapter ?? 1);
    element.addEventListener("learn:go", ({ detail }) => follow(detail));
    element.dataset.ready = "yes";
  }

  /** Explains a step of a run, from chapter number `chapter` on. */
  async function tell({ value, step: wanted, about = "" }, chapter) {
    const { store, state } = view;
    store.feed(value);
    await until(() => store.complete);
    step = Math.min(wanted, store.length - 1);
    state.pin(step);
    firstRun ??= store.run; // the example
    own = store.run !== firstRun;
    const told = store.step(step);
    const appendix = sampling(told, (seed) => state.set({ seed }));
    chapters = [...chaptersOf(told, store), appendix].filter(Boolean);
    if (about) chapters[0].asked.push(["Which models are these?", about]);
    showRail();
    const scrolls = window === window.parent; // not in a frame, which may be as high as its content
    track.style.setProperty("--pages", scrolls ? chapters.length - 1 : 0);
    here = -1;
    enter(placeOf(chapter));
    align();
  }

  /** Goes to a chapter, and to a step if given; `value`: lines of another run, which is then explained. */
  function follow({ chapter, step: wanted = null, value = "" }) {
    if (value) return tell({ value, step: wanted }, chapter);
    if (wanted && wanted - 1 !== step) return tell({ ...example, step: wanted - 1 }, chapter);
    return go(placeOf(chapter));
  }

  /** Index of the chapter with this number; if the step has no such chapter, index of the chapter before. */
  function placeOf(chapter) {
    return Math.max(
      0,
      chapters.findLastIndex(({ id }) => id <= chapter),
    );
  }

  function showRail() {
    rail.replaceChildren(
      ...chapters.map(({ name, box }, at) =>
        h(
          "li",
          { class: box && "appendix" },
          button(h("span", {}, box ? name : `${at + 1} ${name}`), { title: name }, () => go(at)),
        ),
      ),
    );
  }

  /** Shows chapter `at` and plays it. */
  function enter(at) {
    if (at === here || !chapters[at]) return;
    const returns = at < here;
    here = at;
    const { id, title: heading, say, from, to, box = "" } = chapters[at];
    const other = own || step !== example.step;
    whose.replaceChildren(
      other ? `${own ? "Your run" : "A recorded run"}, step ${step + 1} ` : "From a recorded run",
      other ? button("Back to the example", { class: "small" }, () => tell(example, 1)) : "",
    );
    title.textContent = heading;
    const explained = new Set(); // terms that this chapter has explained
    body.replaceChildren(
      ...say.map((sentence) => h("p", {}, h("bdi", {}, ...withTerms(sentence, explained)))),
      box,
      ...foldsOf(chapters[at]),
      id === PAYS ? waysOn() : "",
    );
    words.scrollTop = 0;
    view.state.set({ seed: null, why: id === PAYS });
    view.page.root.dataset.told = id;
    view.player.play(returns ? to : from, to);
    const items = [...rail.children];
    items.forEach((item, n) => item.classList.toggle("done", n <= at));
    markCurrent(
      items.map((item) => item.firstChild),
      at,
    );
    back.disabled = at === 0;
    next.disabled = at === chapters.length - 1;
    showPlayer();
    Object.assign(element.dataset, { chapter: id, step });
    emit(element, "learn:moved");
  }

  /** Buttons below the last chapter: the quiz, and Explore. */
  function waysOn() {
    return h(
      "div.on",
      {},
      button("Quiz", {}, () => open("quiz")),
      button("Open in Explore", { id: "learn-open" }, () => open("")),
    );
  }

  function go(at) {
    rest();
    if (at < 0 || at >= chapters.length) return;
    enter(at);
    if (pitch() < 1) scrollTo({ top: 0 });
    align();
    title.focus({ preventScroll: true });
  }

  // Playing and scrolling

  /** Plays the chapters one after the other, with time to read each. */
  function play() {
    const last = chapters.findLastIndex(({ box }) => !box);
    if (here >= last) enter(0);
    const read = () => {
      const { say, from, to } = chapters[here];
      const seconds = Math.max((to - from) * STAGE_SECONDS + 2, say.join(" ").split(" ").length / WORDS_PER_SECOND);
      timer = setTimeout(() => {
        if (here >= last) return rest();
        enter(here + 1);
        align();
        return read();
      }, 1000 * seconds);
    };
    read();
    align();
    showPlayer();
  }

  function toggle() {
    if (timer) rest();
    else play();
  }

  function rest() {
    clearTimeout(timer);
    timer = 0;
    showPlayer();
  }

  function showPlayer() {
    showPlaying(player, timer > 0, "Play the story", "space");
  }

  /** Pixels to scroll from a chapter to the next; 0 if the tab is not open. */
  function pitch() {
    return track.offsetParent ? (track.offsetHeight - scene.offsetHeight) / Math.max(1, chapters.length - 1) : 0;
  }

  /** Index of the chapter that the page is scrolled to; the shown one if scrolling does not move through chapters. */
  function place() {
    return pitch() < 1 ? here : Math.round(scrollY / pitch());
  }

  /** Keeps the scene at its initial position while the page scrolls. */
  function settle() {
    settled = track.offsetParent !== null; // if false, another tab is open, and the page scrolls that tab
    if (!settled) return;
    track.style.setProperty("--top", `${Math.round(track.getBoundingClientRect().top + scrollY)}px`);
    align();
  }

  function align() {
    if (place() === here) return;
    aligned = true;
    scrollTo({ top: here * pitch(), behavior: "instant" });
  }

  function onScroll() {
    if (!element.isConnected) return removeEventListener("scroll", onScroll);
    if (aligned) return (aligned = false);
    if (!settled || place() === here) return undefined;
    rest();
    return enter(Math.min(chapters.length - 1, place()));
  }

  /** Handles keys before the drawing does, so that ← and → move through chapters, not through steps. */
  function onKey(event) {
    if (!element.isConnected) return document.removeEventListener("keydown", onKey, true);
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
    if (event.key === " " && !from.closest("button:not([role='tab']), summary")) toggle();
    else if (event.key === "ArrowLeft") go(here - 1);
    else if (event.key === "ArrowRight") go(here + 1);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** Opens this step of the example or of the user's run in Explore, and begins a `game` if one is named. */
  function open(game) {
    trigger("select", { step, game, own });
    const { run } = view.store;
    const find = () => {
      const shown = explorer();
      const { run: there, pinned } = shown?.dataset ?? {};
      return shown?.offsetParent && there === run && (own || pinned === String(step)) && shown;
    };
    whenShown(find, (shown) => {
      emit(shown, "explorer:select", { step, node: null });
      if (game) emit(shown, "explorer:guess", { name: game, on: true });
    });
  }

  return load;
}

/** The foldable details below a chapter. */
function foldsOf({ formula, numbers, asked }) {
  const values = numbers.map(([name, value]) =>
    h("div", {}, h("dt", {}, h("bdi", {}, name)), h("dd", {}, h("bdi", {}, value))),
  );
  const written = formula.length
    ? h("p.equation", { role: "math", ariaLabel: formula.map(spokenPiece).join("") }, ...formula.map(drawnPiece))
    : "";
  const name = formula.length ? "Show the formula" : "Show the numbers";
  return [
    formula.length || numbers.length ? fold(name, written, h("dl.values", {}, ...values)) : "",
    ...asked.map(([question, answer]) => fold(question, h("p", {}, answer))),
  ];
}

const drawnPiece = (piece) => (Array.isArray(piece) ? h(piece[0] === "var" ? "i" : piece[0], {}, piece[1]) : piece);
const spokenPiece = (piece) => (!Array.isArray(piece) ? piece : piece[0] === "sub" ? ` sub ${piece[1]} ` : piece[1]);

export async function start(element, trigger, props, watch, server, options) {
  const load = tourView(element, trigger, options);
  await load(() => server.tour(), props.lines, readAddress(props.address || location.search));
}

const until = (test) => new Promise((go, fail) => oneWait(READ_MS)(test, go, () => fail(new Error("timed out"))));
