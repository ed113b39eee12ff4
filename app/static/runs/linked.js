// ?trace=URL: a trace from this page's host, or from one on its owner's list, opened as if it were chosen by hand. The browser
// fetches it, never the server.

/** The address to fetch from, or the problem with it. `here`: the page's own; `hosts`: the owner's list. */
export function traceAddress(wanted, here, hosts) {
  let address;
  try {
    address = new URL(wanted, here);
  } catch {
    return { problem: "the link does not contain a valid address" };
  }
  if (!["http:", "https:"].includes(address.protocol) || address.username || address.password) return { problem: "its address must begin with http:// or https:// and name no user" };
  if (address.host !== new URL(here).host && !hosts.includes(address.host)) return { problem: `${address.host.slice(0, 80)} is not on this page’s list; download the file and use “Open a trace”` };
  return { address };
}

/** The file at an address; throws a sentence where there is none, it is larger than so many megabytes, or the address leads
 *  elsewhere. */
export async function fetchTrace(address, megabytes) {
  const answer = await fetch(address, { redirect: "error", credentials: "same-origin", referrerPolicy: "no-referrer" }).catch(() => {
    throw new Error("its host does not answer, does not allow it, or leads elsewhere");
  });
  if (!answer.ok || !answer.body) throw new Error(`its host answers ${answer.status}`);
  const parts = [];
  let size = 0;
  const reader = answer.body.getReader();
  for (let part; !(part = await reader.read()).done; ) {
    size += part.value.length;
    if (size > megabytes * 1e6) {
      reader.cancel();
      throw new Error(`it is larger than ${megabytes} MB`);
    }
    parts.push(part.value);
  }
  const packed = parts.length > 0 && parts[0][0] === 0x1f && parts[0][1] === 0x8b;
  const name = address.pathname.split("/").pop().replace(/[^\w.-]/g, "").replace(/(\.jsonl?)?(\.gz)?$/, "").slice(-40) || "trace";
  return new File(parts, `${name}.jsonl${packed ? ".gz" : ""}`);
}

/** Uploads what the address of the page names; the server opens it at the step that it names. `say` hears what is wrong. */
export async function openLinked({ hosts, megabytes }, say) {
  const wanted = new URLSearchParams(location.search).get("trace");
  if (!wanted) return;
  try {
    const { address, problem } = traceAddress(wanted, location.href, hosts);
    if (problem) throw new Error(problem);
    const chosen = new DataTransfer();
    chosen.items.add(await fetchTrace(address, megabytes));
    const input = document.querySelector("#last input[type=file]");
    input.files = chosen.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  } catch (error) {
    say(`The trace of this link was not opened: ${error.message}.`);
  }
}
