// The address says what is looked at: tab, run, step and node, behind the fields that would make the run again. So Back and
// Forward move between views, and a reload comes back to the same one.

import { text, whole } from "../../../assets/viewer/dom.js";

const SETTLE_MS = 250;
const PATIENCE_MS = 4000;

export const explorer = () => document.querySelector("#explorer [data-run]");
/** The stop of the tour, from 1, its story being 0; empty before it is there. */
const learnStop = () => {
  const tour = document.querySelector("#learn [data-at]");
  return tour ? Number(tour.dataset.at) + 1 : "";
};
const tabButton = (tab) => [...document.querySelectorAll('[role="tab"][data-tab-id]')].find((b) => b.dataset.tabId === tab);

export class Address {
  /** `list()` gives the runs and which one is shown; `show(key, step, node)` asks for another one. */
  constructor(list, show) {
    Object.assign(this, { list, show, before: null, going: null, timer: 0, noticed: null });
    for (const moved of ["explorer:selected", "learn:moved"]) document.addEventListener(moved, () => this.soon());
    window.addEventListener("popstate", (event) => this.go(event.state));
    this.observer = new MutationObserver(() => this.soon());
  }

  /** Looks once what goes on has settled: moving through steps leaves one address, not a hundred. */
  soon() {
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
    const now = this.now();
    if (!now) return;
    const same = (other) => other && other.tab === now.tab && other.run === now.run;
    if (this.going && !same(this.going)) return;
    this.going = null;
    // The first one stays as it was opened: a short address, or somebody's link.
    const address = this.before ? this.write(now) : location.href;
    if (!this.before || same(this.before)) history.replaceState(now, "", address);
    else history.pushState(now, "", address);
    this.before = now;
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
