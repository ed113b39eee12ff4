// Keys that Gradio's own controls lack.

/** Ctrl + Enter runs the prompt, as Shift + Enter does; a list that is tabbed out of closes. */
export function listenForKeys() {
  document.addEventListener(
    "keydown",
    (event) => {
      const { target, key } = event;
      if (key === "Tab" && target.matches("input[role='combobox'][aria-expanded='true']")) target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", code: "Escape", bubbles: true }));
      if (key !== "Enter" || !(event.ctrlKey || event.metaKey) || !target.closest("#prompt")) return;
      event.preventDefault();
      document.querySelector("#run").click();
    },
    true,
  );
}
