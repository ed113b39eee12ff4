// Shares the shown run: as a link, as a trace, as a picture, and as files from the server.

import { withFields } from "./address.js";
import { RUN_FIELDS } from "./constants.js";
import { button, clamp, h } from "./dom.js";
import { STAGE_NAMES } from "./stages.js";

const FAILED = "That did not work in this browser.";
const RETAINED_MS = 60000; // a browser may read the URL only after the user has chosen a folder

/** Saves a file; `content`: text, bytes or a `Blob`. */
export function saveFile(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = h("a", { href: address, download: name, hidden: true });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), RETAINED_MS);
}

/** A sentence if links to this page work on this computer only, else "". */
export function localWords(hostname) {
  const local = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)$/.test(hostname);
  return local ? " It works on this computer only." : "";
}

/** Copies a link with this query; returns the message for the user. An empty query means that the link is too long. */
export async function copyLink(query, tooLong, copied = "Link copied.") {
  try {
    if (query) await navigator.clipboard.writeText(`${location.origin}${location.pathname}?${query}`);
    return query ? copied + localWords(location.hostname) : tooLong;
  } catch {
    return FAILED;
  }
}

const LONGEST_LINK = 8000;
const SVG_TYPE = "image/svg+xml";

/** A short hash of a finished run's text (FNV-1a, 32 bits); null if the run was stopped or has not ended. */
function fingerprint({ opening, committed, finished }) {
  if (!finished || finished.stop_reason === "stopped") return null;
  const words = [...opening, ...committed.flat()].map((token) => token.text).join("");
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(words)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value.toString(16).padStart(8, "0");
}

/** A sentence if the text of a finished run differs from that of the link's run, else "". `mark`: the fingerprint in the link. */
export function otherText(store, mark) {
  if (!/^[0-9a-f]{8}$/.test(mark) || [null, mark].includes(fingerprint(store))) return "";
  const { temperature } = store.header.config;
  const why = temperature
    ? `at temperature ${temperature} tokens are sampled, and a seed gives the same text only with the same versions on the same hardware`
    : "other weights, versions or hardware decide near ties differently";
  return `This text and its steps differ from those of the linked run: ${why}.`;
}

/** The page's address with the run, its settings and the selection. */
function linkTo(store, { at, node, stage }) {
  const { config, prompt, models, method } = store.header;
  const values = { ...config, prompt, model: models.preset, method };
  const run = Object.fromEntries(RUN_FIELDS.map((name) => [name, values[name]]));
  const fields = { ...run, text: fingerprint(store), step: at + 1, node, stage: STAGE_NAMES[stage] };
  return `${location.origin}${location.pathname}?${withFields("", fields)}`;
}

/** The menu Share. `server(event, data)` sends an event; null without a server. */
export function shareView(store, state, pictures, server) {
  let scene; // as drawn
  let [focused, silence] = [null, 0]; // what to focus after the next drawing; the timer that ends a message
  const said = h("span.said", { role: "status" });
  const names = { class: "share quiet", ariaHasPopup: "menu", ariaExpanded: false };
  const opener = button("Share ▾", names, () => toggle(menu.hidden));
  const item = (words, hint, act) =>
    button([h("b", {}, words), h("span", {}, hint)], { role: "menuitem" }, () => choose(act));
  const file = (kind, node) => server("export", { kind, step: state.shown, node });
  const menu = h(
    "div.menu",
    { role: "menu", hidden: true, ariaLabel: "Share" },
    server && item("Copy link", "prompt, settings, step, stage, node", () => copy()),
    server && item("Quiz", "a link that asks where drafts are rejected", () => copy("quiz=1")),
    server && item("Challenge", "a link that asks others to be the drafter of this step", () => copy("draft=1")),
    server && item("Embed", "a frame for other web pages", () => copy("embed=1")),
    item("JSONL", "the whole trace; its steps count from 0", () => lines()),
    server && item("GraphML", "this step, for networkx", () => file("graphml", null)),
    item("SVG", "this tree, as a vector image", () => saveFile(name("svg"), SVG_TYPE, pictures.svg())),
    item("PNG", "this tree, as a pixel image", () => png()),
    server && item("HTML", "a page that works offline", () => file("html", state.shownNode)),
  );
  // Safari does not focus a clicked button: the menu stays open if the focus goes nowhere.
  const outside = (target) => menu.hidden || box.contains(target) || toggle(false, false);
  const box = h(
    "div.sharing",
    { onkeydown: press, onfocusout: ({ relatedTarget }) => relatedTarget && outside(relatedTarget) },
    said,
    opener,
    menu,
  );
  document.addEventListener("pointerdown", ({ target }) => outside(target), true);

  function press(event) {
    const rows = [...menu.children];
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (menu.hidden || (!by && event.key !== "Escape")) return;
    if (by) rows[(rows.indexOf(document.activeElement) + by + rows.length) % rows.length].focus();
    else toggle(false);
    event.preventDefault();
    event.stopPropagation();
  }

  function toggle(open, focus = true) {
    focused = focus && (open ? menu.firstChild : opener);
    state.set({ menu: open });
  }

  function show(now) {
    scene = now;
    menu.hidden = !scene.menu;
    opener.ariaExpanded = scene.menu;
    if (focused) focused.focus();
    focused = null;
  }

  async function choose(act) {
    toggle(false);
    if (!store.length) return say("There is no run to share yet.");
    try {
      await act();
    } catch {
      say(FAILED);
    }
  }

  function say(words) {
    said.textContent = words;
    clearTimeout(silence);
    silence = setTimeout(() => (said.textContent = ""), 6000);
  }

  /** A file name from method, model and prompt; other characters than a-z, 0-9 and _ are left out. */
  function name(ending, step = true) {
    const { method, models } = store.header;
    const short = (part) =>
      part
        .toLowerCase()
        .match(/[a-z0-9_]+/g)
        ?.slice(0, 4)
        .join("-")
        .slice(0, 32);
    const parts = [method || "run", models.preset ?? "", store.prompt].map(short).filter(Boolean);
    return `${parts.join("-")}${step ? `-step-${state.shown + 1}` : ""}.${ending}`;
  }

  async function copy(more = "") {
    const address = linkTo(store, scene) + (more ? `&${more}` : "");
    const link =
      more === "embed=1"
        ? `<iframe src="${address.replace(/&/g, "&amp;")}" width="100%" height="560" loading="lazy" title="D²SD Explorer"></iframe>`
        : address;
    if (address.length > LONGEST_LINK) return say("The prompt is too long for a link: share the JSONL file.");
    try {
      await navigator.clipboard.writeText(link);
      say(`Link copied.${localWords(location.hostname)}`);
    } catch {
      const field = h("input", { type: "text", readonly: true, value: link, ariaLabel: "The link" });
      say("Copy it from here: ");
      clearTimeout(silence);
      said.append(field);
      field.select();
    }
  }

  function lines() {
    saveFile(name("jsonl", false), "application/jsonl", new Blob(store.lines.map((line) => line + "\n")));
  }

  async function png() {
    const file = name("png"); // now: another step may be shown when the picture is ready
    const { width, height } = pictures.size();
    const address = URL.createObjectURL(new Blob([pictures.svg()], { type: SVG_TYPE }));
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      const dense = clamp(16000 / Math.max(width, height), 1, 3);
      const canvas = h("canvas", { width: Math.round(width * dense), height: Math.round(height * dense) });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      saveFile(file, "image/png", await new Promise((done) => canvas.toBlob(done, "image/png")));
    } finally {
      URL.revokeObjectURL(address);
    }
  }

  return { box, show, copy, pictures };
}
