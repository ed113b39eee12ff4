// Other K and γ: the tokens of each step if the run had been made with them, by exact replay, and the time that this would have taken.

import { barRows, costRow } from "./bars.js";
import { best, button, fold, h, s, sum } from "./dom.js";
import { term } from "./glossary.js";
import { h200, meanCost, meanParts, readWork } from "./machine.js";
import { machineOf } from "./numbers.js";
import { count, fixed, milliseconds, passes, unhidden } from "./words.js";

const HIGH = 196; // pixels; height of the picture
const SIDE = 34; // pixels from its edges to the first and the last K
// the two lines: the baseline of the name, top and bottom of the line, and the distance of a value's baseline from its point
const ABOVE = { name: 12, top: 44, bottom: 78, value: -12 };
const BELOW = { name: 110, top: 126, bottom: 148, value: 22 };

/** The replays of a run from their line: `points` by K and γ, `own` K and γ, costs on the machine of the run (`here`), or null. */
export function readReplays({ points, own, here }, method) {
  const read = points.map(([k, gamma, committed, lines]) => {
    const steps = committed.length;
    const alpha = sum(committed) / steps;
    const works = lines.map(readWork);
    const used = k || !own[0] ? method : "dflash"; // without re-drafts, D²SD is DFlash
    const cost = here && meanCost(here, used, works);
    const seconds = cost === null ? null : (cost / alpha) * (here.milliseconds / 1000);
    const nodes = sum(works.map((work) => work.nodes)) / works.length;
    return { k, gamma, committed, steps, alpha, works, method: used, nodes, seconds };
  });
  const values = (name) => [...new Set(read.map((point) => point[name]))].sort((a, b) => a - b);
  return { points: read, own: { k: own[0], gamma: own[1] }, here, k: values("k"), gamma: values("gamma") };
}

/** The point with this γ and the largest K up to `k` that this γ allows. */
export const pointAt = ({ points }, { k, gamma }) =>
  best(
    points.filter((point) => point.gamma === gamma && point.k <= k),
    (point) => point.k,
  );

const valuesOf = ({ k, gamma }, among) => `K = ${k}${among ? ` with γ = ${gamma}` : ""}`;

/** The best points, of one γ and of all, in sentences. */
export function bestWords({ points, here }, gamma) {
  const cost = ({ method, works }) => meanCost(here, method, works);
  const ofGamma = points.filter((point) => point.gamma === gamma);
  const fewest = best(ofGamma, ({ steps }) => -steps);
  const short = `With γ = ${gamma}, ${valuesOf(fewest)} needs the fewest steps (${fewest.steps})`;
  if (!here) return `${short}.`;
  const time = ({ seconds }) => milliseconds(seconds);
  const [quick, quickest] = [ofGamma, points].map((some) => best(some, ({ seconds }) => -seconds));
  const also = `${quick === fewest ? "" : `${valuesOf(quick)} `}the least time (${time(quick)} a token)`;
  const last = ofGamma.at(-1);
  const more =
    last === fewest || last === quick
      ? ""
      : ` ${valuesOf(last)} needs ${count(last.steps, "step")}, and each costs ${passes(cost(last))} instead of ${fixed(cost(fewest), 1)}.`;
  const all =
    quickest === quick
      ? ""
      : ` Of all K and γ, ${valuesOf(quickest, true)} needs the least time: ${time(quickest)} a token.`;
  return `${short} and ${also}.${more}${all}`;
}

/** Number of tokens that a step of a run would have written with only its first `most` re-drafts. Exact: a smaller K selects only these,
 *  and a node budget then keeps the likeliest of their tokens. */
export function tokensWith({ index, accepted, nodes, left, whole, committed }, most, store) {
  const later = ({ candidates }) => candidates.length > 0 && Math.min(...candidates) > most;
  const reached = accepted.findIndex((id) => later(nodes.get(id)));
  if (!whole) return reached < 0 ? committed.length : reached + 1;
  const [all, reach] = [[...nodes.values(), ...left].filter((node) => !later(node)), new Map([[-1, 1]])];
  for (const { id, parent, drafterP } of all) reach.set(id, reach.get(parent) * (drafterP ?? 1));
  const kept = all.sort((a, b) => reach.get(b.id) - reach.get(a.id)).slice(0, store.header.config.node_budget + 1);
  const text = store.committed.slice(index).flat();
  let node = 0;
  let tokens = 0;
  for (; node !== undefined && tokens < text.length; tokens += 1) {
    const { token } = text[tokens];
    node = kept.find(({ parent, token: other }) => parent === node && other === token)?.id;
  }
  return tokens;
}

