// The story of one step in six frames: what each says, with the numbers of the recorded run.

import { cycleWords } from "../../../assets/viewer/cost.js";
import { count, fixed, joined, milliseconds, quoted } from "../../../assets/viewer/words.js";
import { canTell, winnerOf } from "./cells.js";

const tokens = (n) => count(n, "token");
const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
const ordinal = (n) => ORDINALS[n - 1] || `${n}th`;

/**
 * The frames of a step; none where it cannot be told.
 *
 * `run`: `steps` of the run, `plain` tokens per second of plain decoding (null: not timed), `cycle`: what `cycleOf` returns.
 */
export function framesOf(step, run) {
  if (!canTell(step)) return [];
  return [plainFrame(step, run), draftFrame(step, run), rejectionFrame(step), redraftFrame(step), treeFrame(step), costFrame(step, run)].filter(Boolean);
}

function plainFrame({ committed, anchorText }, { plain }) {
  const n = committed.length;
  return {
    id: "plain",
    title: "One token in each pass",
    say: [
      `A language model writes one token, a word or a piece of one, in each pass. These ${tokens(n)} after ${quoted(anchorText)} take ${n === 1 ? "one pass" : `${n} passes, one after the other`}.`,
      plain ? `Where this run was recorded, plain decoding wrote a token in ${milliseconds(1 / plain)}: ${milliseconds(n / plain)} for them all.` : "",
    ],
  };
}

function draftFrame({ drafted, seconds }, { plain }) {
  const took = seconds.first_draft ? `It took ${milliseconds(seconds.first_draft)}${plain ? `; one pass of plain decoding takes ${milliseconds(1 / plain)}` : ""}.` : "";
  return { id: "draft", title: "A small model drafts ahead", say: [`A drafter, a much smaller network, guesses ${tokens(drafted)} at once. ${took}`.trim(), "A guess may be wrong. The large model, the target, has the last word."] };
}

function rejectionFrame({ boundary, drafted, draft, committed }) {
  if (boundary >= drafted) return { id: "rejection", title: "The target accepts the whole draft", say: [`The target checks all ${tokens(drafted)} in one pass, and they are what it would have written. Where it rejects one, all that follow are lost.`] };
  const wanted = committed[boundary];
  const wrote = quoted(draft.texts[boundary]);
  const said = wanted ? `The drafter wrote ${wrote}, the target wants ${quoted(wanted.text)}` : `It rejects ${wrote}`;
  return {
    id: "rejection",
    title: `The target rejects the ${ordinal(boundary + 1)} token`,
    say: [
      `The target checks all guesses in one pass and accepts them up to the first one that it would not have written. ${said}: ${boundary ? `${tokens(boundary)} accepted` : "nothing is accepted"}, and the ${tokens(drafted - boundary)} from there on are lost.`,
      wanted ? `With the target’s own token this draft alone would bring ${tokens(boundary + 1)}.` : "",
    ],
  };
}

function redraftFrame({ branches, seconds, selected, boundary, drafted, rank, gained, random }) {
  if (!branches.length) return null;
  const second = branches.some(({ drafter }) => drafter === "second");
  const places = joined(branches.map(({ prefix }) => String(prefix)));
  const why = random ? "the places are drawn at random" : selected.length ? "the drafter’s own confidences tell where that is likely" : "there is more than one way to go on";
  const came = { hit: gained ? `One of them starts just where the draft is rejected. The re-drafts add ${tokens(gained)} that the target accepts.` : "One of them starts just where the draft is rejected, and is wrong at once.", miss: gained ? `They add ${tokens(gained)} that the target accepts.` : "None of them has what the target wants: this step is lost to the rejection." };
  return {
    id: "redraft",
    title: "Draft again from there, before it happens",
    say: [
      `Where the rejection comes is not known while one drafts, but ${why}. So ${second ? "a second drafter" : "a drafter"} goes on anew after ${places} of its tokens${branches.length > 1 ? `: ${branches.length} re-drafts in one batch` : ""}${seconds.second_draft ? `, in ${milliseconds(seconds.second_draft)}` : ""}.`,
      boundary >= drafted ? "This time the draft was right as a whole, and they were not needed." : rank ? came.hit : came.miss,
    ],
  };
}

function treeFrame(step) {
  const { nodes, branches, accepted, bonus, seconds, drafted } = step;
  const all = drafted + branches.reduce((sum, { prefix, texts }) => sum + prefix + texts.length, 0);
  const merged = branches.length ? `The ${branches.length + 1} drafts share their beginnings. Merged, their ${tokens(all)} are a tree of ${count(nodes.size, "node")}, the anchor included.` : `The draft is a chain of ${count(nodes.size, "node")}, the anchor included.`;
  const won = winnerOf(step);
  const end = bonus ? ` Its own next token, ${quoted(bonus.text)}, comes for free: ${tokens(accepted.length + 1)} in this step.` : " The text ends there.";
  return {
    id: "tree",
    title: "One tree, one pass",
    say: [merged, `The target verifies ${branches.length ? "the tree" : "it"} in one pass${seconds.verify ? `, in ${milliseconds(seconds.verify)},` : ""} and accepts ${accepted.length ? `${tokens(accepted.length)} along one path${won ? `, which ends in the re-draft from ${branches[won - 1].prefix}` : ""}` : "nothing"}.${end}`],
  };
}

function costFrame(_, { steps, alpha, cycle }) {
  return {
    id: "cost",
    title: cycle ? `${fixed(alpha, 1)} tokens for the price of ${fixed(cycle.cost, 1)}` : "What it costs",
    say: [
      `Over all ${count(steps, "step")} of this run, a step brings α = ${fixed(alpha, 2)} tokens. It also costs more than a step of plain decoding: drafts, re-drafts, and a pass over a whole tree.`,
      cycle ? cycleWords(cycle) : "Plain decoding was not timed with this run, so its speedup here is not known.",
    ],
  };
}
