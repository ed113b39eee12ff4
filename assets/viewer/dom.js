// Building elements. Text enters the page as text nodes only, so nothing that a model writes can become markup.

export const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child.nodeType ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element; children are nodes or text. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element; children are nodes or text. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A number that is safe to draw with: finite and within bounds, else the fallback. */
export function number(value, low, high, fallback) {
  const n = value === null || value === undefined || value === "" ? NaN : Number(value);
  return Number.isFinite(n) ? Math.min(high, Math.max(low, n)) : fallback;
}

export const whole = (value, low, high, fallback) => {
  const n = number(value, low, high, fallback);
  return n === fallback ? n : Math.round(n);
};

export const list = (value) => (Array.isArray(value) ? value : []);
export const text = (value) => (typeof value === "string" ? value : value === null || value === undefined ? "" : String(value));

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