/** Why a run has no replays, in a sentence; "" if the server can make them. `server`: null without one. */
export function whyNone({ header, seen, live, finished }, server, told) {
  const { temperature, cost_aware: aware } = header.config;
  if (header.missing) return "Other K and γ cannot be replayed: this log has no drafts.";
  if (!seen.draft) return "This method has neither K nor γ.";
  if (temperature > 0) return "This run was sampled. With other K and γ it would have written another text.";
  if (aware) return "“Quickest here” chose K and γ anew in each step, so they cannot be compared.";
  if (live || !finished)
    return live ? "Other K and γ can be compared after the end of the run." : "This run has no end.";
  if (server) return "";
  return told
    ? "To compare other K and γ for this run, open “When does it pay?” in Explore."
    : "This file has no replays with other K and γ: ask for them in the app (“When does it pay?”) before you save the file.";
}

/**
 * Sliders for K and γ, with a picture of tokens per step and time per token.
 *
 * server(event, data): sends an event; null without a server
 * told: whether the view is part of Learn
 */
export function replaysView(store, state, server, told) {
  let number = 0; // of the latest request
  let line, read; // the line with the replays, and the replays in it
  const inputs = {};
  const slider = (id, words) => {
    const name = { id: `by-hand-${id}`, ariaLabel: words };
    const input = h("input", { type: "range", min: 0, step: 1, ...name, oninput: turn });
    const value = h("output", {});
    inputs[id] = { input, value };
    return h("label", { class: id }, h("span", {}, words), input, value);
  };
  const about = h("small", {});
  const none = h("p.none", {});
  const start = button("Compare other K and γ", { class: "offer", id: "replay" }, request);
  const stop = button("Stop", { class: "offer", id: "stop-replay" }, () => server("halt"));
  const progress = h("progress", { ariaLabel: "Replays", max: 1 });
  const said = h("p.none", { role: "status" });
  const waits = h("div.waits", {}, start, progress, stop, said);
  const picture = s("svg.lines", { role: "img", height: HIGH });
  const figures = h("p.figures", { role: "status" });
  const [rows, advice, text] = [h("div", {}), h("p", {}), h("p.cut", {})];
  const sliders = h(
    "div",
    {},
    picture,
    slider("k", "Re-drafts K"),
    slider("gamma", "Block γ"),
    figures,
    rows,
    advice,
    fold("The text, divided into these steps", text),
  );
  const title = h("h3", {}, "Other ", term("K"), " and ", term("γ"), " ", about);
  const box = h("section.by-hand", {}, title, none, waits, sliders);

  function replays() {
    if (line !== store.replays) {
      line = store.replays;
      read = line && readReplays(line, store.header.method);
    }
    return read ?? null;
  }

  function turn() {
    const value = (id) => replays()[id][inputs[id].input.value];
    state.set({ tried: { k: value("k"), gamma: value("gamma") } });
  }

  function request() {
    number += 1;
    state.set({ asked: { number } });
    server("replays", { key: store.key, number });
  }

  /** Takes the progress of a request, or the reason why it failed. */
  function receive(news) {
    if (state.now.asked?.number === news.number) state.set({ asked: news });
  }

  /** Number of re-drafts to show in the drawing; null for all. */
  function most(tried) {
    const grid = replays();
    return tried && grid && tried.gamma === grid.own.gamma ? pointAt(grid, tried).k : null;
  }

  function show({ tried, asked, step }) {
    const grid = replays();
    const why = grid ? "" : whyNone(store, server, told);
    const runs = asked !== null && !asked.problem;
    none.textContent = why;
    none.hidden = !why;
    waits.hidden = Boolean(grid || why);
    sliders.hidden = !grid;
    start.hidden = runs;
    stop.hidden = progress.hidden = !runs;
    progress.value = asked?.total ? asked.done / asked.total : 0;
    said.textContent = asked?.problem ?? (asked?.total ? `${asked.done} of ${asked.total} settings` : "");
    if (!grid) return;
    const wanted = tried ?? grid.own;
    const point = pointAt(grid, wanted);
    for (const [id, { input, value }] of Object.entries(inputs)) {
      input.max = grid[id].length - 1;
      input.value = grid[id].indexOf(wanted[id]);
      input.ariaValueText = value.textContent = point[id];
      input.parentNode.hidden = grid[id].length < 2;
    }
    showPoint(grid, point, wanted, step);
    draw(grid, point);
  }

  function showPoint(grid, point, wanted, step) {
    const { own, here } = grid;
    const less = point.k < wanted.k ? `A block of ${point.gamma} allows ${count(point.k, "re-draft")} at most. ` : "";
    const drawn =
      point.gamma === own.gamma && point.k <= own.k
        ? ` Step ${step.index + 1}, in the tree: ${count(tokensWith(step, point.k, store), "token")}.`
        : "";
    figures.replaceChildren(
      less,
      h("b", {}, `${count(point.steps, "step")} of ${fixed(point.alpha, 1)} tokens`),
      `, ${fixed(point.nodes, 0)} tokens read in each.${drawn}`,
    );
    const row = (name, machine, rest = 0) => {
      const mean = meanParts(machine, point.method, point.works);
      return (
        mean &&
        costRow(name, "mean one-token passes, calculated", { ...mean, verify: mean.verify - rest, rest }, point.alpha)
      );
    };
    const costs = [here && row(machineOf(store).name, here, here.other), row("an H200", h200(point.method))];
    rows.replaceChildren(barRows(costs.filter(Boolean)));
    const limit = store.header.config.node_budget;
    about.textContent = `The same text, by exact replay${limit ? `. At most B = ${limit} drafted tokens are read, as in the run` : ""}.`;
    advice.textContent = `${bestWords(grid, point.gamma)} For another text, other values may be best.`;
    const tokens = store.committed.flat();
    let end = 0;
    text.replaceChildren(
      ...point.committed.map((size) => {
        const words = tokens.slice(end, (end += size)).map((token) => token.text);
        return h("span", { title: count(size, "token") }, unhidden(words.join("")));
      }),
    );
  }

  /** Draws tokens per step and time per token against K, for one γ. */
  function draw({ points, k, here }, point) {
    const width = picture.clientWidth;
    if (!width) return;
    const ofGamma = points.filter(({ gamma }) => gamma === point.gamma);
    const x = (value) => SIDE + (k.indexOf(value) * (width - 2 * SIDE)) / Math.max(1, k.length - 1);
    const curve = (kind, name, of, digits, place) => {
      const values = ofGamma.map(of);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const y = (p) => place.bottom - ((of(p) - low) * (place.bottom - place.top)) / (high - low || 1);
      const bestPoint = best(ofGamma, kind === "tokens" ? ({ steps }) => -steps : (p) => -of(p));
      return s(
        "g",
        { class: kind },
        s("text", { x: 0, y: place.name }, name),
        s("polyline", { points: ofGamma.map((p) => `${x(p.k)},${y(p).toFixed(1)}`).join(" ") }),
        ...ofGamma.flatMap((p) => {
          const above = { x: x(p.k), y: (y(p) + place.value).toFixed(1), "text-anchor": "middle" };
          const [chosen, r] = p === point ? ["chosen", 6] : [null, 3];
          return [
            s("circle", { class: chosen, cx: x(p.k), cy: y(p).toFixed(1), r }),
            s("text", { class: p === bestPoint ? "best" : null, ...above }, fixed(of(p), digits)),
          ];
        }),
      );
    };
    const time = ({ seconds }) => 1000 * seconds;
    picture.replaceChildren(
      curve("tokens", "tokens a step", ({ alpha }) => alpha, 1, ABOVE),
      here ? curve("time", "milliseconds a token, calculated", time, time(ofGamma[0]) < 10 ? 2 : 1, BELOW) : "",
      s("text", { x: 0, y: HIGH - 6, "text-anchor": "start" }, "K"),
      ...k.map((value) => s("text", { x: x(value), y: HIGH - 6, "text-anchor": "middle" }, value)),
    );
    const each = ofGamma.map((p) => `K ${p.k}: ${fixed(p.alpha, 1)}${here ? `, ${milliseconds(p.seconds)}` : ""}`);
    picture.ariaLabel = `Tokens a step${here ? " and time a token" : ""}. ${each.join("; ")}`;
  }

  return { box, show, receive, most };
}
