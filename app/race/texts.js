// The text of two runs, once: a rail of the steps of one run above every line, and of the other below. From the first difference on, the
// texts are beside each other.

import { best, button, h, sum } from "../../assets/viewer/dom.js";
import { broken } from "../../assets/viewer/text.js";
import { OUTCOMES, PROPOSERS, count, countInWords, milliseconds } from "../../assets/viewer/words.js";

const SIDES = ["a", "b"]; // classes of the rails: above, below
const LINE = 48; // pixels: line height in race.css
const LONG = 300; // characters; of longer prompts only the end is shown
const NAMED = { first: "first draft", second: "second draft", target: "large model" };

/** Pairs of proposer and number of tokens, of the proposers that wrote some of these tokens. */
export const proposersOf = (tokens) =>
  PROPOSERS.map((who) => [who, tokens.filter(({ proposer }) => proposer === who).length]).filter(([, n]) => n);

/** Parses a run; `end` is in seconds since the prompt was read; `from` and `to` of steps are places in the text, in characters.
 *  `marks`: whether each token is a mark instead of its text, which a log may lack. */
export function readSide(raw, marks = raw.textless) {
  const tokens = (committed) =>
    committed.map(([words, proposer]) => ({ text: marks ? "▯" : words.toWellFormed(), proposer }));
  const length = (some) => sum(some.map((token) => token.text.length));
  const lead = tokens(raw.lead ?? []); // a lane that waits has no tokens yet
  let to = length(lead);
  let before = 0;
  const steps = (raw.steps ?? []).map(([end, committed, outcome, boundary]) => {
    const [from, written, seconds] = [to, tokens(committed), end - before];
    to += length(written);
    before = end;
    return { from, to, tokens: written, end, seconds, outcome, boundary };
  });
  const all = [lead, ...steps.map((step) => step.tokens)].flat();
  return { raw, lead, steps, words: all.map((token) => token.text).join("") };
}

/** The length of the common beginning of two texts; null if they are equal. */
export function firstDifference(one, other) {
  if (one === other) return null;
  let length = 0;
  while (length < Math.min(one.length, other.length) && one[length] === other[length]) length += 1;
  return length;
}

/** Tokens of a side as places in the text: `step` is -1 for the tokens of prefill; `starts`: whether the text of a step starts here. */
const placesOf = ({ lead, steps }) => {
  let end = 0;
  return [{ tokens: lead }, ...steps].flatMap(({ tokens }, step) => {
    const stepFrom = end;
    return tokens.map(({ text: words, proposer }) => {
      const from = end;
      end += words.length;
      return { from, to: end, step: step - 1, proposer, starts: from === stepFrom };
    });
  });
};

/** The pieces of a part of the text, cut wherever a token of a side begins. */
export function piecesOf(sides, from, to) {
  const places = sides.map((side) =>
    (side ? placesOf(side) : []).filter((own) => own.to > Math.max(from, own.from) && own.from < to),
  );
  const cuts = [...new Set(places.flat().map((own) => Math.max(from, own.from)))].sort((x, y) => x - y);
  const next = sides.map(() => 0);
  return cuts.map((cut, n) => {
    const tokens = places.map((own, side) => {
      while (own[next[side]]?.to <= cut) next[side] += 1;
      return own[next[side]]?.from <= cut ? own[next[side]] : null;
    });
    return { from: cut, to: cuts[n + 1] ?? to, tokens };
  });
}

/** The step at a place of the text: that of the `side` whose step is longer there, and the other side's steps that end within it. Null if
 *  no step is there. `only`: the only side at this place, or null; `shared`: where the texts begin to differ. */
export function stepAt(sides, place, only, shared) {
  const here = ({ from, to }) => from <= place && place < to;
  const found = sides.map(({ steps }, n) => (only === null || only === n) && steps.find(here));
  const [one, other] = found.map((step) => (step ? step.to - step.from : -1));
  const side = one > other ? 0 : 1;
  if (!found[side]) return null;
  const { from, to } = found[side];
  const within = (step) => step.to > from && step.to <= Math.min(to, shared);
  const others = only === null ? sides[1 - side].steps.flatMap((step, n) => (within(step) ? [n] : [])) : [];
  return { side, step: sides[side].steps.indexOf(found[side]), others, from, to };
}

