// What shapes, lines and colours mean, in the drawing and under the bars of the timeline.

import { h, list, s, text } from "./dom.js";
import { methodName, visible } from "./words.js";

const PREDICTED = "predicted boundary: 1 likeliest";

export function legend() {
  const icon = (...parts) => s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }, ...parts);
  const box = (rx) => s("rect", { class: "shape", x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, picture, line) => h("li", { class: kind }, picture, h("span", { class: line ? `under ${line}` : null }, words));
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    item("first drafter", "first", icon(box(3)), "tok first"),
    item("second drafter", "second", icon(box(6)), "tok second"),
    item("target", "target", icon(s("polygon", { class: "shape", points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" })), "tok target"),
    item("accepted: filled", "accepted", icon(s("path", { class: "thick", d: "M-13 0H13" }), s("rect", { class: "shape one", x: -10, y: -5, width: 9, height: 10, rx: 2 }), s("rect", { class: "shape two", x: 1, y: -5, width: 9, height: 10, rx: 5 }))),
    item("rejected", "rejected", icon(box(3), s("g", { transform: "translate(9,-4)" }, s("circle", { r: 4.5 }), s("path", { d: "M-2-2L2 2M2-2L-2 2" })))),
    item("not reached", "unreached", icon(box(3))),
    item(PREDICTED, "flagged", icon(s("path", { d: "M-5 8V-7H8L5-2.5L8 2H-5" }))),
    item("re-draft wrote it too", "twinned", icon(s("rect", { class: "shape", x: -10, y: -7, width: 20, height: 11, rx: 3 }), s("path", { class: "twin", d: "M-10 7H10" }))),
    item("true boundary", "truth", icon(s("path", { d: "M0-8V8" }))),
    item("what its confidence head says", "headed", icon(s("path", { class: "trained", d: "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z" }))),
    h("li", { class: "space" }, h("b", {}, "␣"), "a space"),
    h("li", { class: "space unlogged" }, h("b", {}, "▯"), "a token that is not in this log"),
  );
}


const SAID = [["γ", "block_size"], ["γ₂", "second_block_size"], ["K", "num_branches"], ["B", "node_budget"], ["depth", "draft_depth"], ["top k", "draft_top_k"], ["T", "temperature"], ["top-p", "top_p"], ["seed", "seed"]];
const UNSAID = { temperature: null, top_p: 1, seed: 0 };

/** What was run, in a few words: method, models and the settings that are not as they always are. */
export function runWords({ header, recorded, own: ours, seen, length }) {
  const config = header.config && typeof header.config === "object" ? header.config : {};
  const means = { block_size: seen.draft || !length, second_block_size: config.second_block_size !== config.block_size, num_branches: seen.branches, draft_depth: seen.levels, draft_top_k: seen.levels };
  const shown = SAID.filter(([, name]) => typeof config[name] === "number" && config[name] !== UNSAID[name] && means[name] !== false);
  const models = header.models && typeof header.models === "object" ? header.models : {};
  const [model, drafter] = [models.preset, models.first_drafter].map((name) => text(name) && visible(name, 60));
  const own = !drafter || !seen.draft || drafter.startsWith(`${model}/`);
  const who = [`${methodName(text(header.method) || "run")}${model && ` on ${model}`}`, own ? "" : `drafter ${drafter}`];
  const block = (name) => (name === "block_size" && config[name] > 1 ? ` (anchor + ${config[name] - 1})` : "");
  const words = [...who, ...shown.map(([symbol, name]) => `${symbol} ${config[name]}${block(name)}`), config.cost_aware === true ? "cost-aware" : "", config.chat === true ? "chat" : ""];
  return (recorded && !ours ? "recorded: " : "") + words.filter(Boolean).join(" · ");
}

/** Says what was run, and takes away what this kind of run never fills: its marks would only be puzzling. */
export class RunView {
  constructor(root) {
    this.root = root;
    this.label = h("span", { id: "run-label", dir: "auto" });
  }

  show(store) {
    this.label.textContent = this.label.title = runWords(store);
    const yes = (flag) => (flag || !store.length ? "yes" : "no");
    Object.assign(this.root.dataset, { drafts: yes(store.seen.draft || store.seen.levels), redrafts: yes(store.seen.second), predicts: yes(store.seen.selected), headed: store.seen.head ? "yes" : "no", levels: yes(store.seen.levels), unlogged: ["tokens", "target"].some((part) => list(store.header.missing).includes(part)) ? "yes" : "no" });
    const first = this.root.querySelector(".legend .first span");
    if (first.textContent !== store.names.first) first.textContent = store.names.first;
    const flag = this.root.querySelector(".legend .flagged span");
    const name = store.manner.random ? "re-draft, drawn at random" : PREDICTED;
    if (flag.textContent !== name) flag.textContent = name;
  }
}
