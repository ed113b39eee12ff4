// One method: a bar in the overview, and its text growing in the measured time.

const ORDINALS = ["", "1st", "2nd", "3rd"];
const ordinal = (place) => ORDINALS[place] || `${place}th`;

/** Steps as they were measured, with everything that the replay needs at a given time. */
function readLane(raw) {
  const steps = list(raw.steps).map((step) => {
    const [elapsed, tokens] = list(step);
    return {
      elapsed: number(elapsed, 0, 1e6, 0),
      tokens: list(tokens).map((token) => ({ text: text(list(token)[0]), proposer: PROPOSERS.includes(list(token)[1]) ? list(token)[1] : "target" })),
    };
  });
  const row = raw.row && typeof raw.row === "object" ? raw.row : null;
  const total = steps.reduce((sum, step) => sum + step.tokens.length, 0);
  return { method: text(raw.method), sentence: text(raw.sentence), state: text(raw.state), problem: text(raw.problem), steps, row, total, end: steps.length ? steps[steps.length - 1].elapsed : 0 };
}

class LaneView {
  /** `most`: the largest number of tokens of any lane, the full width of a bar; `decided`: no other lane is still to come;
   *  `open()` shows the lane's run in Explore. */
  constructor(lane, most, decided, open) {
    Object.assign(this, { lane, most: Math.max(1, most), decided, shown: 0 });
    this.counts = { first: 0, second: 0, target: 0 };
    this.bars = Object.fromEntries(PROPOSERS.map((who) => [who, h("span", { class: `segment ${who}` })]));
    this.result = h("span", { class: "result" });
    this.track = h(
      "li",
      { class: "track", "data-method": lane.method },
      h("span", { class: "name" }, lane.method),
      h("span", { class: "rail" }, ...PROPOSERS.map((who) => this.bars[who])),
      this.result,
    );
    this.note = h("span", { class: "note" });
    this.words = h("div", { class: "words", tabindex: 0, role: "region", "aria-label": `Text of ${lane.method}` });
    this.panel = h(
      "article",
      { class: `panel lane ${lane.state.replace(/ /g, "-")}`, "data-method": lane.method, "data-state": lane.state },
      h("div", { class: "head" }, h("h3", { title: lane.sentence }, lane.method), this.note, decided && lane.total ? this.opener(open) : null),
      this.words,
    );
    if (lane.problem) this.words.append(h("p", { class: "problem" }, lane.problem));
    this.tokens = lane.steps.flatMap((step) => step.tokens.map((token, at) => this.addToken(token, at, step.elapsed)));
  }

  opener(open) {
    const button = h("button", { type: "button", class: "explore", "aria-label": `Open the run of ${this.lane.method} in Explore` }, "Explore →");
    button.addEventListener("click", open);
    return button;
  }

  addToken({ text: words, proposer }, at, elapsed) {
    const node = h("span", { class: `tok ${proposer}${at === 0 ? " border" : ""}`, dir: "auto", hidden: true });
    words.replace(LONE, "\ufffd").split("\n").forEach((part, i) => {
      if (i) node.append(h("i", { class: "newline", "aria-hidden": "true" }), "\n");
      node.append(part);
    });
    this.words.append(node);
    return { node, proposer, elapsed };
  }

  /** Shows what was committed at a time of the race. */
  show(time) {
    const { tokens, lane } = this;
    const before = this.shown;
    while (this.shown < tokens.length && tokens[this.shown].elapsed <= time) this.reveal(this.shown++, true);
    while (this.shown > 0 && tokens[this.shown - 1].elapsed > time) this.reveal(--this.shown, false);
    if (before === this.shown && this.drawn) return;
    this.drawn = true;
    for (const who of PROPOSERS) this.bars[who].style.width = ((100 * this.counts[who]) / this.most).toFixed(3) + "%";
    const over = this.shown === tokens.length && tokens.length > 0;
    this.panel.classList.toggle("over", over);
    this.note.textContent = this.shown ? count(this.shown, "token") : { waiting: "waiting", running: "running now", "not run": "not run" }[lane.state] || "";
    this.result.textContent = over ? this.verdict() : "";
    if (this.shown) this.follow(tokens[this.shown - 1].node);
  }

  reveal(at, visible) {
    const { node, proposer } = this.tokens[at];
    node.hidden = !visible;
    this.counts[proposer] += visible ? 1 : -1;
  }

  verdict() {
    const { row, end, state } = this.lane;
    const time = end < 1 ? `${(end * 1000).toFixed(0)} ms` : `${end.toFixed(2)} s`;
    const place = row && this.decided && whole(row.place, 1, 99, null);
    return place ? `${ordinal(place)} · ${time}` : `${state} · ${time}`;
  }

  /** Keeps the newest token in view while the text grows. */
  follow(token) {
    const { words } = this;
    words.scrollTop = Math.max(0, token.offsetTop + token.offsetHeight - words.clientHeight + 10);
  }
}
