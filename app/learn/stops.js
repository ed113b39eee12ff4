// The stops of the tour through one step: what each says, its equation, and the numbers of the step, all from the recorded step.
// An equation is a list of pieces: plain words, or [kind, words] for a variable or an index.

import { sum } from "../../assets/viewer/dom.js";
import { contributions } from "../../assets/viewer/explain.js";
import { fixed, visible } from "../../assets/viewer/words.js";

const MOST_LISTED = 5;

const v = (words) => ["var", words];
const sub = (words) => ["sub", words];
const hat = (index) => [v("t̂"), sub(index)];
const token = (words) => `“${words && visible(words, Infinity)}”`;
const chance = (p) => (p > 0 && p < 0.005 ? "<0.01" : fixed(p, 2));
const duration = (seconds) => `${fixed(1000 * seconds, 1)} ms`;

// Frequent questions about each stop, with answers, by the stop's id. The last two of “verify” and “branches” after D²SD
// (arXiv 2606.04446), tables 2 and 3.
const QUESTIONS = {
  anchor: [
    [
      "Why does the first token of a text belong to no step?",
      "To read the prompt is a pass of the target already, and it ends with the target’s first token. That token is the first anchor, and the steps begin after it.",
    ],
  ],
  draft: [
    [
      "Why are γ places only γ − 1 guesses?",
      "A block is the anchor and the places after it. The anchor is known, so one place of γ is never guessed.",
    ],
  ],
  boundary: [
    [
      "Can a re-draft win if it did not start at the true boundary?",
      "Yes. A re-draft may repeat the next tokens of the first draft and differ from it later. The longest path that the target accepts wins, wherever it was drafted from.",
    ],
  ],
  branches: [
    [
      "Why a second drafter, and not the first one twice?",
      "The first one learned to guess a whole block from the anchor alone. The second one was trained with the beginning of the block given, so it makes use of it: in the paper 9.2 tokens a step on GSM8K, against 8.0 with the first one twice.",
    ],
  ],
  verify: [
    [
      "Why does a pass over a whole tree cost about as much as one token? When does it not?",
      "A large model on a GPU waits until its weights are read from memory, and some dozens of nodes are computed in that time. On a CPU, with a small model or with many texts at once, computing is what takes the time: there every node costs.",
    ],
  ],
  temperature: [
    [
      "Where is the min(1, p/q) of the textbooks?",
      "There a drawn guess is accepted with that chance, p the target’s probability and q the drafter’s. Here a drafter always offers its favourite, so q is 1 and the chance is p: the probability that the target draws the guess itself.",
    ],
  ],
};

/**
 * The stops of a step in their order: id, title, sentences `say`, `equation` and `numbers`, pairs of name and value.
 *
 * Some have more: `walk`, what `visitsOf` returns; `odds`, what `oddsOf` returns; `verified`, the pass whose cost is drawn;
 * `questions`, pairs of question and answer. `run`: number of `steps`, tokens per step `alpha`, and `plain` tokens per second
 * of plain decoding (null: not timed).
 */
export function stopsOf(step, run) {
  const stops = [
    anchorStop(step),
    draftStop(step),
    confidenceStop(step),
    boundaryStop(step),
    branchesStop(step),
    verifyStop(step),
    commitStop(step, run),
    costStop(step, run),
    temperatureStop(step),
  ];
  return stops.map((stop) => ({
    equation: [],
    numbers: [],
    walk: [],
    odds: [],
    verified: null,
    ...stop,
    questions: QUESTIONS[stop.id] || [],
  }));
}

/** The walk of the target, anchor first: the token that it chose after each node, its probability, and the child with that token,
 *  null where there is none. */
export function visitsOf({ choices, accepted }) {
  const children = [...accepted, null];
  return [...choices]
    .slice(0, children.length)
    .map(([node, { text, p }], at) => ({ node, text, probability: p, child: children[at] }));
}

/** The target's possible tokens at the rejection of the first draft, likeliest first; after the anchor if nothing was rejected. Empty
 *  if the probabilities were not recorded. `drafted`: whether a node has it. */
