// The card of one stop: words, equation, the numbers of the step, and the way on.

class CardView {
  /** `go(at)` shows a stop (`TURN` after the last one), `all()` shows everything, `open()` leads to Explore. */
  constructor({ go, all, open }) {
    Object.assign(this, { go, at: 0 });
    this.title = h("h3", { tabindex: -1 });
    this.where = h("p", { class: "where" });
    this.body = h("div", { class: "body", "aria-live": "polite", "aria-atomic": "true" });
    this.dots = h("ol", { class: "dots", "aria-label": "Stops" });
    this.back = h("button", { type: "button", class: "move", id: "learn-back" }, "← Back");
    this.next = h("button", { type: "button", class: "move next", id: "learn-next" }, "Next →");
    this.all = h("button", { type: "button", class: "quiet", id: "learn-all", "aria-pressed": "false" }, "Show everything");
    this.open = h("button", { type: "button", class: "move next", id: "learn-open" }, "Open this step in Explore");
    this.keys = h("p", { class: "keys" }, h("kbd", {}, "←"), h("kbd", {}, "→"), " between stops, ", h("kbd", {}, "Esc"), " everything");
    this.foot = h("div", { class: "foot" }, this.all, this.keys);
    this.box = h("section", { class: "card", "aria-label": "Tour" }, this.where, this.title, this.body, h("div", { class: "ways" }, this.back, this.next), this.dots, this.foot);
    this.back.addEventListener("click", () => this.go(this.at - 1));
    this.next.addEventListener("click", () => this.go(this.at + 1));
    this.all.addEventListener("click", all);
    this.open.addEventListener("click", open);
    this.dots.addEventListener("click", (event) => {
      const dot = event.target.closest("button");
      if (dot) this.go(Number(dot.dataset.stop));
    });
  }

  /** Shows stop `at` of a lesson; `step` and `branches` are for the turn that follows the last stop. */
  show(lesson, at, step, everything) {
    this.at = at;
    const { stops } = lesson;
    const turn = at >= stops.length;
    const stop = turn ? null : stops[at];
    this.where.textContent = turn ? `Step ${step + 1} of a recorded run · your turn` : `Step ${step + 1} of a recorded run · stop ${at + 1} of ${stops.length}`;
    this.title.textContent = turn ? "Now change K" : text(stop.title);
    this.body.replaceChildren(...(turn ? this.turn(lesson, step) : this.stop(stop)));
    this.back.disabled = at === 0;
    this.next.hidden = turn;
    this.foot.hidden = turn; // everything is shown there anyway
    this.next.textContent = at === stops.length - 1 ? "Your turn →" : "Next →";
    this.all.setAttribute("aria-pressed", everything);
    this.all.textContent = everything ? "Back to this stop" : "Show everything";
    const names = [...stops.map((s) => text(s.title)), "Now change K"];
    if (this.dots.children.length !== names.length) this.dots.replaceChildren(...names.map((name, i) => h("li", {}, h("button", { type: "button", "data-stop": i, "aria-label": `${i < stops.length ? `Stop ${i + 1}` : "Your turn"}: ${name}`, title: name }, i < stops.length ? i + 1 : "K"))));
    [...this.dots.children].forEach((li, i) => {
      li.firstChild.classList.toggle("done", i < at);
      if (i === at) li.firstChild.setAttribute("aria-current", "step");
      else li.firstChild.removeAttribute("aria-current");
    });
  }

  stop(stop) {
    const rows = stop.numbers.map(([name, value]) => h("div", {}, h("dt", {}, h("bdi", {}, spaced(name))), h("dd", {}, h("bdi", {}, spaced(value)))));
    return [
      ...stop.say.map((sentence) => h("p", {}, h("bdi", {}, spaced(sentence)))),
      stop.equation.length ? h("p", { class: "equation", role: "math", "aria-label": stop.equation.map(([kind, words]) => (kind === "sub" ? ` sub ${words} ` : words)).join("") }, ...stop.equation.map(piece)) : "",
      rows.length ? h("dl", { class: "values" }, ...rows) : "",
    ];
  }

  turn(lesson, step) {
    const { by_branches: rows } = lesson;
    const most = Math.max(1, ...rows.map(([tokens]) => tokens));
    const table = h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...["K", "tokens in this step", "nodes"].map((w) => h("th", { scope: "col" }, w)))),
      h(
        "tbody",
        {},
        ...rows.map(([tokens, nodes], k) => h("tr", { class: k === rows.length - 1 ? "own" : null }, h("th", { scope: "row" }, k === 0 ? "0: first draft only" : k), h("td", {}, h("span", { class: "rail", "aria-hidden": "true" }, h("span", { style: `width:${((tokens / most) * 100).toFixed(0)}%` })), tokens), h("td", {}, nodes))),
      ),
    );
    return [
      h("p", {}, `K is how many flags get a re-draft. Step ${step + 1} was recorded with K = ${rows.length - 1}; this is what fewer of its re-drafts would have brought:`),
      table,
      h("p", {}, "More re-drafts catch more breaks, but every node costs a little time. Open the step in Explore, set Branches K to 1 or to 8, press Run, and watch the tree and the tokens per step."),
      h("p", {}, this.open),
    ];
  }
}

/** Whitespace of tokens made visible, as in the tree; what a token holds stays text. */
const spaced = (value) => text(value).replace(HIDDEN, "◌").replace(/“([^”]*)”/g, (_, token) => "“" + [...token].map((c) => MARKS[c] || c).join("") + "”");

const piece = ([kind, words]) => (kind === "sub" || kind === "sup" ? h(kind, {}, text(words)) : kind === "var" ? h("i", {}, text(words)) : text(words));
