// Requests to the HTTP API. Addresses are relative, so the console works below any path of a proxy.
import { readJson, writeJson } from "./json.js";
import { makeStore } from "./store.js";

const API = "api/v1";

// What went wrong, as the server says it (RFC 9457), or as the network does.
export class Problem extends Error {
  constructor({ status, code, title, detail, field = "", current = null }) {
    super(detail || title);
    Object.assign(this, { status, code, title, detail, field, current });
  }
}

// Who is logged in: undefined while that is not known yet, null if nobody is.
export const session = makeStore(undefined);

function query(parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return text ? `?${text}` : "";
}

// Browsers take . and .. out of a path, however they are encoded: the API knows these names with a semicolon.
const pathPart = (name) => (name === "." || name === ".." ? `${name};` : encodeURIComponent(name));

export const apiAddress = (parts, parameters) => `${API}/${parts.map(pathPart).join("/")}${query(parameters)}`;

async function problemOf(response) {
  try {
    return new Problem(readJson(await response.text()));
  } catch {
    return new Problem({ status: response.status, code: "internal", title: response.statusText, detail: `The server answered ${response.status}.` });
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
    throw new Problem({ status: 0, code: "away", title: "No connection", detail: "The broker does not answer. It may be restarting." });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A login that fails says so itself; everything else means that one is not logged in any more.
  if (problem.status === 401 && !(method === "POST" && parts[0] === "session")) session.set(null);
  throw problem;
}

async function asked(method, parts, options) {
  const response = await send(method, parts, options);
  return response.status === 204 ? null : readJson(await response.text());
}

export const get = (parts, parameters, signal) => asked("GET", parts, { parameters, signal });
export const post = (parts, body, options = {}) => asked("POST", parts, { ...options, body });
export const put = (parts, body) => asked("PUT", parts, { body });
export const patch = (parts, body, version) => asked("PATCH", parts, { body, version });
export const remove = (parts, options = {}) => asked("DELETE", parts, options);
export const text = async (parts, parameters) => (await send("GET", parts, { parameters })).text();
export const file = async (parts, body) => (await send("POST", parts, { body })).blob();

const RANK = { view: 1, operate: 2, admin: 3 };

// Whether a button is worth showing. The server decides: a role may hold for other queues than this one.
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

// namespace/queue, as the API has it in one piece: the first slash divides.
export function divided(name) {
  const slash = name.indexOf("/");
  return slash < 0 ? ["default", name] : [name.slice(0, slash), name.slice(slash + 1)];
}

export const queueParts = (name) => ["queues", ...divided(name)];
