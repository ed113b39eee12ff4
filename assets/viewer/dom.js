// Building elements. Text enters the page as text nodes only, so nothing that a model writes can become markup.

export const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined)
      node.append(child.nodeType ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element; children are nodes or text. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element; children are nodes or text. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A button that does `act`, if one is given; `label`: words or a drawing. */
export function button(label, attributes, act = null) {
  const made = h("button", { type: "button", ...attributes }, label);
  if (act) made.addEventListener("click", act);
  return made;
}

/** Marks one of the parts of a way as where one is. */
export function markCurrent(parts, at) {
  parts.forEach((part, n) => {
    if (n === at) part.setAttribute("aria-current", "step");
    else part.removeAttribute("aria-current");
  });
}

/** A drawing on a button: a path around the middle of 14 × 14 pixels. */
export const icon = (path) =>
  s(
    "svg",
    { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true", class: "drawn" },
    s("path", { d: path }),
  );

/** A number that is safe to draw with: finite and within bounds, else the fallback. */
export function number(value, low, high, fallback) {
  const n = value === null || value === undefined || value === "" ? NaN : Number(value);
  return Number.isFinite(n) ? Math.min(high, Math.max(low, n)) : fallback;
}

/** The same as a whole number. */
export const whole = (value, low, high, fallback) => {
  const n = number(value, low, high, fallback);
  return n === fallback ? n : Math.round(n);
};

export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const list = (value) => (Array.isArray(value) ? value : []);
export const text = (value) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);

/** A value of the page, JSON of an object, as that object; null where there is none. */
export const readJson = (value) => (value ? JSON.parse(value) : null);

/** What this browser remembers under a name; null where there is nothing, or where it keeps nothing. */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Lets this browser remember a text under a name; returns whether it does. */
export function remember(name, words) {
  try {
    localStorage.setItem(name, words);
    return true;
  } catch {
    return false;
  }
}

/** A function that waits for one thing at a time: `find()` is tried until it returns something, which `act` gets; after `patience`
 *  milliseconds `late()` is called instead. A new call ends the wait of the one before. */
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

/** Calls `draw` at most once a frame, however often it is asked for. */
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