export function oddsOf({ boundary, accepted, choices, nodes }) {
  const at = boundary ?? 0;
  const place = [0, ...accepted][at];
  const choice = [...choices.values()][at];
  const here = place === undefined ? [] : [...nodes.values()].filter(({ parent }) => parent === place);
  if (!choice || choice.p === null || here.some(({ targetP }) => targetP === null)) return [];
  const odds = here.map(({ text, targetP }) => ({ text, probability: targetP, drafted: true }));
  if (here.every((node) => node.token !== choice.token))
    odds.push({ text: choice.text, probability: choice.p, drafted: false });
  return odds.sort((a, b) => b.probability - a.probability);
}

/** The tokens that a step would have brought with its first `most` re-drafts alone: exact, as they come best first. */
export function tokensWith({ accepted, nodes, committed }, most) {
  const later = ({ candidates }) => candidates.length > 0 && Math.min(...candidates) > most;
  const reached = accepted.findIndex((id) => later(nodes.get(id)));
  return reached < 0 ? committed.length : reached + 1;
}

function anchorStop({ anchorText, anchorPosition, draft }) {
  return {
    id: "anchor",
    title: "Start from the anchor",
    say: [
      "A language model writes one token, a word or a piece of one, per pass, and each pass of a large model is slow. So a small drafter guesses ahead, and the large model, the target, checks many guesses in one pass.",
      `Every step begins at the anchor: the last token that is certain, here ${token(anchorText)}.${draft ? " The dashed boxes after it are the places to be guessed." : ""}`,
    ],
    equation: [v("x"), sub("1"), " ", v("x"), sub("2"), " … ", v("x"), sub("n"), "    anchor = ", v("x"), sub("n")],
    numbers: [
      ["anchor", token(anchorText)],
      ["tokens before it", anchorPosition],
    ],
  };
}

function draftStop({ draft, drafted, seconds }) {
  const title = "Draft a whole block at once";
  if (!draft) return { id: "draft", title, say: ["This method drafted nothing in this step."] };
  const guessed = draft.texts.slice(0, MOST_LISTED).map(token).join(" ");
  return {
    id: "draft",
    title,
    say: [
      `The first drafter sees the text and ${drafted} empty places, and fills all of them in one pass: it does not write from left to right.`,
      "That is fast, but no place knows what was put into the others, so the guesses get worse the further they are from the anchor.",
    ],
    equation: ["( ", ...hat("1"), ", ", ...hat("2"), ", … , ", ...hat("γ−1"), ` )    γ = ${drafted + 1}`],
    numbers: [
      ["guessed", guessed + (drafted > MOST_LISTED ? " …" : "")],
      ["places", drafted],
      ["time", duration(seconds.first_draft)],
    ],
  };
}

function confidenceStop({ draft }) {
  const title = "Ask how sure it is";
  if (!draft || !draft.confidence.length)
    return { id: "confidence", title, say: ["No confidence was recorded in this step."] };
  const { confidence, texts } = draft;
  const weakest = confidence.indexOf(Math.min(...confidence));
  return {
    id: "confidence",
    title,
    say: [
      "With every token the drafter gives the probability that it puts on its own guess: its confidence. The bars under the tree show it.",
      "Whether a drafter’s confidence deserves trust is what the Calibrate tab measures.",
    ],
    equation: [v("c"), sub("k"), " = ", v("q"), sub("k"), "( ", ...hat("k"), " )"],
    numbers: [
      ...confidence.slice(0, MOST_LISTED).map((c, at) => [`c(${at + 1}) of ${token(texts[at])}`, chance(c)]),
      ["least sure", `${chance(confidence[weakest])} at place ${weakest + 1}`],
    ],
  };
}

