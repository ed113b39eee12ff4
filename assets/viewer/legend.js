// What shapes, lines and colours mean, in the drawing and under the bars of the timeline.

function legend() {
  const icon = (...parts) => s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }, ...parts);
  const box = (rx) => s("rect", { class: "shape", x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, picture, line) => h("li", { class: kind }, picture, h("span", { class: line ? `under ${line}` : null }, words));
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    item("first drafter", "first", icon(box(3)), "tok first"),
    item("second drafter", "second", icon(box(6)), "tok second"),
    item("target", "target", icon(s("polygon", { class: "shape", points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" })), "tok target"),
    item("accepted", "accepted", icon(s("path", { class: "thick", d: "M-13 0H13" }), box(3))),
    item("rejected", "rejected", icon(box(3), s("g", { transform: "translate(9,-4)" }, s("circle", { r: 4.5 }), s("path", { d: "M-2-2L2 2M2-2L-2 2" })))),
    item("not reached", "unreached", icon(box(3))),
    item("predicted boundary", "flagged", icon(s("path", { d: "M-5 8V-7H8L5-2.5L8 2H-5" }))),
    item("true boundary", "truth", icon(s("path", { d: "M0-8V8" }))),
  );
}

function glyphLegend() {
  const item = (kind, mark, words) => h("li", { class: kind }, h("i", { class: kind, "aria-hidden": "true" }, mark), words);
  return h("ul", { class: "glyphs", "aria-label": "Marks under the steps" }, h("li", {}, "Steps", h("span", { class: "hit" }, ": boundary")), item("hit", "●", "predicted"), item("miss", "✕", "missed"), item("all", "▲", "all accepted"), item("undrafted", "–", "cost-aware: nothing drafted"));
}

const SAID = [["γ", "block_size"], ["γ₂", "second_block_size"], ["K", "num_branches"], ["B", "node_budget"], ["T", "temperature"], ["top-p", "top_p"], ["seed", "seed"]];
const UNSAID = { temperature: null, top_p: 1, seed: 0 };

/** What was run, in a few words: method, models and the settings that are not as they always are. */
function runWords({ header, recorded, seen, length }) {
  const config = header.config && typeof header.config === "object" ? header.config : {};
  const means = { block_size: seen.draft || !length, second_block_size: config.second_block_size !== config.block_size, num_branches: seen.branches };
  const shown = SAID.filter(([, name]) => typeof config[name] === "number" && config[name] !== UNSAID[name] && means[name] !== false);
  const who = [header.method, header.models && header.models.preset].map((name) => text(name) && visible(name, 60));
  const words = [...who, ...shown.map(([symbol, name]) => `${symbol} ${config[name]}`), config.cost_aware === true ? "cost-aware" : "", config.chat === true ? "chat" : ""];
  return (recorded ? "recorded: " : "") + words.filter(Boolean).join(" · ");
}

/** Says what was run, and takes away what this kind of run never fills: its marks would only be puzzling. */
class RunView {
  constructor(root) {
    this.root = root;
    this.label = h("span", { id: "run-label", dir: "auto" });
  }

  show(store) {
    this.label.textContent = runWords(store);
    const yes = (flag) => (flag || !store.length ? "yes" : "no");
    Object.assign(this.root.dataset, { drafts: yes(store.seen.draft), redrafts: yes(store.seen.second), predicts: yes(store.seen.selected) });
    const first = this.root.querySelector(".legend .first span");
    if (first.textContent !== store.names.first) first.textContent = store.names.first;
  }
}
