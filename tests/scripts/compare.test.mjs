// Compare: the sentences below the headline.
import assert from "node:assert/strict";
import { test } from "node:test";
import { unstated } from "../../app/compare/main.js";

test("sentences whose figures are in the headline are left out", () => {
  const headline = [
    "B commits more.",
    "Tokens per step α: 4.58 → 7.86, difference +3.27. Tokens per second: 344 → 272.",
  ];
  const reading = [
    "What differs: method (DFlash → D²SD).",
    "Tokens per step α: 4.58 → 7.86, B is higher: +3.27.",
    "Tokens per second: 344 → 272, B is lower: −72.",
    "Nodes per step: 16.0 → 51.1, B is higher: +35.1.",
  ];
  assert.deepEqual(unstated(headline, reading), [reading[0], reading[3]]);
  const few = ["Too few steps for a comparison.", "An interval needs at least four prompts or blocks of text."];
  const sentence = "Too few steps for a comparison: an interval needs at least four prompts or blocks of text.";
  assert.deepEqual(unstated(few, [reading[0], sentence]), [reading[0]]);
});
