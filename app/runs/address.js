// The address says what is looked at: tab, run, step and node, behind the fields that would make the run again. So Back and
// Forward move between views, and a reload comes back to the same one.

import { text, whole } from "../../assets/viewer/dom.js";

const SETTLE_MS = 250;
const PATIENCE_MS = 4000;

export const explorer = () => document.querySelector("#explorer [data-run]");
/** The stop of the tour, from 1, its story being 0; empty before it is there. */
const learnStop = () => {
  const tour = document.querySelector("#learn [data-at]");
  return tour ? Number(tour.dataset.at) + 1 : "";
};
/** Whether two states belong to one history entry: only step, node or stop differ. */
const same = (one, other) => Boolean(one && other) && one.tab === other.tab && one.run === other.run;
const tabButton = (tab) => [...document.querySelectorAll('[role="tab"][data-tab-id]')].find((b) => b.dataset.tabId === tab);

export class Address {
  /** `list()` gives the runs and which one is shown; `show(key, step, node)` asks for another one. */
  constructor(list, show) {
    Object.assign(this, { list, show, before: null, unwritten: null, going: null, leaving: "", timer: 0, noticed: null });
    document.addEventListener("explorer:selected", () => this.soon(explorer()?.offsetParent === null));
    document.addEventListener("learn:moved", () => this.soon());
    window.addEventListener("popstate", (event) => this.go(event.state));
    window.addEventListener("pagehide", () => this.settle());
    this.observer = new MutationObserver(() => this.soon());
  }

  /** Looks once what goes on has settled: moving through steps leaves one address, not a hundred. `hidden`: the change is in a
   *  view that is not shown, where a run may play on for long, so it does not postpone a look that is due. */
  soon(hidden = false) {
    const now = this.now();
    if (same(now, this.before)) this.unwritten = now;
    if (hidden && this.timer) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), SETTLE_MS);
    const tabs = document.querySelector('[role="tablist"]');
    if (tabs && tabs !== this.noticed) this.observer.observe((this.noticed = tabs), { subtree: true, attributeFilter: ["aria-selected"] });
  }

  /** What is looked at; null while the list and the view do not speak of the same run yet. */
  now() {
    const { shown, runs } = this.list();
    const view = explorer();
    const entry = runs.find(({ key }) => key === shown);
    const active = document.querySelector('[role="tab"][data-tab-id][aria-selected="true"]');
    if (!view || !active || (entry && view.dataset.run !== entry.run)) return null;
    const { pinned, node } = view.dataset;
    if (active.dataset.tabId === "learn") return { tab: "learn", run: "", step: "", node: "", stop: learnStop(), query: "" };
    if (!entry && !shown) return null; // a link that is not run yet stays as it is
    return { tab: active.dataset.tabId, run: entry ? entry.key : "", step: pinned === "" ? "" : Number(pinned) + 1, node: pinned === "" ? "" : node, query: entry ? entry.query : "" };
  }

  settle() {
    clearTimeout(this.timer);
    this.timer = 0;
    const now = this.now();
    if (!now || this.arriving(now)) return;
    this.going = null;
    // The first one stays as it was opened: a short address, or somebody's link.
    if (!this.before) history.replaceState(now, "", location.href);
    else if (same(now, this.before)) history.replaceState(now, "", this.write(now));
    else {
      // The view was left before its last change had settled: Back comes to that change.
      if (this.unwritten) history.replaceState(this.unwritten, "", this.write(this.unwritten));
      history.pushState(now, "", this.write(now));
    }
    this.before = now;
    this.unwritten = null;
  }

  /** Whether the run that Back or Forward asked for is still awaited: neither another tab nor another run was opened since. */
  arriving(now) {
    return this.going && !same(now, this.going) && now.tab === this.going.tab && this.list().shown === this.leaving;
  }

  write({ tab, run, step, node, stop = "", query }) {
    const fields = new URLSearchParams(query);
    for (const [name, value] of Object.entries({ tab, run, step, node, stop })) if (value !== "") fields.set(name, value);
    return `${location.pathname}?${fields}`;
  }

  /** Back or Forward: to a view that was looked at before. */
  go(state) {
    if (!state || typeof state !== "object") return;
    const [tab, run] = [text(state.tab), text(state.run)];
    const step = whole(state.step, 1, 1e9, null);
    const node = state.node === "bonus" ? "bonus" : whole(state.node, 0, 1e9, null);
    this.going = this.before = state;
    this.unwritten = null; // of the entry that was left, which can no longer be written
    this.leaving = this.list().shown;
    setTimeout(() => {
      if (this.going === state) this.going = null;
    }, PATIENCE_MS);
    const button = tabButton(tab);
    if (button && button.getAttribute("aria-selected") !== "true") button.click();
    const stop = whole(state.stop, 0, 99, null);
    const tour = stop !== null && document.querySelector("#learn [data-at]");
    if (tour) tour.dispatchEvent(new CustomEvent("learn:go", { detail: { stop } }));
    if (run && run !== this.list().shown) this.show(run, step === null ? null : step - 1, node);
    else if (step !== null && explorer()) explorer().dispatchEvent(new CustomEvent("explorer:select", { detail: { step: step - 1, node } }));
    this.soon();
  }
}
