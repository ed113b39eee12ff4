// The card of one stop: words, equation, the numbers of the step, and the way on.

import { h, list, oneWait, text, whole } from "../../assets/viewer/dom.js";
import { HIDDEN, MARKS } from "../../assets/viewer/words.js";
import { DrawsView, Stage, TURN, WalkView } from "./stage.js";
import { LiveView, PassView } from "./live.js";
import { StoryView } from "./story.js";

const TURN_TITLE = "Now change K and γ";

class CardView {
  /** `go(at)` shows a stop (`TURN` after the last one, where K and γ can be changed), `all()` shows everything, `open()` leads
   *  to Explore. */
  constructor({ go, all, open, walk, draws, pass, live }) {
    Object.assign(this, { go, walk, draws, pass, live, at: 0, first: 0, about: "", examples: [] });
    this.title = h("h3", { tabindex: -1 });
    this.where = h("p", { class: "where" });
    this.body = h("div", { class: "body", "aria-live": "polite", "aria-atomic": "true" });
    this.dots = h("ol", { class: "dots", "aria-label": "Stops" });
    this.back = h("button", { type: "button", class: "move", id: "learn-back" }, "← Back");
    this.next = h("button", { type: "button", class: "move next", id: "learn-next" }, "Next →");
    this.all = h("button", { type: "button", class: "quiet", id: "learn-all", "aria-pressed": "false" }, "Show everything");
    this.open = h("button", { type: "button", class: "move next", id: "learn-open" }, "Open in Explore →");
    this.keys = h("p", { class: "keys" }, h("kbd", {}, "←"), h("kbd", {}, "→"), " between stops, ", h("kbd", {}, "Esc"), " everything");
    this.foot = h("div", { class: "foot" }, this.all, this.keys);
    this.box = h("section", { class: "card", "aria-label": "Tour" }, this.where, this.title, this.body, h("div", { class: "ways" }, this.back, this.next, this.open), this.dots, this.foot);
    this.back.addEventListener("click", () => this.go(this.at - 1));
    this.next.addEventListener("click", () => this.go(this.at + 1));
    this.all.addEventListener("click", all);
    this.open.addEventListener("click", open);
    this.dots.addEventListener("click", (event) => {
      const dot = event.target.closest("button");
      if (dot) this.go(Number(dot.dataset.stop));
    });
  }

  /** Where the tour ends: K and γ cannot be changed where no other settings were replayed. */
  get last() {
    return this.live.live ? TURN : TURN - 1;
  }

  /** Shows stop `at` of a lesson, `this.first` being where Back ends; `step` and `branches` are for the turn that follows the last stop. */
  show(lesson, at, step, everything) {
    this.at = at;
    const { stops } = lesson;
    const turn = at >= stops.length;
    const stop = turn ? null : stops[at];
    this.where.textContent = turn ? `Step ${step + 1} of a recorded run · your turn` : `Step ${step + 1} of a recorded run · stop ${at + 1} of ${stops.length}`;
    this.title.textContent = turn ? TURN_TITLE : text(stop.title);
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
    const names = [...stops.map((s) => text(s.title)), TURN_TITLE].slice(0, this.last + 1);
    if (this.dots.children.length !== names.length) this.dots.replaceChildren(...names.map((name, i) => h("li", {}, h("button", { type: "button", "data-stop": i, "aria-label": `${i < stops.length ? `Stop ${i + 1}` : "Your turn"}: ${name}`, title: name }, i < stops.length ? i + 1 : "K"))));
    [...this.dots.children].forEach((li, i) => {
      li.firstChild.classList.toggle("done", i < at);
      if (i === at) li.firstChild.setAttribute("aria-current", "step");
      else li.firstChild.removeAttribute("aria-current");
    });
  }

  /** What moves at a stop begins when it is entered. */
  enter(stop) {
    const [walk, odds] = stop ? [list(stop.walk), list(stop.odds)] : [[], []];
    if (walk.length) this.walk.load(walk);
    else this.walk.leave();
    if (odds.length) this.draws.load(odds);
    if (stop && stop.verified) this.pass.load(stop.verified);
  }

