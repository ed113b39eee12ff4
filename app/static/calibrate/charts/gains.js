// What every draft brings and what it costs: a table with bars; a row lists the steps in which it brought tokens.

class GainsView {
  constructor(choose) {
    Object.assign(this, { id: "gains", choose, chosen: new Set(), here: new Set() });
    this.body = h("div", { class: "scroller" });
    this.box = h("section", { class: "panel chart gains", "aria-label": "Tokens gained and nodes spent" }, h("div", { class: "head" }, h("h3", {}, "Tokens gained, nodes spent")), h("p", { class: "question" }, "Per step. A re-draft’s tokens are those that the drafts before it did not bring; a node is wasted when the target does not accept it."), this.body);
    this.body.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-place]");
      if (button) this.choose(this.id, this.chosen.has(Number(button.dataset.place)) ? [] : [Number(button.dataset.place)]);
    });
  }

  named(data, [branch]) {
    return branch === 0 ? "First draft brought tokens" : `Re-draft ${branch} brought tokens`;
  }

  members(data, places) {
    return stepsWhere(data, (row) => data.steps.won[row].some((branch) => places.includes(branch)));
  }

  placesOf({ steps }, row) {
    return steps.won[row];
  }

  name(source) {
    if (source.branch === null) return "lower-ranked choices";
    return source.branch === 0 ? "first draft" : `re-draft ${source.branch}`;
  }

  show(data) {
    const { gains } = data.report;
    const most = Math.max(1e-9, ...gains.sources.map((g) => g.tokens.value || 0), gains.bonus);
    const nodes = Math.max(1e-9, ...gains.sources.map((g) => g.nodes));
    const other = data.other;
    const rows = gains.sources.map((g) => this.row(g, g.branch === null ? other : g.branch, most, nodes));
    const bonus = h("tr", { class: "bonus" }, h("th", { scope: "row" }, "bonus token of the target"), meterCell(tokensWords(gains.bonus), gains.bonus / most, "target"), h("td", { class: "num" }, "—"), h("td", { class: "num" }, "—"), h("td", { class: "num" }, "—"));
    const total = h("tr", { class: "total" }, h("th", { scope: "row" }, "together (α)"), h("td", { class: "num" }, figureWords(gains.tokens_per_step, tokensWords)), h("td", { class: "num" }, gains.nodes_per_step.toFixed(1)), h("td", { class: "num" }, share(gains.wasted)), h("td"));
    const heads = ["Source", "Tokens gained", "Nodes, anchor aside", "Wasted", "Brought tokens in"].map((w) => h("th", { scope: "col" }, w));
    this.body.replaceChildren(data.report.steps ? h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows, bonus, total)) : h("p", { class: "none" }, "No steps."));
    this.paint();
  }

  row(g, place, most, nodes) {
    const kind = g.branch === 0 ? "first" : "second";
    const won = h("button", { type: "button", class: "small", "data-place": place, disabled: !g.won, "aria-label": `${this.name(g)}: list the ${count(g.won, "step")} in which it brought tokens` }, count(g.won, "step"));
    return h("tr", {}, h("th", { scope: "row" }, this.name(g)), meterCell(figureWords(g.tokens, tokensWords), (g.tokens.value || 0) / most, kind), meterCell(g.nodes.toFixed(1), g.nodes / nodes, "spent"), h("td", { class: "num" }, share(g.wasted)), h("td", { class: "num" }, won));
  }

  select(places, here) {
    this.chosen = new Set(places);
    this.here = new Set(here);
    this.paint();
  }

  paint() {
    for (const button of this.body.querySelectorAll("button[data-place]")) {
      const place = Number(button.dataset.place);
      button.setAttribute("aria-pressed", this.chosen.has(place));
      button.classList.toggle("here", this.here.has(place));
    }
  }
}

function meterCell(words, level, kind) {
  return h("td", { class: "metered" }, h("span", { class: "rail", "aria-hidden": "true" }, h("span", { class: `level ${kind}`, style: `width:${(Math.max(0, Math.min(1, level)) * 100).toFixed(1)}%` })), h("span", { class: "num" }, words));
}
