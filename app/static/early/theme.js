// The theme that was chosen with the switch, put where Gradio looks for one.
const chosenTheme = () => {
  try {
    return localStorage.getItem("d2sd-theme");
  } catch {
    return null; // storage is switched off
  }
};
const themed = new URLSearchParams(location.search);
if (["dark", "light"].includes(chosenTheme()) && !themed.has("__theme")) {
  themed.set("__theme", chosenTheme());
  history.replaceState(history.state, "", `${location.pathname}?${themed}${location.hash}`);
}