  stop(stop, at) {
    const rows = stop.numbers.map(([name, value]) => h("div", {}, h("dt", {}, h("bdi", {}, spaced(name))), h("dd", {}, h("bdi", {}, spaced(value)))));
    return [
      ...stop.say.map((sentence) => h("p", {}, h("bdi", {}, spaced(sentence)))),
      stop.equation.length ? h("p", { class: "equation", role: "math", "aria-label": stop.equation.map(([kind, words]) => (kind === "sub" ? ` sub ${words} ` : words)).join("") }, ...stop.equation.map(piece)) : "",
      list(stop.walk).length ? this.walk.box : "",
      rows.length && !list(stop.odds).length ? h("dl", { class: "values" }, ...rows) : "",
      list(stop.odds).length ? this.draws.box : "",
      stop.verified ? this.pass.box : "",
      ...list(stop.asked).map(([question, answer]) => h("details", { class: "asked" }, h("summary", {}, text(question)), h("p", {}, text(answer)))),
      at === 0 && this.about ? h("p", { class: "about" }, this.about, " Its examples: ", ...this.examples.flatMap(([name, prompt], i) => [i ? ", " : "", h("span", { title: prompt }, name)]), ".") : "",
    ];
  }

  turn() {
    return [h("p", {}, "K is how many flags get a re-draft, γ how long a block is. Move them: the text is cut into the steps that it would have taken."), this.live.box];
  }
}

/** Whitespace of tokens made visible, as in the tree; what a token holds stays text. */
const spaced = (value) => text(value).replace(HIDDEN, "◌").replace(/“([^”]*)”/g, (_, token) => "“" + [...token].map((c) => MARKS[c] || c).join("") + "”");

const piece = ([kind, words]) => (kind === "sub" || kind === "sup" ? h(kind, {}, text(words)) : kind === "var" ? h("i", {}, text(words)) : text(words));

// Learn: a card beside a live step.

