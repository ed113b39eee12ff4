// What shapes, lines and colours mean, in the drawing and under the bars of the timeline.

function legend() {
  const icon = (...parts) => s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }, ...parts);
  const box = (rx) => s("rect", { class: "shape", x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, picture, line) => h("li", { class: kind }, picture, h("span", { class: line ? `under ${line}` : null }, words));
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    item("first drafter", "first", icon(box(3)), "tok first"),
    item("second drafter", "second", icon(box(6)), "tok second"),
    item("target", "target", icon(s("polygon", { class: "shape", points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" })), "tok target"),
    item("accepted", "accepted", icon(s("path", { class: "thick", d: "M-13 0H13" }), box(3))),
    item("rejected", "rejected", icon(box(3), s("g", { transform: "translate(9,-4)" }, s("circle", { r: 4.5 }), s("path", { d: "M-2-2L2 2M2-2L-2 2" })))),
    item("not reached", "unreached", icon(box(3))),
    item("predicted boundary", "flagged", icon(s("path", { d: "M-5 8V-7H8L5-2.5L8 2H-5" }))),
    item("true boundary", "truth", icon(s("path", { d: "M0-8V8" }))),
  );
}

function glyphLegend() {
  const item = (kind, mark, words) => h("li", {}, h("i", { class: kind, "aria-hidden": "true" }, mark), words);
  return h("ul", { class: "glyphs", "aria-label": "Marks under the steps" }, h("li", {}, "Steps: boundary"), item("hit", "●", "predicted"), item("miss", "✕", "missed"), item("all", "▲", "all accepted"));
}
