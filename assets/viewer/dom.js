// Builds elements. Text enters the page only as text nodes, so text from a model cannot become markup.

export const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false)
      node.append(child.nodeType ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element; children are nodes or text; null, undefined and false are left out. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element; children are nodes or text. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A button that calls `act` when clicked; `label`: text, an element, or a list of these. */
export function button(label, attributes, act = null) {
  const made = h("button", { type: "button", ...attributes }, ...[label].flat());
  if (act) made.addEventListener("click", act);
  return made;
}

/** The button ✕ that closes a panel. */
export const closeButton = (label, act, title = null) =>
  button("✕", { class: "icon close", "aria-label": label, title }, act);

/** A summary that unfolds `parts`. */
export const fold = (summary, ...parts) => h("details", {}, h("summary", {}, summary), ...parts);

/** Dispatches an event that bubbles up to the document. */
export const emit = (element, name, detail) => element.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));

/** The value, or the nearest end of the range; `low` if the range is empty. */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Sets aria-current=step on parts[at] only. */
export function markCurrent(parts, at) {
  parts.forEach((part, n) => {
    if (n === at) part.setAttribute("aria-current", "step");
    else part.removeAttribute("aria-current");
  });
}

/** An icon for a button, 14 × 14 pixels; the origin of `path` is its centre. */
export const icon = (path) =>
  s(
    "svg",
    { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true", class: "drawn" },
    s("path", { d: path }),
  );

/** Converts to a number and clamps it to [low, high]; returns `fallback` if it is not finite. */
export function number(value, low, high, fallback) {
  const n = value === null || value === undefined || value === "" ? NaN : Number(value);
  return Number.isFinite(n) ? clamp(n, low, high) : fallback;
}

/** Like `number`, rounded. */
export const whole = (value, low, high, fallback) => {
  const n = number(value, low, high, fallback);
  return n === fallback ? n : Math.round(n);
};

/** The sum of the values of a list or an object. */
export const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
export const list = (value) => (Array.isArray(value) ? value : []);
export const text = (value) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);

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
      const found = find();
      if (found) act(found);
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
