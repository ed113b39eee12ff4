// What an address names: in the query of the page, or behind # in a file and in links to it. Steps, runs and stops count from 1.

import { PLACE_FIELDS } from "./constants.js";
import { number, whole } from "./dom.js";

const GAMES = ["quiz", "draft"];
const CHAPTERS = 10; // of Learn, appendices among them
const CHAPTER_OF_STOP = [1, 1, 2, 3, 3, 4, 6, 6, 9, 10, 8]; // where older links to a stop of Learn lead

/** What stands for no game; merged into an address it ends the one that is on. */
export const NO_GAME = Object.fromEntries(GAMES.map((name) => [name, ""]));

/** A whole number that an address names, digits alone; null where it names none within these bounds. */
function counted(words, least = 1, most = 1e9) {
  const value = /^\d{1,10}$/.test(words ?? "") ? Number(words) : NaN;
  return value >= least && value <= most ? value : null;
}

/** The node of a step as code names it, "bonus" or a number; null where there is none. */
export const readNode = (value) => (value === "bonus" ? "bonus" : whole(value, 0, 1e9, null));

/**
 * The fields of an address, each checked; null or empty where it does not name one.
 *
 * `words`: a query, or what stands behind #. `beat`: a number of tokens a step.
 */
export function readAddress(words) {
  const fields = new URLSearchParams(words);
  return {
    run: counted(fields.get("run")),
    step: counted(fields.get("step")),
    node: readNode(fields.get("node")),
    chapter: counted(fields.get("chapter"), 1, CHAPTERS) ?? CHAPTER_OF_STOP[counted(fields.get("stop"), 0)] ?? null,
    game: GAMES.find((name) => fields.get(name) === "1") || "",
    beat: number(fields.get("beat"), 0, 512, null),
    play: fields.get("play") === "1",
    embed: fields.get("embed") === "1",
    theme: fields.get("theme") || "",
    trace: fields.get("trace") || "",
  };
}

/** The address with other values of some fields; an empty or missing one goes. */
export function withFields(words, changes) {
  const fields = new URLSearchParams(words);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) fields.delete(name);
    else fields.set(name, value);
  }
  return fields.toString();
}

/** The query of the page that asks for what stands behind #, so that #run=2&step=10 means the same there as in a file; null where
 *  nothing known stands there. */
export function queryOfHash(hash, query) {
  const asked = new URLSearchParams(hash);
  const known = PLACE_FIELDS.filter((name) => asked.has(name));
  if (!known.length) return null;
  const over = [];
  const learn = ["chapter", "stop"];
  if (!asked.has("tab")) over.push("tab"); // of what was looked at before: a chapter is in Learn, a step in Explore
  if (["step", ...learn].some((name) => asked.has(name))) over.push(...learn);
  if (GAMES.some((name) => asked.has(name))) over.push(...GAMES, "beat"); // one game at a time
  const changes = Object.fromEntries(over.map((name) => [name, ""]));
  for (const name of known) changes[name === "theme" ? "__theme" : name] = asked.get(name);
  return withFields(query, changes);
}