const SOUGHT = 400; // steps among which the first frame is chosen

/** The place where one step wrote what took the other side the most steps. */
export function tellingPlace(sides) {
  const steps = sides
    .flatMap((side) => side.steps.slice(0, SOUGHT))
    .map(({ from }) => stepAt(sides, from, null, Infinity));
  const found = best(steps.filter(Boolean), ({ others }) => others.length);
  return found?.others.length ? found.from : 0;
}

/** `open(side, step)` shows a step in Explore; `framed(steps)` is called with the chosen steps of both sides. */
export function textsView(open, framed = () => {}) {
  let [sides, names, nodes] = [[], [], []]; // nodes: the pieces of the tokens of each side
  let shared = 0; // where the texts begin to differ
  let until = ""; // the numbers of steps that ended, as drawn
  let frame = null;
  const status = h("p.status", { role: "status" });
  const rails = h("div.rails", {
    tabindex: 0,
    role: "region",
    ariaLabel: "Text with the steps of both; arrow keys move from step to step",
    onclick: point,
    onpointermove: (event) => event.pointerType !== "touch" && point(event),
    onkeydown: press,
  });
  const told = h("p.told", { ariaLive: "polite" });
  const about = h("div.about", {});
  const legend = PROPOSERS.map((who) => h("li", {}, h("i", { class: `swatch ${who}`, ariaHidden: true }), NAMED[who]));
  const box = h(
    "section.panel.texts",
    { ariaLabel: "The text of both" },
    h("div.head", {}, status, h("ul.legend", { ariaLabel: "Who wrote a token" }, ...legend)),
    rails,
    told,
    about,
  );

  function point({ target }) {
    const { from, side } = target.closest("[data-from]")?.dataset ?? {};
    if (from) choose(Number(from), side === undefined ? null : Number(side));
  }

  function press(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !frame) return;
    const place = by > 0 ? frame.to : frame.from - 1;
    choose(place, place < shared ? null : frame.side);
    reveal();
    event.preventDefault();
  }

  /** `prompt`: the text before; `chat`: whether the text answers the prompt instead of continuing it; `both`: results of `readSide`;
   *  `whose`: their names. */
  function show({ prompt, chat }, both, whose) {
    const textless = both.some(({ raw }) => raw.textless);
    [sides, names] = [textless ? both.map(({ raw }) => readSide(raw, true)) : both, whose];
    const at = textless ? null : firstDifference(...sides.map((side) => side.words));
    const lengths = sides.map((side) => side.words.length);
    shared = at ?? Math.min(...lengths);
    until = frame = null;
    const [one, other] = names.map((name) => h("b", {}, name));
    const above = h("span", {}, "Above each line the steps of ", one, ", below those of ", other, ". ");
    const same = textless
      ? "At least one of them is a log without text: each ▯ is a token."
      : at === null
        ? "Both wrote the same text."
        : `The texts differ from character ${at + 1} on.`;
    status.replaceChildren(above, same);
    nodes = sides.map(() => []);
    const rests = sides.map(({ words }, n) => {
      const only = sides.map((side, m) => (m === n ? side : null));
      const rest = words.length > shared ? pieces(words, only, shared, words.length, n) : ["ends here"];
      return h("div.rest", {}, h("b.whose", {}, names[n]), ...rest);
    });
    rails.replaceChildren(
      h(
        "span",
        { class: chat ? "prompt asked" : "prompt" },
        (prompt.length > LONG ? `…${prompt.slice(-LONG)}` : prompt).toWellFormed(),
      ),
      ...pieces(sides[0].words, sides, 0, shared, null),
      Math.max(...lengths) > shared ? h("div.rests", {}, ...rests) : "",
    );
    for (const part of [told, about]) part.replaceChildren();
    framed([[], []]);
    const begin = sides[0].steps[0]?.from ?? 0;
    choose(at === null ? tellingPlace(sides) : Math.max(begin, shared - 1), null);
    reveal();
  }

  function reveal() {
    const node = rails.querySelector(".opens");
    if (node) rails.scrollTop = Math.max(0, node.offsetTop - LINE);
  }

  /** The pieces of a part of the text; `side`: the only side in it, or null. */
  function pieces(words, shown, from, to, side) {
    return piecesOf(shown, from, to).map((piece) => {
      const classes = piece.tokens.flatMap((token, n) =>
        token && token.step >= 0
          ? [`${SIDES[n]}-${token.proposer}`, token.starts && token.from === piece.from ? `${SIDES[n]}-starts` : ""]
          : [],
      );
      const node = h(
        "span",
        { class: `piece ${classes.join(" ")}`, "data-from": piece.from, "data-side": side, dir: "auto" },
        ...broken(words.slice(piece.from, piece.to)),
      );
      piece.tokens.forEach(
        (token, n) => token && nodes[n].push({ node, step: token.step, from: piece.from, to: piece.to, side }),
      );
      return node;
    });
  }

  /** Shows the rails of the steps that ended until `time`, in seconds. */
  function play(time) {
    const counts = sides.map(({ steps }) => steps.filter(({ end }) => end <= time).length);
    if (String(counts) === until) return;
    until = String(counts);
    nodes.forEach((own, n) =>
      own.forEach(({ node, step }) => node.classList.toggle(`${SIDES[n]}-later`, step >= counts[n])),
    );
  }

  /** Frames the step at a place; `only`: as in `stepAt`. */
  function choose(place, only) {
    const found = stepAt(sides, place, only, shared);
    if (!found || (frame?.side === found.side && frame.step === found.step)) return;
    frame = found;
    const { side: n, step, others, from, to } = frame;
    const steps = n ? [others, [step]] : [[step], others]; // by side
    for (const piece of nodes.flat()) {
      const inside = piece.from >= from && piece.to <= to && (piece.side === null || piece.side === n);
      piece.node.classList.toggle("framed", inside);
      piece.node.classList.toggle("opens", inside && piece.from === from);
      piece.node.classList.toggle("closes", inside && piece.to === to);
    }
    tell(frame, steps);
    framed(steps);
  }

  function tell({ side, step: at, others }, steps) {
    const step = sides[side].steps[at];
    const timed = (seconds) => (seconds > 0 ? `, ${milliseconds(seconds)}` : "");
    const rest = others.map((number) => sides[1 - side].steps[number]);
    told.replaceChildren(
      "Here ",
      h("b", {}, names[side]),
      ` wrote ${countInWords(step.tokens.length, "token")} in one step${timed(step.seconds)}: `,
      ...proposersOf(step.tokens).flatMap(([who, n], place) => [
        place ? ", " : "",
        h("b", { class: who }, `${n} from ${who === "second" ? "a" : "the"} ${NAMED[who]}`),
      ]),
      ...(rest.length
        ? [
            "; ",
            h("b", {}, names[1 - side]),
            ` needed ${countInWords(rest.length, "step")}${timed(sum(rest.map(({ seconds }) => seconds)))}`,
          ]
        : []),
      ".",
    );
    about.replaceChildren(
      ...steps.map((numbers, n) => {
        if (!numbers.length) return "";
        const [first, last] = [numbers[0], numbers.at(-1)];
        const { outcome, boundary } = sides[n].steps[first];
        const parts = [
          outcome && `${OUTCOMES[outcome].mark} ${OUTCOMES[outcome].words}`,
          boundary < 0 ? "" : `${count(boundary, "token")} of the first draft accepted`,
        ];
        const single = first === last;
        const said = single ? parts.filter(Boolean).join(", ") : "";
        const name = `${names[n]}, ${single ? `step ${first + 1}` : `steps ${first + 1} to ${last + 1}`}`;
        return h(
          "span",
          {},
          h("b", {}, name),
          said && `: ${said}`,
          button("Explore →", { class: "explore", ariaLabel: `Explore → ${name}` }, () => open(n, first)),
        );
      }),
    );
  }

  return { box, show, play };
}