export async function start(element, trigger, props, watch, server, given) {
  const whenShown = oneWait(20000);
  const root = h("section", { class: "panels tour", "aria-label": "Learn how a step works" });
  const state = { at: 0, step: 0, everything: false, lessons: [] };
  const walk = new WalkView((at) => stage.walk(at, walk.visits, state.step));
  const live = new LiveView((k) => stage.branches(k, wouldBring(k)));
  const card = new CardView({ go, all: () => toggleAll(), open, walk, draws: new DrawsView(), pass: new PassView(), live });
  const stage = new Stage(given.styles, (step) => {
    if (step === state.step) return;
    state.step = step;
    show();
  });
  const story = new StoryView(() => go(0));
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const again = h("button", { type: "button", class: "small" }, "Try again");
  const layout = h("div", { class: "layout", hidden: true }, card.box, h("div", { class: "beside" }, live.cut, stage.box));
  root.append(notice, story.box, layout);
  element.replaceChildren(root);
  again.addEventListener("click", load);
  document.addEventListener("keydown", onKey, true);
  await load();

  async function load() {
    notice.hidden = true;
    try {
      const tour = await unpack(await server.tour());
      layout.hidden = false;
      state.lessons = tour.lessons;
      state.run = text(tour.run);
      const asked = new URLSearchParams(text(props.address) || location.search);
      const start = asked.has("stop") ? whole(asked.get("step"), 1, tour.lessons.length, tour.start + 1) - 1 : tour.start;
      state.step = start;
      card.about = text(tour.about);
      card.examples = Object.entries(tour.examples || {}).map(([name, prompt]) => [name, text(prompt)]);
      const lines = props.lines ?? tour.lines;
      stage.load(lines);
      story.load(lines);
      live.load(tour.live, tour.here, tour.opening);
      await until(() => stage.steps > start && story.read);
      stage.pin(start);
      state.at = within(whole(asked.get("stop"), 0, TURN + 1, 0) - 1);
      show();
      element.addEventListener("learn:go", ({ detail }) => {
        if (detail.step && detail.step - 1 !== state.step) stage.pin(detail.step - 1);
        if (detail.stop - 1 !== state.at) go(detail.stop - 1);
      });
      element.dataset.ready = "yes";
    } catch (error) {
      console.warn(error);
      notice.hidden = false;
      notice.replaceChildren("The tour did not load; is the connection lost? ", again);
    }
  }

  function show() {
    const lesson = state.lessons[state.step];
    if (!lesson) return;
    const telling = state.at < 0;
    [story.box.hidden, layout.hidden] = [!telling, telling];
    if (telling) story.show(state.step);
    else showStop(lesson);
    Object.assign(element.dataset, { at: state.at, step: state.step, everything: state.everything });
    element.dispatchEvent(new CustomEvent("learn:moved", { bubbles: true }));
  }

  function showStop(lesson) {
    card.first = within(-1);
    card.show(lesson, state.at, state.step, state.everything);
    live.cut.hidden = state.at < TURN;
    if (state.at < TURN) stage.branches(null, 0);
    else live.show();
    requestAnimationFrame(() => stage.light(state.at, state.step, state.everything));
  }

  /** The nearest stop to `at` that there is; the story, where it can be told, is before the first. */
  function within(at) {
    return Math.min(card.last, Math.max(story.tells(state.step) ? -1 : 0, at));
  }

  function go(at) {
    state.at = within(at);
    state.everything = false;
    show();
    if (state.at < 0) return story.go(0);
    card.title.focus({ preventScroll: true });
    if (layout.getBoundingClientRect().top < 0) layout.scrollIntoView({ block: "start" });
    requestAnimationFrame(() => card.title.scrollIntoView({ block: "nearest" })); // below the picture on a phone, once that is drawn
  }

  /** One frame of the story on or back, or one stop; behind the last frame comes the first stop. */
  function move(by) {
    if (state.at >= 0) go(state.at + by);
    else if (!story.go(story.at + by) && by > 0) go(0);
  }

  function toggleAll() {
    if (state.at < 0 || state.at >= TURN) return;
    state.everything = !state.everything;
    show();
  }

  /** Explore gets the recorded run, this step is selected there, and the field for K is ready to be changed. */
  function open() {
    trigger("select", { step: state.step });
    const find = () => {
      const view = document.querySelector("#explorer [data-run]");
      return view && view.offsetParent && view.dataset.run === state.run.slice(0, 200) && view.dataset.pinned === String(state.step);
    };
    whenShown(find, showField);
  }

  /** Tokens of the step with its first `k` re-drafts alone; 0: not known. */
  function wouldBring(k) {
    const lesson = state.lessons[state.step];
    return k !== null && lesson && lesson.by_branches[k] ? lesson.by_branches[k][0] : 0;
  }

  /** The field for K; on a narrow page the settings are unfolded for it. */
  function showField() {
    const fold = document.querySelector("#fold button[aria-expanded='false']");
    if (fold && fold.offsetParent) fold.click();
    const field = document.querySelector("#branches input");
    if (!field || !field.offsetParent) return;
    if (state.at >= TURN && live.live) {
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
  function onKey(event) {
    if (!element.isConnected) {
      document.removeEventListener("keydown", onKey, true);
      return;
    }
    const from = event.composedPath()[0];
    if (from instanceof Element && from.closest("dialog[open]")) return; // its keys are its own
    const typing = from instanceof Element && from.closest("input, textarea, select, [contenteditable='true'], [role='textbox']");
    // After a click on the tab its button has the focus.
    const ours = event.target === document.body || element.contains(event.target) || (event.target instanceof Element && event.target.matches("[role='tab']"));
    if (!ours || typing || !element.offsetParent || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) move(by);
    else if (event.key === "Escape") toggleAll();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}

/** JSON that was deflated and written in base64. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
}

/** Waits until something is true; gives up after a while. */
async function until(test) {
  for (let tries = 0; tries < 500; tries += 1) {
    if (test()) return;
    await new Promise((go) => setTimeout(go, 20));
  }
  throw new Error("nothing came");
}
