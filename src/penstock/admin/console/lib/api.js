// Requests to the HTTP API. Addresses are relative, so that the console works under any path of a proxy.
import { readJson, writeJson } from "./json.js";
import { makeStore } from "./store.js";

const API = "api/v1";

// A problem reported by the server (RFC 9457) or by the network.
export class Problem extends Error {
  constructor({ status, code, title, detail, field = "", current = null }) {
    super(detail || title);
    Object.assign(this, { status, code, title, detail, field, current });
  }
}

// The session: undefined until it is loaded, null without a login.
export const session = makeStore(undefined);

function query(parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return text ? `?${text}` : "";
}

// Browsers remove . and .. from a path even if encoded: the API accepts these names with a semicolon.
const pathPart = (name) => (name === "." || name === ".." ? `${name};` : encodeURIComponent(name));

export const apiAddress = (parts, parameters) => `${API}/${parts.map(pathPart).join("/")}${query(parameters)}`;

async function problemOf(response) {
  try {
    return new Problem(readJson(await response.text()));
  } catch {
    return new Problem({ status: response.status, code: "internal", title: response.statusText, detail: `The server responded with status ${response.status}.` });
  }
}

async function send(method, parts, { parameters, body, version, signal, type } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = type ?? "application/json";
  if (version !== undefined) headers["If-Match"] = version;
  const text = body === undefined || type ? body : writeJson(body);
  let response;
  try {
    response = await fetch(apiAddress(parts, parameters), { method, headers, body: text, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ status: 0, code: "away", title: "No connection", detail: "The broker does not respond. It may be restarting." });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A failed login reports itself; any other 401 means that the session has ended.
  if (problem.status === 401 && !(method === "POST" && parts[0] === "session")) session.set(null);
  throw problem;
}

async function ask(method, parts, options) {
  const response = await send(method, parts, options);
  return response.status === 204 ? null : readJson(await response.text());
}

export const get = (parts, parameters, signal) => ask("GET", parts, { parameters, signal });
export const post = (parts, body, options = {}) => ask("POST", parts, { ...options, body });
export const put = (parts, body) => ask("PUT", parts, { body });
export const patch = (parts, body, version) => ask("PATCH", parts, { body, version });
export const remove = (parts, options = {}) => ask("DELETE", parts, options);
export const text = async (parts, parameters) => (await send("GET", parts, { parameters })).text();
export const file = async (parts, body) => (await send("POST", parts, { body })).blob();

const RANK = { view: 1, operate: 2, admin: 3 };

// Whether to show a button. The server decides: the role may hold for other queues only.
export const may = (role) => (RANK[session.get()?.role] ?? 0) >= RANK[role];

export async function loadSession() {
  try {
    session.set(await get(["session"]));
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    session.set(null);
  }
}

export async function login(token) {
  session.set(await post(["session"], { token }));
}

export async function logout() {
  await remove(["session"]);
  session.set(null);
}

// Namespace and queue of a full name, which the first slash separates.
export function divided(name) {
  const slash = name.indexOf("/");
  return slash < 0 ? ["default", name] : [name.slice(0, slash), name.slice(slash + 1)];
}

export const queueParts = (name) => ["queues", ...divided(name)];
