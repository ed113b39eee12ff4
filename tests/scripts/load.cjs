// Scripts of the page in one function scope, as the page has them, and the named things out of it.
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

const ROOT = join(__dirname, "..", "..");
const FOLDERS = { viewer: "assets/viewer", race: "app/static/race", calibrate: "app/static/calibrate", learn: "app/static/learn", runs: "app/static/runs" };

/** `files`: "folder/name" without ".js"; `names`: what is wanted; `given`: what the browser would have. */
function load(files, names, given = {}) {
  const sources = files.map((file) => {
    const [folder, ...rest] = file.split("/");
    return readFileSync(join(ROOT, FOLDERS[folder], rest.join("/") + ".js"), "utf8");
  });
  const body = `"use strict";\n${sources.join("\n")}\nreturn { ${names.join(", ")} };`;
  return new Function(...Object.keys(given), body)(...Object.values(given));
}

module.exports = { load };