function boundaryStop({ draft, posterior, full, boundary, selected, closed }) {
  const title = "Guess where it will break";
  if (!draft || !draft.confidence.length || !posterior.length)
    return { id: "boundary", title, say: ["This method does not estimate where its draft will be rejected."] };
  // a flag may also stand behind the whole draft, where nothing is left to break
  const example =
    selected.includes(boundary) && boundary < posterior.length ? boundary : posterior.indexOf(Math.max(...posterior));
  const factors = [...draft.confidence.slice(0, example).map(chance), `(1 − ${chance(draft.confidence[example])})`];
  const flags = selected.map((i, at) =>
    i < posterior.length
      ? [`flag ${at + 1}: break after ${i}`, chance(posterior[i])]
      : [`flag ${at + 1}: all ${i} accepted`, chance(full)],
  );
  return {
    id: "boundary",
    title,
    say: [
      "The target will accept the draft up to some place and reject the next token; everything after that is lost. To break after i tokens, the first i must be right and the next one wrong.",
      `If the confidences are right, they give a probability for every i.${flags.length ? ` The ${flags.length} likeliest get a flag.` : ""}`,
      ...(closed === null
        ? []
        : [
            "The draft ends the text, so the places behind that end get no flag, however likely they are: nothing can follow it.",
          ]),
    ],
    equation: [
      v("r"),
      "(",
      v("i"),
      ") = ",
      v("c"),
      sub("1"),
      " · … · ",
      v("c"),
      sub("i"),
      " · (1 − ",
      v("c"),
      sub("i+1"),
      ")",
    ],
    numbers: [[`r(${example}) = ${factors.join(" · ")}`, chance(posterior[example])], ...flags],
  };
}

function branchesStop(step) {
  const { branches, drafted, nodes, seconds } = step;
  const title = "Prepare alternatives";
  if (!branches.length)
    return { id: "branches", title, say: ["This method drafts no further candidates in this step."] };
  const tokens = drafted + sum(branches.map(({ prefix, texts }) => prefix + texts.length));
  const repeated = repetitions(step);
  return {
    id: "branches",
    title,
    say: [
      `A ${branches[0].drafter === "second" ? "second" : "further"} draft starts at every flag: it keeps the tokens before the flag and writes the rest of the block anew, this time knowing what stands before. All of them are drafted in one batch.`,
      "If the first draft breaks where it was expected to, a better continuation is already there.",
    ],
    equation: ["branch(", v("i"), ") = ", ...hat("1"), " … ", ...hat("i"), " + new tokens"],
    numbers: [
      ["K, re-drafts", branches.length],
      ["kept tokens", branches.map(({ prefix }) => prefix).join(", ")],
      ...(repeated.length ? [["wrote the first draft’s tokens again", repeated.join(", ")]] : []),
      ["time", duration(seconds.second_draft)],
      [`${1 + branches.length} drafts, merged into a tree`, `${tokens} tokens → ${nodes.size} nodes with the anchor`],
    ],
  };
}

/** Re-drafts that repeat tokens of the first draft: they diverge from it later than at their prefix. */
function repetitions({ branches, nodes }) {
  const trunk = [...nodes.values()].filter(({ candidates }) => candidates.includes(0));
  return branches.flatMap(({ base, drafter, prefix }, at) => {
    const shared = Math.max(
      0,
      ...trunk.filter(({ candidates }) => candidates.includes(at + 1)).map(({ depth }) => depth),
    );
    return base === 0 && drafter === "second" && shared > prefix ? [`from ${prefix}: the same up to ${shared}`] : [];
  });
}

function verifyStop(step) {
  const { accepted, boundary, branches, committed, draft, nodes, rank, sampled, seconds, verdict } = step;
  const { right } = contributions(step);
  const added = accepted.length - right;
  const numbers = [
    ["nodes in one pass, the anchor too", nodes.size],
    ["time", duration(seconds.verify)],
  ];
  if (draft) {
    numbers.push(["right in the first draft", right]);
    if (boundary !== null && boundary < draft.texts.length && boundary < committed.length)
      numbers.push(
        ["its next guess", token(draft.texts[boundary])],
        ["the target wanted", token(committed[boundary].text)],
      );
    if (["repaired", "found", "missed"].includes(verdict))
      numbers.push(["was the break expected", rank ? `yes: flag ${rank}` : "no: there was no flag"]);
    if (["repaired", "found"].includes(verdict))
      numbers.push(["was it repaired", added ? "yes" : "no: the re-draft was wrong at once"]);
  }
  if (branches.length) numbers.push(["added by re-drafts", added]);
  return {
    id: "verify",
    title: "Check everything in one pass",
    say: [
      "The target reads the whole tree in a single pass; every node sees only the nodes before it on its own branch.",
      "Then we walk from the anchor. At each node the target says which token it wants. If a child carries it, we go there and the token is accepted; if none does, the walk ends.",
    ],
    equation: [v("x"), sub("next"), ` = ${sampled ? "a sample of" : "argmax"} `, v("p"), "( · | text, path )"],
    numbers,
    walk: visitsOf(step),
  };
}

