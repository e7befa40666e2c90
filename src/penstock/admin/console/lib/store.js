// Observable values.
import { useEffect, useState } from "./html.js";

export function makeStore(initial) {
  let value = initial;
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    update(change) {
      this.set({ ...value, ...change });
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.watch(setValue);
  }, [store]);
  return value;
}

// Preferences, stored in the browser. Without storage (private windows, full disks) they last as long as the page.
export const kept = {
  get(name, otherwise) {
    try {
      const found = window.localStorage.getItem(`penstock.${name}`);
      return found === null ? otherwise : JSON.parse(found);
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      window.localStorage.setItem(`penstock.${name}`, JSON.stringify(value));
    } catch {
      // It is kept until the page is closed.
    }
  },
};
