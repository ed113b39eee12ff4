// Keeps the page's address up to date: the fields that reproduce the run, then the tab and the place in the run. Thus Back and Forward
// move between views, and a reload restores the view. A link can also name a trace to open.

import { readAddress, readNode, withFields } from "../../assets/viewer/address.js";
import { emit } from "../../assets/viewer/dom.js";
import { explorer } from "../static/explorer.js";

const SETTLE_MS = 250;

const tour = () => document.querySelector("#learn [data-chapter]");
/** Whether two states belong to one history entry: they have the same tab and run. */
const same = (one, other) => Boolean(one && other) && one.tab === other.tab && one.run === other.run;
const tabButton = (tab) =>
  [...document.querySelectorAll('[role="tab"][data-tab-id]')].find((b) => b.dataset.tabId === tab);

/** Keeps the address; returns a function that schedules writing it. `list()` returns the runs, the key of the shown one, and the
 *  number of the last answered request; `show({ key, step, node, travel })` requests another run, with the number of the request. */
export function keepAddress(list, show) {
  let [before, unwritten] = [null, null]; // written, to be written
  let travels = 0; // number of the last request of Back or Forward for a run
  let timer = 0;
  let noticed = null; // the list of tabs that is observed
  const observer = new MutationObserver(() => soon());
  document.addEventListener("explorer:selected", () => soon(explorer()?.offsetParent === null));
  document.addEventListener("learn:moved", () => soon());
  window.addEventListener("popstate", (event) => go(event.state));
  window.addEventListener("pagehide", settle);

  /** Schedules writing the address. The first change within a view is written immediately, so that a reload or Back right after a
   *  click keeps the change. Changes that follow within `SETTLE_MS` are written together. `hidden`: the change is in Explore while
   *  another tab is open. Such changes may go on for long, so they do not postpone a scheduled write. */
  function soon(hidden = false) {
    const now = stateNow();
    if (same(now, before)) {
      unwritten = now;
      if (!hidden && !timer) settle();
    }
    if (hidden && timer) return;
    clearTimeout(timer);
    timer = setTimeout(settle, SETTLE_MS);
    const tabs = document.querySelector('[role="tablist"]');
    if (tabs && tabs !== noticed)
      observer.observe((noticed = tabs), { subtree: true, attributeFilter: ["aria-selected"] });
  }

  /** The current state; null while the list and the view have different runs. */
  function stateNow() {
    const { shown, runs } = list();
    const view = explorer();
    const entry = runs.find(({ key }) => key === shown);
    const active = document.querySelector('[role="tab"][data-tab-id][aria-selected="true"]');
    if (!view || !active || (entry && view.dataset.run !== entry.run)) return null;
    const { pinned, node, stage, present } = view.dataset;
    if (active.dataset.tabId === "learn")
      return { tab: "learn", run: "", step: "", node: "", chapter: tour()?.dataset.chapter ?? "", query: "" };
    if (!entry && !shown) return null; // keeps the address of a link whose run was not started yet
    return {
      tab: active.dataset.tabId,
      run: entry?.key ?? "",
      step: pinned === "" ? "" : Number(pinned) + 1,
      node: pinned === "" ? "" : node,
      stage,
      present,
      query: entry?.query ?? "",
    };
  }

  function settle() {
    clearTimeout(timer);
    timer = 0;
    const now = stateNow();
    if (!now || travelling()) return;
    // The first entry keeps the address that was opened.
    if (!before) history.replaceState(now, "", location.href);
    else if (same(now, before)) history.replaceState(now, "", write(now));
    else {
      // The last change before leaving the view was not written yet: Back should return to it.
      if (unwritten) history.replaceState(unwritten, "", write(unwritten));
      history.pushState(now, "", write(now));
    }
    before = now;
    unwritten = null;
  }

  /** Whether a run that Back or Forward requested has not arrived yet. */
  const travelling = () => list().travels < travels;

  const write = ({ query, ...place }) => `${location.pathname}?${withFields(query, place)}`;

  /** Handles Back and Forward: shows an earlier state, which adds no entry. A run that was removed meanwhile stays replaced by the
   *  shown one. */
  function go(saved) {
    if (!saved?.tab) return; // not written by this script
    const { shown, runs } = list();
    const gone = saved.run && !runs.some(({ key }) => key === saved.run);
    const state = gone ? { ...saved, run: shown, step: "" } : saved;
    const { tab, run, chapter } = state;
    const step = state.step === "" ? null : state.step - 1;
    const node = readNode(state.node);
    before = state;
    unwritten = null; // belongs to the entry that was left, which can no longer be written
    const button = tabButton(tab);
    if (button && button.getAttribute("aria-selected") !== "true") button.click();
    if (chapter && tour()) emit(tour(), "learn:go", { chapter: Number(chapter) });
    if (run && (run !== shown || travelling())) show({ key: run, step, node, travel: ++travels });
    else if (step !== null && explorer()) emit(explorer(), "explorer:select", { step, node });
    soon();
  }

  return soon;
}

// ?trace=URL opens a trace from this page's host or a host on the owner's list, like a file that the user chose. The browser
// fetches the trace, never the server.

/** Returns the `address` to fetch, or a `problem`. `here`: address of the page; `hosts`: the owner's list. */
export function traceAddress(wanted, here, hosts) {
  let address;
  try {
    address = new URL(wanted, here);
  } catch {
    return { problem: "the link does not contain a valid address" };
  }
  if (!["http:", "https:"].includes(address.protocol) || address.username || address.password)
    return { problem: "its address must begin with http:// or https:// and contain no user name" };
  if (address.host !== new URL(here).host && !hosts.includes(address.host))
    return {
      problem: `${address.host.slice(0, 80)} is not on this page’s list of hosts; download the file and use “Open a trace”`,
    };
  return { address };
}

/** Returns the file at an address. Throws an error if the file cannot be fetched, is redirected, or is larger than `megabytes`. */
export async function fetchTrace(address, megabytes) {
  const answer = await fetch(address, {
    redirect: "error",
    credentials: "same-origin",
    referrerPolicy: "no-referrer",
  }).catch(() => {
    throw new Error("its host does not answer, does not allow the request, or redirects it");
  });
  if (!answer.ok || !answer.body) throw new Error(`its host answers ${answer.status}`);
  const parts = [];
  let size = 0;
  const reader = answer.body.getReader();
  for (let part; !(part = await reader.read()).done;) {
    size += part.value.length;
    if (size > megabytes * 1e6) {
      reader.cancel();
      throw new Error(`it is larger than ${megabytes} MB`);
    }
    parts.push(part.value);
  }
  const packed = parts.length > 0 && parts[0][0] === 0x1f && parts[0][1] === 0x8b;
  const name =
    address.pathname
      .split("/")
      .pop()
      .replace(/[^\w.-]/g, "")
      .replace(/(\.jsonl?)?(\.gz)?$/, "")
      .slice(-40) || "trace";
  return new File(parts, `${name}.jsonl${packed ? ".gz" : ""}`);
}

/** Uploads the trace that the page's address names. The server opens it at the address's step. `say(words)` shows a problem. */
export async function openLinked({ hosts, megabytes }, say) {
  const { trace } = readAddress(location.search);
  if (!trace) return;
  try {
    const { address, problem } = traceAddress(trace, location.href, hosts);
    if (problem) throw new Error(problem);
    const chosen = new DataTransfer();
    chosen.items.add(await fetchTrace(address, megabytes));
    const input = document.querySelector("#last input[type=file]");
    input.files = chosen.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  } catch (error) {
    say(`The trace of this link was not opened: ${error.message}.`);
  }
}
