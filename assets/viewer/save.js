// Saving what the page made as a file.

import { h } from "./dom.js";

const KEPT_MS = 60000; // a browser may ask for the address only once the reader has chosen a place

/** `content`: text, bytes or a `Blob`. */
export function saveFile(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = h("a", { href: address, download: name, hidden: true });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
