// Learn: a card beside a live step.

import { h, text, whole } from "../../../assets/viewer/dom.js";
import { CardView } from "./card.js";
import { DrawsView } from "./draws.js";
import { LiveView } from "./live.js";
import { StoryView } from "../story/story.js";
import { PassView } from "./pass.js";
import { Stage, TURN } from "./stage.js";
import { WalkView } from "./walk.js";

export async function start(element, trigger, props, watch, server, given) {
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
    const began = performance.now();
    const wait = () => {
      const view = document.querySelector("#explorer [data-run]");
      if (view && view.offsetParent && view.dataset.run === state.run.slice(0, 200) && view.dataset.pinned === String(state.step)) showField();
      else if (performance.now() - began < 20000) setTimeout(wait, 40);
    };
    wait();
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
