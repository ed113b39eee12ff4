// The chapters of Learn about a recorded step. Each chapter plays some stages of the drawing and has a few sentences and foldable details.
// An equation is a list of pieces: plain text, or [kind, text] for a variable or an index.

import { sum } from "../../assets/viewer/dom.js";
import { boundaryWords, contributions, stepStory } from "../../assets/viewer/explain.js";
import { MEASURED } from "../../assets/viewer/constants.js";
import { passCost } from "../../assets/viewer/machine.js";
import { clockOf, cycleOf, machineOf, timesWords } from "../../assets/viewer/numbers.js";
import { PAYS_ASKED, PAYS_FORMULA, PAYS_RULE } from "../../assets/viewer/pays.js";
import { ALONE, batchWords, stageWords, stagesOf } from "../../assets/viewer/stages.js";
import {
  capital,
  count,
  countInWords,
  fixed,
  inWords,
  milliseconds,
  passes,
  plain,
  quoted,
  took,
} from "../../assets/viewer/words.js";

const MOST_LISTED = 5;
const RESTS = -0.2; // time at which the large model has written the tokens one by one, see stages.js

const v = (words) => ["var", words];
const sub = (words) => ["sub", words];
const hat = (index) => [v("t̂"), sub(index)];
const chance = (p) => (p > 0 && p < 0.005 ? "<0.01" : fixed(p, 2));
/** A quoted token without its leading space. */
const word = (words) => quoted(words.replace(/^ (?=\S)/, ""));

/**
 * The chapters that apply to a step, in order.
 *
 * A chapter has an `id` (its number), a `name`, a `title` and sentences (`say`). It plays the stages `from` … `to` of the step. Its
 * foldable details are a `formula`, `numbers` (pairs of name and value) and `asked` (pairs of question and answer).
 *
 * store: store of the run
 */
export function chaptersOf(step, store) {
  const stages = stagesOf(step);
  const has = (stage) => stages.includes(stage);
  /** The time of a stage, in parentheses; "" if unknown. */
  const time = (name) => (step.seconds[name] ? ` (${took(step, step.seconds[name])})` : "");
  const told = [
    oneByOne(step, store),
    has(0) && guessAhead(step, time("first_draft")),
    has(1) && doubt(step),
    has(2) && prepare(step, time("second_draft")),
    has(3) && merge(step),
    onePass(step, time("verify")),
    whatItBuys(step, store),
    whenItPays(step, store),
  ].filter(Boolean);
  const span = ({ plays }) =>
    plays
      ? { from: stages.indexOf(plays[0]), to: stages.indexOf(plays[1]) + 1 }
      : { from: stages.length, to: stages.length };
  return told.map((chapter) => ({ formula: [], numbers: [], asked: [], ...span(chapter), ...chapter }));
}

function oneByOne({ committed, anchorText }, store) {
  const { baseline } = store;
  const n = committed.length;
  const all = countInWords(n, "pass");
  const each = baseline
    ? `On ${machineOf(store).name}, one pass took ${milliseconds(1 / baseline)}${n > 1 ? `, so ${all} take ${milliseconds(n / baseline)}` : ""}.`
    : "Each pass reads the whole model from memory, only to write a single token.";
  return {
    id: 1,
    name: "One by one",
    title: "One word at a time",
    say: [
      "A large language model writes one token (a word or a piece of a word) each time it runs. One such run is a pass.",
      `After ${word(anchorText)} it writes ${n > 1 ? `these ${inWords(n)} tokens` : "this token"} in ${all}${n > 1 ? ", one after the other" : ""}.`,
      each,
    ],
    from: ALONE,
    to: RESTS,
    asked: [
      [
        `Why does the step start at ${word(anchorText)}?`,
        "This token is the anchor of the step: the last token that is certain so far. The first anchor of a run comes from the pass over the prompt.",
      ],
    ],
  };
}

function guessAhead(step, time) {
  const { draft, drafted, levels, passes: run } = step;
  const inTurn = run >= drafted && drafted > 1;
  const how = levels.length
    ? `a tree of tokens, level by level, in ${countInWords(levels.length, "draft pass")}`
    : `${countInWords(drafted, "token")} ${inTurn ? "one after the other" : "at once"}`;
  const blind = levels.length || inTurn ? "" : ", because it makes each guess without knowing the others";
  const guessed = draft ? draft.texts.slice(0, MOST_LISTED).map(word).join(" ") : "";
  return {
    id: 2,
    name: "Guess ahead",
    title: "The drafter guesses ahead",
    say: [
      `The drafter, a small network, guesses ${how}${time}.`,
      `Its guesses are often wrong${blind}.`,
      "The large model decides. The draft breaks at the first token that the large model would not have written; this token and all later ones are lost.",
    ],
    plays: [0, 0],
    formula:
      draft && !inTurn
        ? ["( ", ...hat("1"), ", ", ...hat("2"), ", … , ", ...hat("γ−1"), ` ),  γ = ${drafted + 1}`]
        : [],
    numbers: draft ? [["guessed", guessed + (drafted > MOST_LISTED ? " …" : "")]] : [],
    asked:
      draft && !inTurn
        ? [
            [
              `Why is a block of ${drafted + 1} only ${drafted} guesses?`,
              "A block has γ positions. The first position holds the anchor, which is already known.",
            ],
          ]
        : [],
  };
}

