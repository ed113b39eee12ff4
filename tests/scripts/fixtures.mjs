// Small runs, and the store that reads them.
import { Store } from "../../assets/viewer/store.js";

export const RUN = { names: { first: "first drafter", second: "second drafter", target: "target" }, sampled: false, random: false };

/** A step whose first draft of `drafted` tokens was accepted up to `boundary`; `selected`: predicted prefixes. */
export function stepLine(drafted, boundary, selected = [], elapsed = 0) {
  const trunk = Array.from({ length: drafted + 1 }, (_, id) => ({
    id, parent: id - 1, depth: id, token: id, text: `t${id}`, candidates: [0], proposer: "first", drafter_probability: 0.5, target_probability: 0.5, target_rank: 0,
    state: id === 0 ? "root" : id <= boundary ? "accepted" : id === boundary + 1 ? "rejected" : "unreached",
  }));
  return JSON.stringify({
    event: "StepDone", elapsed, nodes: trunk, accepted: trunk.slice(1, boundary + 1).map((n) => n.id), branches: [], choices: [{ node: boundary, token: 99, text: "right", probability: 0.7 }],
    committed: [...trunk.slice(1, boundary + 1).map((n) => ({ text: n.text, proposer: "first", node: n.id })), { text: "right", proposer: "target", node: null }],
    first_draft: { drafter: "first", prefix: 0, texts: trunk.slice(1).map((n) => n.text), confidence: Array(drafted).fill(0.5), alternatives: [] },
    selected_prefixes: selected, actual_boundary: boundary, boundary_posterior: [], full_acceptance: 0, seconds: { verify: 0.01 },
  });
}

/** The line before a step: what the server says came of it. */
export const outcomeLine = (verdict, gained = 0, closed = null, work = [5, [], 5]) => JSON.stringify({ event: "Outcome", verdict, gained, closed, work });

export const HEADER = JSON.stringify({ event: "Header", run: "r", method: "d2sd", prompt: "Once" });
export const FINISHED = JSON.stringify({ event: "Finished", stop_reason: "max_new_tokens" });
export const segment = (key, from, ...lines) => [JSON.stringify({ event: "Segment", key, from }), ...lines].join("\n") + "\n";

export function storeOf() {
  const asked = [];
  const store = new Store(() => {}, (key, start) => asked.push([key, start]));
  return { store, asked };
}

export async function settled(store) {
  while (store.reading || store.waiting.length) await new Promise((go) => setTimeout(go, 1));
}
