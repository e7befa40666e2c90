// What the broker tells by itself: one stream of server-sent events for the page that is open.
//
// EventSource comes back by itself after a cut, but not after an answer that is an error (a restarting broker behind a
// proxy, an expired login), so the waiting is done here: 1, 2, 4 … 15 seconds.
import { apiAddress, loadSession, session } from "./api.js";
import { readJson } from "./json.js";
import { makeStore } from "./store.js";
import { useEffect } from "./html.js";

const LONGEST_WAIT = 15;
const KEPT = 600;

// state: "connecting", "live" or "lost"; since: of that state; times: how often it was live before (pages load again);
// why: it was lost.
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

const heard = {
  overview(value) {
    overview.set(value);
    append(commits, { at: Date.now() / 1000, ...value.commits });
  },
  sample(value) {
    append(samples, value);
  },
  queue(value) {
    if (value.name !== wanted) return; // of the page before
    queueNow.set({ ...value, heard: Date.now() });
    append(queueSamples, { at: Date.now() / 1000, ...value });
  },
  job(value) {
    jobs.update({ [value.id]: value });
  },
};

// The process that answers is there, the broker behind it is not; the next event says that it is again.
function away(event) {
  lost(0, readJson(event.data).detail);
}

// What was heard before says nothing of now, least of all that the broker is ready.
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
  for (const [name, hear] of Object.entries(heard)) {
    source.addEventListener(name, (event) => {
      opened();
      hear(readJson(event.data));
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
  timer = window.setTimeout(again, wait * 1000);
}

// Who was logged in may not be any more: then the login page takes over, and nothing is tried.
async function again() {
  try {
    await loadSession();
  } catch {
    // The broker is away: opening the stream will say so.
  }
  if (session.get()) open();
}

export function retry() {
  failures = 0;
  again();
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

// Browsers keep six connections to a host, for all tabs together: a tab that nobody sees gives its stream up.
const SECONDS_UNSEEN = 20;
let unseen = 0;

document.addEventListener("visibilitychange", () => {
  window.clearTimeout(unseen);
  if (document.visibilityState === "hidden") {
    unseen = window.setTimeout(() => {
      window.clearTimeout(timer);
      source?.close();
      source = null;
    }, SECONDS_UNSEEN * 1000);
  } else if (session.get()) begin();
});

// The stream tells of this queue too, while the page is open. One that is not there, or not ours to see, is not asked for:
// the server refuses such a stream, and there would be none at all.
export function useLiveQueue(name, there) {
  useEffect(() => {
    if (!there) return undefined;
    wanted = name;
    queueNow.set(null);
    queueSamples.set([]);
    if (source) open();
    return () => {
      wanted = "";
    };
  }, [name, there]);
}
