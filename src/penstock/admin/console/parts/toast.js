// What was done, told once, with a way back where there is one. Errors stay until they are closed.
import { html } from "../lib/html.js";
import { makeStore, useStore } from "../lib/store.js";
import { Icon } from "./icons.js";

const SECONDS = 8;
const SECONDS_TO_UNDO = 20;
const toasts = makeStore([]);
let number = 0;

const close = (id) => toasts.set(toasts.get().filter((toast) => toast.id !== id));

export function tell(text, { bad = false, undo } = {}) {
  number += 1;
  const id = number;
  toasts.set([...toasts.get().slice(-4), { id, text, bad, undo }]);
  if (!bad) window.setTimeout(() => close(id), (undo ? SECONDS_TO_UNDO : SECONDS) * 1000);
}

// Does something and tells how it went. Returns whether it did.
export async function attempt(what, done, { undo } = {}) {
  try {
    const value = await what();
    tell(typeof done === "function" ? done(value) : done, { undo });
    return true;
  } catch (problem) {
    tell(problem.message, { bad: true });
    return false;
  }
}

export function Toasts() {
  const shown = useStore(toasts);
  const takeBack = (toast) => {
    close(toast.id);
    attempt(toast.undo, "Taken back.");
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(
      (toast) => html`<div key=${toast.id} class=${`toast ${toast.bad ? "bad" : ""}`}>
        <p>${toast.text}</p>
        ${toast.undo && html`<button type="button" class="small" onClick=${() => takeBack(toast)}>Undo</button>`}
        <button type="button" class="icon plain small" aria-label="Close this message" onClick=${() => close(toast.id)}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`;
}
