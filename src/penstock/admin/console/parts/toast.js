// Notifications of results, with an undo button if possible. Errors stay until they are closed.
import { html } from "../lib/html.js";
import { makeStore, useStore } from "../lib/store.js";
import { Icon } from "./icons.js";

const SECONDS = 8;
const SECONDS_TO_UNDO = 20;
const toasts = makeStore([]);
let number = 0;

const close = (id) => toasts.set(toasts.get().filter((toast) => toast.id !== id));

export function notify(text, { bad = false, undo } = {}) {
  number += 1;
  const id = number;
  toasts.set([...toasts.get().slice(-4), { id, text, bad, undo }]);
  if (!bad) window.setTimeout(() => close(id), (undo ? SECONDS_TO_UNDO : SECONDS) * 1000);
}

// Performs an action and notifies the user of the result. Returns whether it succeeded.
export async function attempt(what, done, { undo } = {}) {
  try {
    const value = await what();
    notify(typeof done === "function" ? done(value) : done, { undo });
    return true;
  } catch (problem) {
    notify(problem.message, { bad: true });
    return false;
  }
}

export function Toasts() {
  const shown = useStore(toasts);
  const undo = (toast) => {
    close(toast.id);
    attempt(toast.undo, "Undone.");
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(
      (toast) => html`<div key=${toast.id} class=${`toast ${toast.bad ? "bad" : ""}`}>
        <p>${toast.text}</p>
        ${toast.undo && html`<button type="button" class="small" onClick=${() => undo(toast)}>Undo</button>`}
        <button type="button" class="icon plain small" aria-label="Close this message" onClick=${() => close(toast.id)}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`;
}
