// A value that components can watch.
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

// What people choose stays in their browser. Without storage (private windows, full disks) it lasts as long as the page.
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
      // Nothing to do: the choice holds until the page is closed.
    }
  },
};
