// The measured set against another one: the finding, the rows that differ, and the texts of the prompts that both have.

import { h, readJson } from "../../assets/viewer/dom.js";
import { spoken } from "../../assets/viewer/words.js";
import { differencesView } from "../race/differences.js";
import { readSide, textsView } from "../race/texts.js";

export function start(element, trigger, props, watch) {
  let pairs = [];
  let names = [];
  const result = h("h2.result", {});
  const more = h("p.more", {});
  const titles = h("p.status", {});
  const rows = differencesView();
  const choice = h("select", { ariaLabel: "Prompt", onchange: () => use(choice.value) });
  const texts = textsView((side, step) => trigger("select", { side, step, key: pairs[choice.value].keys[side] }));
  texts.box.querySelector(".head").prepend(choice);
  const use = (n) => texts.show(pairs[n], pairs[n].sides, names);
  const root = h(
    "section.panels.race",
    { ariaLabel: "Against another set" },
    result,
    more,
    titles,
    rows.box,
    rows.tools,
    texts.box,
  );
  element.replaceChildren(root);

  function show() {
    const data = readJson(props.value);
    root.hidden = !data;
    element.dataset.state = data ? "done" : "empty";
    if (!data) return;
    ({ names } = data);
    [result.textContent, more.textContent] = [data.title, data.more];
    titles.textContent = `${names.map((name, n) => `${name}: ${data.titles[n]}`).join("; ")}.`;
    rows.show(data);
    pairs = data.pairs.map((pair) => ({ ...pair, sides: pair.sides.map((side) => readSide(side)) }));
    texts.box.hidden = !pairs.length;
    choice.hidden = pairs.length < 2;
    const differ = ({ sides: [one, other] }) => (one.words === other.words ? "" : " (differ)");
    choice.replaceChildren(
      ...pairs.map((pair, n) =>
        h("option", { value: n }, `${n + 1}. ${spoken(pair.prompt.replace(/\s+/g, " "), 60)}${differ(pair)}`),
      ),
    );
    if (pairs.length) use(0);
  }

  watch("value", show);
  show();
}
