// Addresses: #/page/part?key=value. They are in the fragment, so that the console works under any path of a proxy and the
// server serves one page. Parts are encoded one by one, as names of queues may contain anything.
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
    return part; // typed by hand with an invalid encoding
  }
}

export const route = makeStore(parse(window.location.hash));
window.addEventListener("hashchange", () => route.set(parse(window.location.hash)));

// Keys without a value are omitted, so that an address contains only what differs from the page's defaults.
export function address(page, parts = [], query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${[page, ...parts].map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(page, parts, query) {
  window.location.hash = address(page, parts, query);
}

// Changes the query of this page. With `replace`, for changes while typing, it adds no history entry.
export function goQuery(change, { replace = false } = {}) {
  const { page, parts, query } = route.get();
  const target = address(page, parts, { ...query, ...change });
  if (!replace) window.location.hash = target;
  else {
    window.history.replaceState(null, "", target);
    route.set(parse(target));
  }
}
