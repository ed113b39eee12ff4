// The temperature that fits one half of the prompts best, judged on the other half.

class AdviceView {
  constructor(choose) {
    Object.assign(this, { id: "moved", choose, chosen: new Set() });
    this.body = h("div", { class: "advice" });
    this.box = h("section", { class: "panel chart moved", "aria-label": "Suggested temperature" }, h("div", { class: "head" }, h("h3", {}, "Suggested temperature")), h("p", { class: "question" }, "Would dividing the log-odds of every confidence by T make it more honest? Fitted on one half, judged on the other."), this.body);
    this.body.addEventListener("click", (event) => event.target.closest("button") && this.choose(this.id, this.chosen.size ? [] : [0]));
  }

  named() {
    return "Other prefixes with the temperature";
  }

  members({ report }) {
    return report.advice ? report.advice.rows.map((row) => ({ row, at: null })) : [];
  }

  placesOf() {
    return [];
  }

  show(data) {
    const { advice: a, unit } = data.report;
    if (!a) {
      this.body.replaceChildren(h("p", { class: "none" }, "Too few positions to fit on one half and judge on the other."));
      return;
    }
    const row = (name, before, after) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, before), h("td", { class: "num" }, after));
    const list = h("button", { type: "button", class: "small", "data-place": 0, disabled: !a.rows.length, "aria-pressed": String(this.chosen.size > 0) }, count(a.rows.length, "step"));
    this.body.replaceChildren(
      h("p", { class: "big" }, h("b", {}, `T = ${a.temperature.toFixed(2)}`), h("span", {}, verdict(a))),
      h("table", {}, h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col" }, "as it is"), h("th", { scope: "col" }, "with T"))), h("tbody", {}, row("ECE", decimals(a.error_before), decimals(a.error_after)), row("Boundary hits", share(a.hits_before), share(a.hits_after)))),
      h("p", {}, `ECE ${a.improvement.value < 0 ? "higher" : "lower"} by ${decimals(Math.abs(a.improvement.value))}${a.improvement.low === null ? "" : ` (between ${change(a.improvement.high)} and ${change(a.improvement.low)})`}. `, a.moved === null ? "No prefixes were chosen in these runs." : `It would replace ${share(a.moved)} of the prefixes, in `, a.moved === null ? "" : list, a.moved === null ? "" : ` of ${a.steps}.`),
      h("p", { class: "fine" }, `Fitted on ${count(a.fitted_positions, "position")}, judged on ${a.judged_positions}; halves by ${text(unit)}.`),
    );
  }

  select(places) {
    this.chosen = new Set(places);
    const button = this.body.querySelector("button");
    if (button) button.setAttribute("aria-pressed", this.chosen.size > 0);
  }
}

/** Which way the temperature moves the confidence, if that clearly helps. */
function verdict({ temperature, improvement }) {
  if (improvement.low === null || improvement.low <= 0) return "no clear improvement";
  return temperature > 1 ? "the drafter should be less sure" : "the drafter may be surer";
}

/** What an improvement does to the error, with its sign. */
const change = (improvement) => (improvement > 0 ? "−" : "+") + Math.abs(improvement).toFixed(3);
