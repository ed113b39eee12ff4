// Fields behind # are those of the query: #run=2&step=10 asks for the same here as in a hand-out.
const toQuery = () => {
  const fields = new URLSearchParams(location.hash.slice(1));
  const known = ["tab", "run", "step", "node", "stop", "quiz", "draft", "beat", "embed", "theme"].filter((name) => fields.has(name));
  if (!known.length) return;
  const query = new URLSearchParams(location.search);
  if (!known.includes("tab")) query.delete("tab"); // of what was looked at before: a stop is in Learn, a step in Explore
  if (!known.includes("stop") && known.includes("step")) query.delete("stop");
  if (known.includes("quiz") || known.includes("draft")) ["quiz", "draft", "beat"].forEach((name) => query.delete(name)); // one game at a time
  for (const name of known) query.set(name === "theme" ? "__theme" : name, fields.get(name));
  location.replace(`${location.origin}${location.pathname}?${query}`);
};
toQuery();
addEventListener("hashchange", toQuery);
