// Reads and writes addresses: the query of the page, or the hash of a standalone file. Steps and runs count from 1.

import { PLACE_FIELDS } from "./constants.js";
import { number, whole } from "./dom.js";

const GAMES = ["quiz", "draft"];
const CHAPTERS = 10; // largest number of a chapter in Learn
export const PAYS = 8; // the chapter “When does it pay?”
const CHAPTER_OF_STOP = [1, 1, 2, 3, 3, 4, 6, 6, 9, 10, 8]; // chapter for the stop=N of older links to Learn, by N

/** Changes for `withFields` that remove fields. */
const without = (names) => Object.fromEntries(names.map((name) => [name, ""]));
/** Changes for `withFields` that end the current game. */
export const NO_GAME = without(GAMES);

/** Parses a field made of digits only; null if it is anything else or out of bounds. */
function readCount(words, least = 1, most = 1e9) {
  const value = /^\d{1,10}$/.test(words ?? "") ? Number(words) : NaN;
  return value >= least && value <= most ? value : null;
}

/** A node of a step: "bonus", a number, or null if `value` is neither. */
export const readNode = (value) => (value === "bonus" ? "bonus" : whole(value, 0, 1e9, null));

/**
 * Parses and checks the fields of an address. Missing or invalid fields are null or empty.
 *
 * `words`: a query, or a hash without its #. The field `beat` is a number of tokens per step.
 */
export function readAddress(words) {
  const fields = new URLSearchParams(words);
  return {
    run: readCount(fields.get("run")),
    step: readCount(fields.get("step")),
    node: readNode(fields.get("node")),
    stage: fields.get("stage") || "",
    present: fields.get("present") === "1",
    chapter: readCount(fields.get("chapter"), 1, CHAPTERS) ?? CHAPTER_OF_STOP[readCount(fields.get("stop"), 0)] ?? null,
    game: GAMES.find((name) => fields.get(name) === "1") || "",
    beat: number(fields.get("beat"), 0, 512, null),
    play: fields.get("play") === "1",
    embed: fields.get("embed") === "1",
    theme: fields.get("theme") || "",
    trace: fields.get("trace") || "",
  };
}

/** Returns the address with some fields changed; an empty, null or undefined value removes its field. */
export function withFields(words, changes) {
  const fields = new URLSearchParams(words);
  for (const [name, value] of Object.entries(changes)) {
    if ((value ?? "") === "") fields.delete(name);
    else fields.set(name, value);
  }
  return fields.toString();
}

/** Merges the hash into the query of the page, so that #run=2&step=10 works as in a standalone file. Returns null if the hash has no
 *  known field. */
export function queryOfHash(hash, query) {
  const asked = new URLSearchParams(hash);
  const named = PLACE_FIELDS.filter((name) => asked.has(name));
  if (!named.length) return null;
  const over = [];
  const learn = ["chapter", "stop", "stage"];
  if (!asked.has("tab")) over.push("tab"); // drop the open tab: a chapter opens Learn, a step Explore
  if (["step", ...learn].some((name) => asked.has(name))) over.push(...learn);
  if (GAMES.some((name) => asked.has(name))) over.push(...GAMES, "beat"); // one game at a time
  const changes = without(over);
  for (const name of named) changes[name === "theme" ? "__theme" : name] = asked.get(name);
  return withFields(query, changes);
}
