// The address: #/page/part?key=value. In the fragment, so that the console works under any path of a proxy and the
// server has one page to serve. Parts are encoded one by one: names of queues may contain anything.
import { makeStore } from "./store.js";

function parse(fragment) {
  const [path, query = ""] = fragment.replace(/^#?\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { page: parts[0] ?? "overview", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand, and no valid encoding: taken as it is
  }
}

export const route = makeStore(parse(window.location.hash));
window.addEventListener("hashchange", () => route.set(parse(window.location.hash)));

// Keys without a value are left out, so that an address says only what differs from the page's own choice.
export function address(page, parts = [], query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${[page, ...parts].map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(page, parts, query) {
  window.location.hash = address(page, parts, query);
}

// Changes the query of this page. With `replace` the step back skips it: for what changes while typing.
export function goQuery(change, { replace = false } = {}) {
  const { page, parts, query } = route.get();
  const target = address(page, parts, { ...query, ...change });
  if (!replace) window.location.hash = target;
  else {
    window.history.replaceState(null, "", target);
    route.set(parse(target));
  }
}
