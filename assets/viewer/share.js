// Shares the shown run: as a link, as a trace, as a picture, and as files from the server.

import { withFields } from "./address.js";
import { RUN_FIELDS } from "./constants.js";
import { button, clamp, h, text } from "./dom.js";

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
    return "That did not work in this browser.";
  }
}

const LONGEST_LINK = 8000;

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
function linkTo(store, { shown, shownNode }) {
  const { config, prompt, models, method } = store.header;
  const fields = { ...config, prompt, model: models?.preset, method };
  return `${location.origin}${location.pathname}?${withFields("", { ...Object.fromEntries(RUN_FIELDS.map((name) => [name, fields[name]])), text: fingerprint(store), step: shown + 1, node: shownNode })}`;
}

export class ShareView {
  /** `server(event, data)` sends an event; null without a server. */
  constructor(store, state, pictures, server) {
    Object.assign(this, { store, state, pictures });
    this.said = h("span.said", { role: "status" });
    this.button = button("Share ▾", { class: "share quiet", "aria-haspopup": "menu", "aria-expanded": "false" }, () =>
      this.toggle(this.menu.hidden),
    );
    const item = (words, hint, act) =>
      button([h("b", {}, words), h("span", {}, hint)], { role: "menuitem" }, () => this.choose(act));
    const file = (kind, node) => server("export", { kind, step: state.shown, node });
    this.menu = h(
      "div.menu",
      { role: "menu", hidden: true, "aria-label": "Share" },
      server && item("Copy link", "prompt, settings, step, node", () => this.copy()),
      server && item("Quiz", "a link that asks where drafts are rejected", () => this.copy("quiz=1")),
      server && item("Challenge", "a link that asks others to be the drafter of this step", () => this.copy("draft=1")),
      server && item("Embed", "a frame for other web pages", () => this.copy("embed=1")),
      item("JSONL", "the whole trace; its steps count from 0", () => this.lines()),
      server && item("GraphML", "this step, for networkx", () => file("graphml", null)),
      item("SVG", "this tree, as a vector image", () => saveFile(this.name("svg"), "image/svg+xml", pictures.svg())),
      item("PNG", "this tree, as a pixel image", () => this.png()),
      server && item("HTML", "a page that works offline", () => file("html", state.shownNode)),
    );
    this.box = h("div.sharing", {}, this.said, this.button, this.menu);
    this.listen();
  }

  listen() {
    this.box.addEventListener("keydown", (event) => {
      const rows = [...this.menu.children];
      const at = rows.indexOf(document.activeElement);
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape" && !this.menu.hidden) this.toggle(false);
      else if (by && !this.menu.hidden) rows[(at + by + rows.length) % rows.length].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    // Safari does not focus a clicked button: the menu stays open if the focus goes nowhere.
    const outside = (target) => this.menu.hidden || this.box.contains(target) || this.toggle(false, false);
    this.box.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && outside(relatedTarget));
    document.addEventListener("pointerdown", ({ target }) => outside(target), true);
  }

  toggle(open, focus = true) {
    this.focus = focus && (open ? this.menu.firstChild : this.button);
    this.state.set({ menu: open });
  }

  show({ menu }) {
    this.menu.hidden = !menu;
    this.button.ariaExpanded = menu;
    if (this.focus) this.focus.focus();
    this.focus = null;
  }

  async choose(act) {
    this.toggle(false);
    if (!this.store.length) return this.say("There is no run to share yet.");
    try {
      await act();
    } catch {
      this.say("That did not work in this browser.");
    }
  }

  say(words) {
    this.said.textContent = words;
    clearTimeout(this.silence);
    this.silence = setTimeout(() => (this.said.textContent = ""), 6000);
  }

  /** A file name from method, model and prompt; other characters than a-z, 0-9 and _ are left out. */
  name(ending, step = true) {
    const { method, models } = this.store.header;
    const words = [method || "run", models.preset, this.store.prompt]
      .map((part) =>
        text(part)
          .toLowerCase()
          .match(/[a-z0-9_]+/g)
          ?.slice(0, 4)
          .join("-")
          .slice(0, 32),
      )
      .filter(Boolean);
    return `${words.join("-")}${step ? `-step-${this.state.shown + 1}` : ""}.${ending}`;
  }

  async copy(more = "") {
    const address = linkTo(this.store, this.state) + (more ? `&${more}` : "");
    const link =
      more === "embed=1"
        ? `<iframe src="${address.replace(/&/g, "&amp;")}" width="100%" height="560" loading="lazy" title="D²SD Explorer"></iframe>`
        : address;
    if (address.length > LONGEST_LINK) return this.say("The prompt is too long for a link: share the JSONL file.");
    try {
      await navigator.clipboard.writeText(link);
      this.say(`Link copied.${localWords(location.hostname)}`);
    } catch {
      const field = h("input", { type: "text", readonly: true, value: link, "aria-label": "The link" });
      this.say("Copy it from here: ");
      clearTimeout(this.silence);
      this.said.append(field);
      field.select();
    }
  }

  lines() {
    saveFile(this.name("jsonl", false), "application/jsonl", new Blob(this.store.lines.map((line) => line + "\n")));
  }

  async png() {
    const name = this.name("png"); // now: another step may be shown when the picture is ready
    const { width, height } = this.pictures.size();
    const address = URL.createObjectURL(new Blob([this.pictures.svg()], { type: "image/svg+xml" }));
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      const dense = clamp(16000 / Math.max(width, height), 1, 3);
      const canvas = h("canvas", { width: Math.round(width * dense), height: Math.round(height * dense) });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
      saveFile(name, "image/png", blob);
    } finally {
      URL.revokeObjectURL(address);
    }
  }
}
