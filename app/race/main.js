// Race: lanes that replay how each method wrote the text, and the results. A new value is a new state of a race, or another race.

import { PAYS } from "../../assets/viewer/address.js";
import { button, h, list, readJson, text } from "../../assets/viewer/dom.js";
import { PROPOSERS, PROPOSER_NAMES, quoted, visible } from "../../assets/viewer/words.js";
import { barRows } from "../../assets/viewer/bars.js";
import { copyLink } from "../../assets/viewer/share.js";
import { Controls, LaneView, Player, readLane } from "./replay.js";
import { costRows, raceTable, resultWords, stageLegend, timeAxis } from "./results.js";

export function start(element, trigger, props, watch) {
  const result = h("h2", { class: "result" });
  const more = h("p", { class: "more" });
  const heading = h("b", { class: "title" });
  const status = h("p", { class: "status", role: "status" });
  const spoken = h("p", { class: "spoken", "aria-live": "polite" });
  const tracks = h("ol", { class: "tracks", "aria-label": "Progress of each method" });
  const panels = h("div", { class: "lanes" });
  const table = h("div", { class: "panel figures" });
  const empty = h("p", { class: "empty" }, "Nothing to show yet: choose methods and press Race.");
  const player = new Player(element, () => draw());
  const controls = new Controls(player);
  const axis = h("div", {});
  const pays = button("When does it pay? →", { id: "race-pays" }, () =>
    element.dispatchEvent(new CustomEvent("explorer:learn", { bubbles: true, detail: { chapter: PAYS, value: "" } })),
  );
  const copied = h("span", { class: "said", role: "status" });
  const link = button(
    "Copy link",
    { title: "Copy a link that fills in the prompt, settings and methods of this race" },
    async () => (copied.textContent = await copyLink(query, "The prompt is too long for a link.")),
  );
  const sharing = h("div", { class: "sharing", hidden: true }, copied, link);
  const legend = h(
    "ul",
    { class: "legend", "aria-label": "Who proposed a token" },
    ...PROPOSERS.map((who) =>
      h("li", {}, h("span", { class: `tok ${who}` }, who === "target" ? "large model" : PROPOSER_NAMES[who])),
    ),
  );
  const stage = h(
    "div",
    { class: "panel stage" },
    result,
    more,
    controls.box,
    tracks,
    axis,
    legend,
    h("div", { class: "head" }, heading, status, sharing),
  );
  const root = h("section", { class: "panels race", "aria-label": "Race" }, empty, stage, panels, table, spoken);
  element.replaceChildren(root);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let lanes = [];
  let query = ""; // query of a link to the race
  let waiting = false; // whether to start the replay when the finished race is first visible

  function draw() {
    const grown = lanes.filter((lane) => lane.show(player.time));
    controls.show();
    element.dataset.time = player.time.toFixed(3);
    element.dataset.playing = player.playing;
    for (const lane of grown) lane.follow(); // reads the layout, so after all writes
    if (player.duration > 0 && player.time >= player.duration) tell();
  }

  function tell() {
    const order = lanes
      .map((view) => view.lane)
      .filter((lane) => lane.row && lane.row.place)
      .sort((a, b) => a.row.place - b.row.place);
    const words = order.length ? `Finish order: ${order.map((lane) => lane.name).join("; ")}.` : "";
    if (spoken.textContent !== words) spoken.textContent = words;
  }

  function show() {
    const data = readJson(props.value) || { lanes: [] };
    const raw = list(data.lanes).map(readLane);
    const running = text(data.status);
    empty.hidden = raw.length > 0;
    for (const part of [stage, panels, table]) part.hidden = !raw.length;
    element.dataset.lanes = raw.filter((lane) => lane.total).length;
    element.dataset.state = running ? "running" : raw.length ? "done" : "empty";
    const told = running
      ? { title: "One method at a time …", more: "Methods that run together would slow each other down." }
      : resultWords(raw);
    [result.textContent, more.textContent] = [told.title, told.more];
    heading.textContent = running ? "" : data.recorded ? "A recorded race" : "Your race";
    // prompt and model of the race: the form may have changed since
    const what = [text(data.prompt) && quoted(data.prompt, 40), text(data.model) && `on ${visible(data.model, 40)}`]
      .filter(Boolean)
      .join(" ");
    const machine = data.machine ? `measured on ${text(data.machine)}` : "";
    const said = [what, machine].filter(Boolean).join(", ");
    const opening = raw.some((lane) => lane.opening) ? ". The pass over the prompt writes one token more" : "";
    status.textContent = running || `${said}${opening}.${data.recorded ? " Press Race to run a race here." : ""}`;
    const longest = Math.max(0, ...raw.map((lane) => lane.end));
    lanes = raw.map((lane, at) => new LaneView(lane, longest, !running, () => trigger("select", { lane: at })));
    query = text(data.query);
    sharing.hidden = Boolean(running) || !raw.some(({ row }) => row);
    tracks.replaceChildren(...lanes.map((lane) => lane.track));
    panels.replaceChildren(...lanes.map((lane) => lane.panel));
    const measured = raw.some((lane) => lane.row && lane.total);
    table.hidden = !measured;
    const rows = running ? [] : costRows(raw);
    if (measured)
      table.replaceChildren(
        h("div", { class: "head" }, h("h3", {}, "Figures"), stageLegend()),
        h("div", { class: "scroll" }, raceTable(raw, data)),
        rows.length
          ? h(
              "div",
              { class: "costs" },
              h("h3", {}, "What a step costs, in passes over one token, and the tokens that it brings (dashed line)"),
              barRows(rows),
              pays,
            )
          : "",
      );
    axis.replaceChildren(timeAxis(longest));
    player.load(running ? 0 : longest);
    // No replay while methods still run: finished lanes are shown complete.
    if (running) lanes.filter((lane) => lane.show(Infinity)).forEach((lane) => lane.follow());
    else if (still.matches) player.seek(player.duration);
    else waiting = player.duration > 0;
    begin();
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
