// Loads the data of a page. Old data stays while new data loads, unless it belongs to another resource or is gone or
// forbidden. A late response never replaces a newer one, and everything reloads after a lost connection.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { writeJson } from "./json.js";
import { connection } from "./live.js";
import { useStore } from "./store.js";

const ENDED = ["not-found", "denied"];

export function useLoad(load, dependencies, { every = 0 } = {}) {
  const of = writeJson(dependencies);
  const [found, setFound] = useState({ value: undefined, problem: null, loading: true, at: 0, of });
  const [turn, setTurn] = useState(0);
  const { times } = useStore(connection);
  const asked = useRef(0);

  useEffect(() => {
    const abort = new AbortController();
    asked.current += 1;
    const mine = asked.current;
    setFound((before) => ({ ...before, loading: true }));
    load(abort.signal).then(
      (value) => mine === asked.current && setFound({ value, problem: null, loading: false, at: Date.now(), of }),
      (problem) => problem.name !== "AbortError" && mine === asked.current && setFound((before) => ({ ...before, value: before.of === of && !ENDED.includes(problem.code) ? before.value : undefined, problem, loading: false, of })),
    );
    return () => abort.abort();
  }, [...dependencies, turn, Math.max(1, times)]); // not when the stream opens for the first time

  useEffect(() => {
    if (!every) return undefined;
    const timer = window.setInterval(() => document.visibilityState === "visible" && setTurn((before) => before + 1), every * 1000);
    return () => window.clearInterval(timer);
  }, [every]);

  const reload = useCallback(() => setTurn((before) => before + 1), []);
  return { ...found, reload };
}

// A debounced value, for searches while typing.
export function useSettled(value, seconds = 0.25) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), seconds * 1000);
    return () => window.clearTimeout(timer);
  }, [value]);
  return settled;
}
