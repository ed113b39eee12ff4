// Builds elements. Text enters the page only as text nodes, so text from a model cannot become markup.

export const SVG = "http://www.w3.org/2000/svg";
const HTML = "http://www.w3.org/1999/xhtml";

const isThere = (value) => (value ?? false) !== false;

function element(namespace, [tag, ...classes], attributes, children) {
  const made = document.createElementNS(namespace, tag);
  for (let [name, value] of Object.entries({ class: classes.join(" ") || null, ...attributes })) {
    if (name.startsWith("aria")) [name, value] = [name.replace("aria", "aria-").toLowerCase(), value?.toString()];
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (isThere(value)) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(isThere));
  return made;
}

/**
 * An HTML element.
 *
 * tag: the name of the element, then its classes, as in "span.name.first"
 * attributes: values null, undefined and false are left out; a function listens to an event, as in `onclick`. ARIA attributes have the
 *   names of their properties, as in `ariaLabel`, and can be false.
 * children: nodes or text; null, undefined and false are left out
 */
export const h = (tag, attributes, ...children) => element(HTML, tag.split("."), attributes, children);

/** An SVG element, with arguments as for `h`. */
export const s = (tag, attributes, ...children) => element(SVG, tag.split("."), attributes, children);

/** A button that calls `onclick`; `label`: text, an element, or a list of these. */
export const button = (label, attributes, onclick = null) =>
  h("button", { type: "button", ...attributes, onclick }, ...[label].flat());

/** The button ✕ that closes a panel. */
export const closeButton = (label, act, title = null) =>
  button("✕", { class: "icon close", ariaLabel: label, title }, act);

/** A summary that unfolds `parts`. */
export const fold = (summary, ...parts) => h("details", {}, h("summary", {}, summary), ...parts);

/** Dispatches an event that bubbles up to the document. */
export const emit = (element, name, detail) => element.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));

/** The value, or the nearest end of the range; `low` if the range is empty. */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Sets aria-current=step on parts[at] only. */
export function markCurrent(parts, at) {
  parts.forEach((part, n) => (part.ariaCurrent = n === at ? "step" : null));
}

/** A table; `heads`: the contents of its column heads. */
export const table = (heads, rows) =>
  h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows),
  );

/** An icon for a button, 14 × 14 pixels; the origin of `path` is its centre. */
export const icon = (path) =>
  s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", ariaHidden: true, class: "drawn" }, s("path", { d: path }));

/** Converts to a number and clamps it to [low, high]; returns `fallback` if it is not finite. */
export function number(value, low, high, fallback) {
  const n = (value ?? "") === "" ? NaN : Number(value);
  return Number.isFinite(n) ? clamp(n, low, high) : fallback;
}

/** Like `number`, rounded. */
export const whole = (value, low, high, fallback) => {
  const n = number(value, low, high, fallback);
  return n === fallback ? n : Math.round(n);
};

/** The sum of the values of a list or an object. */
export const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
/** The item with the largest value of `of`, the first of equals; undefined if there are no items. */
export const best = (items, of) => [...items].sort((a, b) => of(b) - of(a))[0];
export const list = (value) => (Array.isArray(value) ? value : []);
export const text = (value) => String(value ?? "");

/** Parses JSON; null for an empty value. */
export const readJson = (value) => (value ? JSON.parse(value) : null);

/** Reads a text from local storage; null if it is missing or storage is blocked. */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Writes a text to local storage; returns whether this worked. */
export function remember(name, words) {
  try {
    localStorage.setItem(name, words);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns a function that polls `find()` and passes its first truthy result to `act`; a new call cancels the previous wait.
 *
 * After `patience` milliseconds it calls `late()` instead.
 */
export function oneWait(patience) {
  let timer = 0;
  return (find, act, late = () => {}) => {
    clearTimeout(timer);
    const began = performance.now();
    const look = () => {
      const result = find();
      if (result) act(result);
      else if (performance.now() - began < patience) timer = setTimeout(look, 40);
      else late();
    };
    look();
  };
}

/** Returns a function that schedules `draw` for the next frame; further calls before that frame do nothing. */
export function oncePerFrame(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}
