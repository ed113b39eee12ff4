// The steps behind a bar, a cell or a row, each one click from Explore.

import { h, text } from "../../../assets/viewer/dom.js";
import { count, OUTCOMES, probability, visible } from "../../../assets/viewer/words.js";

const AT_ONCE = 60;

export class MembersView {
  /** `open(row, at)` opens a step in Explore; `closed()` is called when the list is put away. */
  constructor(open, closed) {
    Object.assign(this, { open, items: [], shown: AT_ONCE });
    this.title = h("h3", { tabindex: -1 });
    this.count = h("p", { class: "question", "aria-live": "polite" });
    this.list = h("ol", { class: "rows" });
    this.more = h("button", { type: "button", class: "small more" });
    this.close = h("button", { type: "button", class: "icon", "aria-label": "Close the list" }, "✕");
    this.box = h("section", { class: "panel members", "aria-label": "Steps" }, h("div", { class: "head" }, this.title, h("div", { class: "tools" }, this.close)), this.count, this.list, this.more);
    this.close.addEventListener("click", closed);
    this.more.addEventListener("click", () => {
      this.shown += AT_ONCE;
      this.draw();
    });
    this.list.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      const item = button && this.items[Number(button.dataset.item)];
      if (item) this.open(item.row, item.at);
    });
  }

  show(data, title, items) {
    Object.assign(this, { data, items, shown: AT_ONCE });
    const none = title === null;
    this.title.textContent = none ? "Surest tokens that were rejected" : title;
    this.close.hidden = none;
    const rows = new Set(items.map((i) => i.row)).size;
    const what = items.length && items[0].at !== null ? `${count(items.length, "position")} in ${count(rows, "step")}, the most surprising first` : count(items.length, "step");
    this.count.textContent = none ? "Click one to open its step in Explore; click a mark of a figure, or a number in its table, to list its steps." : `${what}. Click one to open its step in Explore.`;
    this.draw();
  }

  draw() {
    this.list.replaceChildren(...this.items.slice(0, this.shown).map((item, i) => this.row(item, i)));
    const rest = this.items.length - this.shown;
    this.more.hidden = rest <= 0;
    this.more.textContent = rest > AT_ONCE ? `Show ${AT_ONCE} more of ${rest}` : `Show the other ${rest}`;
  }

  row({ row, at }, index) {
    const { steps, runs } = this.data;
    const run = runs[steps.run[row]];
    const words = at === null ? this.stepWords(row) : this.positionWords(row, at);
    return h("li", {}, h("button", { type: "button", "data-item": index }, h("span", { class: "where" }, h("b", {}, `Step ${steps.step[row] + 1}`), h("bdi", {}, run ? text(run.label) : "")), h("span", { class: "what" }, ...words)));
  }

  positionWords(row, at) {
    const { data } = this;
    const { steps } = data;
    const right = at < steps.matched[row];
    const token = h("bdi", { class: `chip ${right ? "first" : "rejected"}` }, visible(steps.tokens[row][at], 14));
    const said = ` at ${steps.depths[row][at]}, says ${probability(steps.confidence[row][at])}: `;
    return right ? [token, said, h("b", {}, "accepted ✓")] : [token, said, h("b", { class: "reject" }, data.report.of_paths ? "not accepted ✕" : "rejected ✕"), ...(data.report.of_paths ? [] : [", wanted ", h("bdi", { class: "chip target" }, visible(steps.wanted[row], 14))])];
  }

  stepWords(row) {
    const { steps, report } = this.data;
    const all = report.matrix.counts.length - 1;
    if (steps.happened[row] < 0) return ["boundary not seen"];
    const name = (outcome) => (outcome === all ? "all" : String(outcome));
    const rank = steps.rank[row] ? `, true boundary ranked ${steps.rank[row]}` : "";
    const outcome = OUTCOMES[steps.outcome[row]];
    return [`predicted ${name(steps.predicted[row])}, accepted ${name(steps.happened[row])}${rank}`, ...(outcome ? [": ", h("b", { class: `outcome ${steps.outcome[row]}` }, `${outcome.mark} ${outcome.words}`)] : [])];
  }
}