function doubt(step) {
  const { draft, drafted, posterior, full, boundary, selected, closed, random } = step;
  const example =
    selected.includes(boundary) && boundary < posterior.length ? boundary : posterior.indexOf(Math.max(...posterior));
  const factors = [...draft.confidence.slice(0, example).map(chance), `(1 − ${chance(draft.confidence[example])})`];
  const triangles = selected.map((i, at) =>
    i < drafted
      ? [`triangle ${at + 1}: breaks after ${i}`, chance(posterior[i])]
      : [`triangle ${at + 1}: all accepted`, chance(full)],
  );
  return {
    id: 3,
    name: "Doubt",
    title: "Where will the draft break?",
    say: [
      "The bars show how sure the drafter is of each token of its draft.",
      random
        ? `This method does not use the drafter’s confidence. It draws places at random: ${stageWords(step, 1).more.replace(/^.*?: /, "")}`
        : `The draft breaks at a place if all tokens before the place are accepted and the next token is rejected. Expected: ${stageWords(step, 1).more}`,
      `The place where the draft really breaks is the boundary. It is not known yet, so the triangles mark ${random ? inWords(selected.length) : `the ${selected.length > 1 ? `${inWords(selected.length)} ` : ""}likeliest`} place${selected.length > 1 ? "s" : ""}.`,
    ],
    plays: [1, 1],
    formula: random
      ? []
      : [
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
    numbers: random ? [] : [[`r(${example}) = ${factors.join(" · ")}`, chance(posterior[example])], ...triangles],
    asked: [
      [
        "Can the drafter’s confidence be trusted?",
        "The Calibrate tab measures this: of the tokens with a confidence of 80%, are 80% accepted?",
      ],
      ...(closed === null
        ? []
        : [
            [
              "Why are there no triangles in the shaded part?",
              "The draft ends the text before the shaded part. No token can follow the end of the text, so no second draft starts there, even at a likely place.",
            ],
          ]),
    ],
  };
}

function prepare(step, time) {
  const { branches } = step;
  const resampled = branches.every((branch) => branch.resampled);
  const repeated = repetitions(step);
  return {
    id: 4,
    name: "Prepare",
    title: "Prepare for the break",
    say: resampled
      ? [
          `${capital(inWords(branches.length))} more drafts are drawn from the same draft pass${time}.`,
          "Each of these drafts is another possible continuation of the text.",
          "All drafts start at the anchor, because this method does not predict where the first draft will break.",
        ]
      : [
          `${[stageWords(step, 2).title.slice(0, -1), batchWords(step)].filter(Boolean).join(" ")}${time}.`,
          "It repeats the pale tokens of the first draft and guesses the rest again. This time it knows the tokens before its own.",
          "If the first draft breaks at one of these places, a better continuation may be ready.",
        ],
    plays: [2, 2],
    formula: resampled ? [] : ["draft(", v("i"), ") = ", ...hat("1"), " … ", ...hat("i"), " + new tokens"],
    numbers: [
      ["K, re-drafts", branches.length],
      ["each starts after token", branches.map(({ prefix }) => prefix).join(", ")],
      ...(repeated.length ? [["repeat the first draft", repeated.join(", ")]] : []),
    ],
    asked: [
      [
        // D²SD (arXiv 2606.04446), tables 2 and 3
        "Why a second drafter?",
        "The first drafter learned to guess a whole block from the anchor alone. The second drafter learned to continue a block whose beginning is given. On GSM8K, the paper reports 9.2 tokens per step with two drafters, and 8.0 if the first drafter writes all drafts.",
      ],
      [
        "Can a second draft help if it did not start at the boundary?",
        "Yes. It may repeat tokens of the first draft up to the boundary and differ only after the boundary. Of all paths through the drafts, the longest accepted one is taken.",
      ],
    ],
  };
}

/** Re-drafts that repeat tokens of the first draft after their prefix. */
function repetitions({ branches, nodes }) {
  const trunk = [...nodes.values()].filter(({ candidates }) => candidates.includes(0));
  return branches.flatMap(({ base, drafter, prefix }, at) => {
    const shared = Math.max(
      0,
      ...trunk.filter(({ candidates }) => candidates.includes(at + 1)).map(({ depth }) => depth),
    );
    return base === 0 && drafter === "second" && shared > prefix ? [`after ${prefix}: same up to token ${shared}`] : [];
  });
}

function merge(step) {
  const { branches, drafted, nodes } = step;
  const all = drafted + sum(branches.map(({ prefix, texts }) => prefix + texts.length));
  return {
    id: 5,
    name: "Merge",
    title: "Many drafts, one tree",
    say: [
      `The ${inWords(branches.length + 1)} drafts begin with tokens that they share. A shared token needs to be read only once.`,
      `So the drafts are merged: ${word(step.anchorText)} and ${count(all, "token")} become a tree of ${step.whole ?? nodes.size} nodes.`,
      `Every path through the tree is a possible continuation of the text.${step.whole ? ` Only the ${nodes.size} likeliest nodes go on, because every node takes time on a CPU.` : ""}`,
    ],
    plays: [3, 3],
    asked: [
      [
        "How can one pass read a tree?",
        "Every node sees only the text and the nodes before it on its own path; a mask hides all other nodes. Nodes of the same depth have the same position in the text.",
      ],
    ],
  };
}

function onePass(step, time) {
  const { accepted, bonus, committed, nodes, sampled } = step;
  const { right } = contributions(step);
  const tree = nodes.size > 1;
  const [broke] = step.boundary === null ? [""] : boundaryWords(step).split(":");
  const story = plain(stepStory(step).pieces);
  const written =
    /^\d/.test(story) && committed.length > 1 ? `That makes ${inWords(committed.length)} tokens: ${story}` : story;
  return {
    id: 6,
    name: "One pass",
    title: "The large model reads it in one pass",
    say: [
      tree
        ? `The large model reads ${step.whole ? "these" : "all"} ${nodes.size} tokens in one pass${time}. That is possible because the tokens are already known: it only has to check them.`
        : stageWords(step, 4).title,
      ...(tree
        ? [
            `For each of these tokens it ${sampled ? "draws" : "computes"} the token that comes next. Starting at ${word(step.anchorText)}, we follow the ${sampled ? "drawn" : "computed"} tokens as long as they are in the tree.`,
          ]
        : []),
      `${broke}${broke && !broke.endsWith(".") ? "." : ""} ${written}`.trim(),
    ],
    plays: [4, 5],
    formula: [v("x"), sub("next"), ` = ${sampled ? "a sample of" : "argmax"} `, v("p"), "( · | text, path )"],
    numbers: [
      [
        "first draft + other drafts + bonus",
        `${right} + ${accepted.length - right} + ${bonus ? 1 : 0} = ${committed.length}`,
      ],
    ],
    asked: [
      [
        "Where does the last token come from?",
        "At the end of the accepted path, the pass has already computed the token that comes next. This token costs nothing extra and becomes the anchor of the next step.",
      ],
      [
        "Do all drafters work like this?",
        "No. Most published drafters are of the EAGLE-3 kind. Their drafts are verified in the same way, but EAGLE-3 drafts one token after the other, with one draft pass for each level of its tree. The Race tab compares the times.",
      ],
    ],
  };
}

function whatItBuys(step, store) {
  const clock = clockOf(store, step);
  const cycle = cycleOf(store);
  const { length, sums } = store;
  const n = step.committed.length;
  const alpha = sums.tokens / length;
  const paid = cycle && !cycle.disturbed ? `: ${timesWords(cycle.gain)}` : "";
  return {
    id: 7,
    name: "What it buys",
    title: stepStory(step).title.slice(0, -1),
    say: [
      `The text is the same as without drafts: only tokens that the large model itself ${step.sampled ? "draws" : "would write"} are accepted.`,
      clock
        ? `The whole step took ${milliseconds(clock.own)}. Writing its ${count(n, "token")} one by one takes ${milliseconds(clock.plain)}.`
        : "For this run, the time of writing tokens one by one was not measured.",
      `On average over the run, a step writes ${fixed(alpha, 1)} tokens${cycle ? ` and takes as long as ${passes(cycle.cost)}${paid}` : ""}.`,
      "Drafting helps most on a GPU, where a pass over many tokens takes only a little longer than a one-token pass.",
    ],
  };
}

function whenItPays(step, store) {
  const nodes = step.nodes.size;
  const clock = clockOf(store, step);
  const tokens = count(nodes, "token");
  const { device } = store.header.hardware ?? {};
  const where = device === "cpu" ? "A laptop’s processor is soon busy with arithmetic" : "On the machine of this run";
  return {
    id: 8,
    name: "When it pays",
    title: "When does it pay?",
    say: [
      `A pass reads all weights from memory once, for one token or for many. On a large GPU the reading takes almost all the time: ${tokens} cost ${passes(passCost(MEASURED, nodes))}.`,
      ...(clock ? [`${where}: in this step, ${tokens} cost ${passes(clock.pass)}.`] : []),
      PAYS_RULE,
    ],
    formula: PAYS_FORMULA,
    asked: PAYS_ASKED,
  };
}
