// The first drafter's confidence by prompt group and by kind of token, as tables whose rows list their steps.

class GroupsView {
  constructor(choose) {
    Object.assign(this, { id: "groups", ids: ["domain", "kind"], choose });
    this.body = h("div", { class: "scroller" });
    this.box = h("section", { class: "panel chart groups", "aria-label": "By group" }, h("div", { class: "head" }, h("h3", {}, "By group")), h("p", { class: "question" }, "Where is the confidence off? By the prompt’s group (the domain in a prompt file) and by what kind of token was drafted."), this.body);
    this.body.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-place]");
      if (button) this.choose(button.dataset.chart, button.getAttribute("aria-pressed") === "true" ? [] : [Number(button.dataset.place)]);
    });
  }

  show(data) {
    const { domains, kinds } = data.report;
    const names = data.kinds;
    const some = domains.length + kinds.length;
    this.box.hidden = !some;
    if (!some) return;
    const heads = ["Group", "Positions", "Says", "Accepted", "Gap (95% interval)", "ECE", "α", "Repaired", ""].map((w) => h("th", { scope: "col" }, w));
    const title = (words) => h("tr", { class: "title" }, h("th", { colspan: heads.length, scope: "rowgroup" }, words));
    const part = (chart, words, groups, place) => (groups.length ? [title(words), ...groups.map((g, n) => this.row(g, chart, place(g, n)))] : []);
    this.body.replaceChildren(
      h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...part("domain", "Prompt group", domains, (_, n) => n), ...part("kind", "Kind of token", kinds, (g) => names.indexOf(g.name)))),
    );
  }

  row(g, chart, place) {
    const gap = g.gap.value === null ? "—" : signed(g.gap.value) + (g.gap.low === null ? "" : ` (${signed(g.gap.low)} to ${signed(g.gap.high)})`);
    const few = g.positions < FEW;
    const cells = [String(g.positions), share(g.confidence), share(g.accepted), gap, decimals(g.error), g.tokens ? figureWords(g.tokens, tokensWords) : "", g.repaired ? figureWords(g.repaired, share) : ""];
    const steps = h("button", { type: "button", class: "small", "data-chart": chart, "data-place": place, "aria-pressed": "false", "aria-label": `List the steps of ${text(g.name)}` }, "steps");
    return h("tr", { class: few ? "few" : null, title: few ? "Too few positions to say" : null }, h("th", { scope: "row" }, h("bdi", {}, text(g.name))), ...cells.map((words) => h("td", { class: "num" }, words)), h("td", {}, steps));
  }

  select(places, here, chart) {
    for (const button of this.body.querySelectorAll("button[data-place]")) {
      button.setAttribute("aria-pressed", String(button.dataset.chart === chart && places.includes(Number(button.dataset.place))));
    }
  }
}
