// What is in the form of Explore goes into this browser tab's storage when the page is left, so that a reload loses nothing.

function formValue(id) {
  const field = document.querySelector(`#${id} :is(textarea, select, input)`);
  if (!field) return "";
  return field.type === "checkbox" ? String(field.checked) : field.value;
}

/** `fields`: element ids by name. */
export function rememberForm(fields) {
  window.addEventListener("pagehide", () => {
    const entries = Object.entries(fields).map(([name, id]) => [name, formValue(id)]);
    try {
      sessionStorage.setItem("d2sd-form", JSON.stringify(Object.fromEntries(entries.filter(([, value]) => value !== ""))));
    } catch {
      // storage is switched off or full: the form is not remembered
    }
  });
}
