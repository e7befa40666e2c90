// States of a page without data: loading, empty, failed, outdated.
import { html } from "../lib/html.js";

export function Loading({ lines = 6 }) {
  return html`<div class="bones" role="status"><span class="hidden-text">Loading</span>${Array.from({ length: lines }, () => html`<span aria-hidden="true" />`)}</div>`;
}

export function Empty({ title, children }) {
  return html`<div class="state"><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;
}

const TITLES = { away: "No connection to the broker", denied: "Access denied", "not-found": "Not found" };

export function Failed({ problem, retry }) {
  const denied = problem.code === "denied";
  return html`<div class="state" role="alert">
    <strong>${TITLES[problem.code] ?? problem.title ?? "Something went wrong"}</strong>
    <p>${problem.message}</p>
    ${denied ? html`<p>Log in with a token that has the right, or ask an administrator for one.</p>` : retry && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

// Shows loaded data. If reloading fails, the old data stays visible with a note.
export function Loaded({ state, lines, children }) {
  const { value, problem, reload } = state;
  if (value === undefined) return problem ? html`<${Failed} problem=${problem} retry=${reload} />` : html`<${Loading} lines=${lines} />`;
  return html`${problem && html`<${Stale} problem=${problem} retry=${reload} />`}${children(value)}`;
}

function Stale({ problem, retry }) {
  return html`<div class="notice warn" role="status"><p>Not up to date: ${problem.message}</p><div class="actions"><button class="small" onClick=${retry}>Try again</button></div></div>`;
}

export function Notice({ kind = "", children, actions }) {
  return html`<div class=${`notice ${kind}`} role=${kind === "bad" ? "alert" : "status"}><div>${children}</div>${actions && html`<div class="actions">${actions}</div>`}</div>`;
}
