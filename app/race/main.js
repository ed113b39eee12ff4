// Race: lanes that replay how each method wrote the text, the text with the steps of two lanes, what differs between these, and the figures
// of all. A new value is a new state of a race, another race, or another choice of two lanes.

import { PAYS } from "../../assets/viewer/address.js";
import { button, emit, h, readJson } from "../../assets/viewer/dom.js";
import { quoted, visible } from "../../assets/viewer/words.js";
import { barRows } from "../../assets/viewer/bars.js";
import { copyLink } from "../../assets/viewer/share.js";
import { differencesView } from "./differences.js";
import { Player, laneView, playerControls, readLane } from "./replay.js";
import { aloneWords, costRows, elsewhereWords, raceTable, resultWords, timeAxis } from "./results.js";
import { textsView } from "./texts.js";

const TITLES = { own: "Your race.", recorded: "A recorded race.", runs: "Runs of the list." };

export function start(element, trigger, props, watch) {
  const result = h("h2.result", {});
  const more = h("p.more", {});
  const all = h("p.all", {});
  const heading = h("b.title", {});
  const status = h("p.status", { role: "status" });
  const spoken = h("p.spoken", { ariaLive: "polite" });
  const tracks = h("ol.tracks", {
    ariaLabel: "Progress of each method. A click chooses a method for the text below.",
  });
  const table = h("div.panel.figures", {});
  const empty = h("p.empty", {}, "Nothing to show yet: choose methods in ⋯ and press Race.");
  const player = new Player(element, () => draw());
  const controls = playerControls(player);
  const axis = h("div", {});
  const pays = button("When does it pay? →", { id: "race-pays" }, () =>
    emit(element, "explorer:learn", { chapter: PAYS }),
  );
  const copied = h("span.said", { role: "status" });
  const link = button(
    "Copy link",
    { title: "Copy a link that fills in the prompt, settings and methods of this race" },
    async () => (copied.textContent = await copyLink(data.query, "The prompt is too long for a link.")),
  );
  const open = (lane, step) => trigger("select", step === undefined ? { lane } : { lane, step });
  const texts = textsView(
    (side, step) => open(chosen[side], step),
    (steps) => lanes.forEach((lane, at) => lane.frame(steps[chosen.indexOf(at)] ?? [])),
  );
  const rows = differencesView();
  const back = button("Back to the race", { class: "small" }, () => trigger("choose", { at: null }));
  const sharing = h("div.sharing", {}, back, rows.tools, copied, link);
  const last = h("div.head.last", {}, heading, status, sharing);
  const stage = h("div.panel.stage", {}, result, more, all, controls.box, tracks, axis);
  const root = h("section.panels.race", { ariaLabel: "Race" }, empty, stage, texts.box, rows.box, last, table, spoken);
  element.replaceChildren(root);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let data = { lanes: [] };
  let lanes = [];
  let chosen = []; // the lanes above and below the text
  let recent = []; // the same, in the order in which they were chosen
  let drawn = ""; // the state that the lanes show
  let toldOf = ""; // the state that the texts show
  let waiting = false; // whether to start the replay when the finished race is first visible

  function draw() {
    for (const lane of lanes) lane.show(player.time);
    if (chosen.length) texts.play(player.time);
    controls.show();
    element.dataset.time = player.time.toFixed(3);
    element.dataset.playing = player.playing;
    if (player.duration > 0 && player.time >= player.duration) tell();
  }

  function tell() {
    const order = lanes
      .map(({ lane }) => lane)
      .filter(({ row }) => row?.place)
      .sort((a, b) => a.row.place - b.row.place);
    const words = order.length ? `Finish order: ${order.map((lane) => lane.name).join("; ")}.` : "";
    if (spoken.textContent !== words) spoken.textContent = words;
  }

  function show() {
    data = readJson(props.value) ?? { lanes: [], status: "" };
    const { pair = null, ...race } = data;
    const running = data.status;
    const state = JSON.stringify(race);
    if (state !== drawn) showRace(running);
    drawn = state;
    const told = resultWords(lanes.map(({ lane }) => lane));
    result.textContent = running ? "One method at a time …" : (pair?.title ?? (told.title || aloneWords(lanes.length)));
    more.textContent = running ? "Methods that run together would slow each other down." : (pair?.more ?? "");
    all.textContent = running ? "" : [pair ? told.title : "", told.more].filter(Boolean).join(" ");
    compare(running ? null : pair);
  }

  function showRace(running) {
    const raw = data.lanes.map(readLane);
    empty.hidden = raw.length > 0;
    for (const part of [stage, last]) part.hidden = !raw.length;
    element.dataset.lanes = raw.filter((lane) => lane.total).length;
    element.dataset.state = running ? "running" : raw.length ? "done" : "empty";
    heading.textContent = running ? "" : TITLES[data.kind];
    // prompt and model of the race: the form may have changed since
    const what = [data.prompt && quoted(data.prompt, 40), data.model && `on ${visible(data.model, 40)}`];
    const machine = data.machine && data.kind !== "runs" ? `measured on ${data.machine}` : "";
    const said = [what.filter(Boolean).join(" "), machine].filter(Boolean).join(", ");
    const here = data.kind === "recorded" ? "Press Race to run a race here." : "";
    status.textContent = running || [said && `${said}.`, here].filter(Boolean).join(" ");
    const longest = Math.max(0, ...raw.map((lane) => lane.end));
    lanes = raw.map((lane, at) =>
      laneView(lane, longest, !running, { choose: () => choose(at), open: () => open(at) }),
    );
    back.hidden = data.kind !== "runs";
    link.hidden = Boolean(running) || data.kind === "runs";
    copied.textContent = "";
    tracks.replaceChildren(...lanes.map((lane) => lane.track));
    table.hidden = !raw.some((lane) => lane.row && lane.total);
    const costs = running ? [] : costRows(raw);
    table.replaceChildren(
      h("div.head", {}, h("h3", {}, "All methods")),
      h("div.scroll", {}, raceTable(raw, data)),
      costs.length
        ? h(
            "div.costs",
            {},
            h("h3", {}, "What a step costs, in one-token passes, and the tokens that it brings (dashed line)"),
            h("p.question", {}, elsewhereWords(raw)),
            barRows(costs),
            pays,
          )
        : "",
    );
    axis.replaceChildren(longest ? timeAxis(longest) : "");
    player.load(running ? 0 : longest);
    // No replay while methods still run: finished lanes are shown complete.
    if (running) lanes.forEach((lane) => lane.show(Infinity));
    else if (still.matches) player.seek(player.duration);
    else waiting = player.duration > 0;
    begin();
  }

  /** Chooses a lane for the text: it replaces the one that was chosen longer ago. The order of the lanes stays that of the race. */
  function choose(at) {
    if (chosen.includes(at) || chosen.length < 2) return;
    recent = [recent[1], at];
    const pair = [...recent].sort((x, y) => x - y);
    compare(null, pair);
    trigger("choose", { at: pair });
  }
  /** Shows the texts of the two lanes, and what differs between them; `pair`: the comparison, null until it arrives. */
  function compare(pair, at = pair ? pair.at : []) {
    const same = String(at) === String(chosen) && toldOf === drawn;
    chosen = at;
    if (!recent.every((n) => at.includes(n)) || recent.length !== at.length) recent = [...at];
    lanes.forEach((lane, n) => lane.mark(at.indexOf(n)));
    texts.box.hidden = !at.length;
    rows.show(pair);
    if (!at.length || same) return;
    toldOf = drawn;
    const two = at.map((n) => lanes[n].lane);
    texts.show(
      data,
      two,
      two.map(({ name }) => name),
    );
    texts.play(player.time);
  }

  function begin() {
    if (!waiting || !element.offsetParent) return;
    waiting = false;
    player.play();
  }

  // The tab may be hidden when the race arrives: start when it is first visible.
  new ResizeObserver(begin).observe(root);
  watch("value", show);
  show();
}