function commitStop(step, { alpha, steps }) {
  const { accepted, bonus, committed, sampled } = step;
  const { right } = contributions(step);
  return {
    id: "commit",
    title: "Keep what was right, plus one token",
    say: [
      "The accepted tokens go into the text. Where the walk ends, the target’s own token is known already: it comes for free, and is the anchor of the next step.",
      `The text ${sampled ? "is drawn exactly as the target alone would draw it" : "is exactly what the target would have written alone"}, only in fewer passes.`,
      "EAGLE-3, the kind of most published drafters, verifies in the same way but drafts differently: one token after the other, with a separate pass for each level of its tree. Race compares their times.",
    ],
    equation: [
      `new tokens = accepted + 1 = ${right} + ${accepted.length - right} + ${bonus ? 1 : 0} = ${committed.length}`,
    ],
    numbers: [
      ["written in this step", committed.map(({ text }) => token(text)).join(" ")],
      ["bonus token", bonus ? token(committed.at(-1).text) : "none: the text ends here"],
      ["tokens in this step", committed.length],
      [`tokens per step, all ${steps} steps (α)`, fixed(alpha, 2)],
    ],
  };
}

function costStop({ nodes, seconds }, { plain }) {
  const passed = nodes.size > 1 ? `${nodes.size} tokens` : "one token";
  return {
    id: "cost",
    title: nodes.size > 1 ? `Why a pass over ${nodes.size} tokens may cost as much as one` : "What a pass costs",
    say: [
      // Qwen3-8B without its embedding table, 7.57 billion weights in bfloat16; NVIDIA H100 Tensor Core GPU Datasheet: 3.35 TB/s, 989 TFLOPS
      "A pass reads all weights from memory once, however many tokens are in it: 15 GB with 8 billion weights. By its data sheet an H100 reads them in 4.5 ms and needs 0.015 ms of arithmetic for each token: at best, up to 295 tokens cost no more than one.",
      "A laptop’s processor computes so much slower that a few tokens reach its limit. Beyond it every token costs: there drafting may lose what it wins on a large card.",
    ],
    equation: [v("t"), "(", v("n"), ") = max( bytes of weights ÷ bandwidth,  ", v("n"), " · 2 · weights ÷ peak )"],
    numbers: [
      [
        `this pass over ${passed}, where it was recorded`,
        duration(seconds.verify) + (plain ? `, a plain step ${duration(1 / plain)}` : ""),
      ],
    ],
    verified: { nodes: nodes.size, seconds: seconds.verify, plain: plain ? 1 / plain : null },
  };
}

function temperatureStop(step) {
  const odds = oddsOf(step);
  const hit = sum(odds.map(({ drafted, probability }) => (drafted ? probability : 0)));
  return {
    id: "temperature",
    title: "Draw instead of taking the favourite",
    say: [
      `${step.sampled ? "At temperature 0 the target takes" : "This run took"} the target’s favourite token at every node: temperature 0. At a higher temperature it draws one, so another run writes another text.`,
      "The draw comes first, as if nothing had been drafted; only then we look whether a node carries the token that came up. So the chance of a drafted token to be accepted is the target’s own probability of it, and the text is drawn exactly as the target alone would draw it. A rejected token was not wrong: it only did not come up.",
    ],
    equation: [v("x"), " ~ ", v("p"), "( · | text, path )    accepted ⇔ ", v("x"), " was drafted"],
    numbers: [
      ...odds.map(({ text, probability, drafted }) => [
        `p of ${token(text)}, ${drafted ? "drafted" : "not drafted"}`,
        chance(probability),
      ]),
      ...(odds.length ? [["one of the drafted tokens comes up", chance(Math.min(1, hit))]] : []),
    ],
    odds,
  };
}
