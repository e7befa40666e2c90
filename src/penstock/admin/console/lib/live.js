// The live stream: one connection for server-sent events while a page is open.
//
// EventSource reconnects after a cut, but not after an error response (a restarting broker behind a proxy, an expired
// login). So reconnecting is done here, after 1, 2, 4 … 15 seconds.
import { apiAddress, loadSession, session } from "./api.js";
import { readJson } from "./json.js";
import { makeStore } from "./store.js";
import { useEffect } from "./html.js";

const LONGEST_WAIT = 15;
const KEPT = 600;

// state: "connecting", "live" or "lost"; since: when it began; times: how often it became live, after which pages
// reload; why: the reason of "lost".
export const connection = makeStore({ state: "connecting", since: Date.now(), times: 0, retryAt: 0, why: "" });
export const overview = makeStore(null);
export const samples = makeStore([]);
export const commits = makeStore([]);
export const queueNow = makeStore(null);
export const queueSamples = makeStore([]);
export const jobs = makeStore({});

let source = null;
let wanted = "";
let failures = 0;
let timer = 0;

function append(store, value) {
  store.set([...store.get().slice(1 - KEPT), value]);
}

const handlers = {
  overview(value) {
    overview.set(value);
    append(commits, { at: Date.now() / 1000, ...value.commits });
  },
  sample(value) {
    append(samples, value);
  },
  queue(value) {
    if (value.name !== wanted) return; // for the previous page
    queueNow.set({ ...value, heard: Date.now() });
    append(queueSamples, { at: Date.now() / 1000, ...value });
  },
  job(value) {
    jobs.update({ [value.id]: value });
  },
};

// The HTTP process responds but the broker does not; the next event means that it does again.
function away(event) {
  lost(0, readJson(event.data).detail);
}

// Old values no longer hold, in particular that the broker is ready.
function lost(retryAt, why) {
  const { state, since, times } = connection.get();
  connection.set({ state: "lost", since: state === "lost" ? since : Date.now(), times, retryAt, why });
  const before = overview.get();
  if (before) overview.set({ ...before, ready: false, reasons: [why] });
}

function open() {
  window.clearTimeout(timer);
  source?.close();
  source = new EventSource(apiAddress(["stream"], { queue: wanted }));
  source.onerror = failed;
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => {
      opened();
      handle(readJson(event.data));
    });
  }
  source.addEventListener("away", away);
}

function opened() {
  failures = 0;
  const before = connection.get();
  if (before.state === "live") return;
  connection.set({ state: "live", since: Date.now(), times: before.times + 1, retryAt: 0, why: "" });
}

function failed() {
  source.close();
  source = null;
  const wait = Math.min(2 ** failures, LONGEST_WAIT);
  failures += 1;
  lost(Date.now() + wait * 1000, "the console has no connection to it");
  timer = window.setTimeout(reconnect, wait * 1000);
}

// If the session has ended, the login page takes over and no stream is opened.
async function reconnect() {
  try {
    await loadSession();
  } catch {
    // The broker is away: opening the stream will report it.
  }
  if (session.get()) open();
}

export function retry() {
  failures = 0;
  reconnect();
}

export function begin() {
  if (!source) open();
}

export function end() {
  window.clearTimeout(timer);
  source?.close();
  source = null;
  for (const store of [samples, commits, queueSamples]) store.set([]);
  overview.set(null);
  queueNow.set(null);
  jobs.set({});
  connection.set({ state: "connecting", since: Date.now(), times: 0, retryAt: 0, why: "" });
}

// Browsers open six connections per host for all tabs together, so hidden tabs close their stream.
const SECONDS_HIDDEN = 20;
let hiding = 0;

document.addEventListener("visibilitychange", () => {
  window.clearTimeout(hiding);
  if (document.visibilityState === "hidden") {
    hiding = window.setTimeout(() => {
      window.clearTimeout(timer);
      source?.close();
      source = null;
    }, SECONDS_HIDDEN * 1000);
  } else if (session.get()) begin();
});

// Adds a queue's events to the stream while its page is open. The server refuses a stream for a queue that does not exist
// or is not visible, so such a queue is not requested.
export function useLiveQueue(name, exists) {
  useEffect(() => {
    if (!exists) return undefined;
    wanted = name;
    queueNow.set(null);
    queueSamples.set([]);
    if (source) open();
    return () => {
      wanted = "";
    };
  }, [name, exists]);
}
