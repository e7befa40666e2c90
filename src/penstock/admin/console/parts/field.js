// Form fields with a label, a hint, and the server's problem with the field.
import { html } from "../lib/html.js";

function describe(id, hint, wrong) {
  return [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(" ") || null;
}

function Frame({ id, label, hint, wrong, wide, children }) {
  return html`<div class=${`field ${wide ? "wide" : ""}`}>
    <label for=${id}>${label}</label>
    ${children}
    ${hint && html`<span class="hint" id=${`${id}-hint`}>${hint}</span>`}
    ${wrong && html`<span class="wrong" id=${`${id}-wrong`}>${wrong}</span>`}
  </div>`;
}

export function Text({ id, label, hint, wrong, wide, value, onChange, type = "text", ...rest }) {
  return html`<${Frame} ...${{ id, label, hint, wrong, wide }}>
    <input id=${id} type=${type} value=${value} aria-invalid=${wrong ? "true" : null} aria-describedby=${describe(id, hint, wrong)} onInput=${(event) => onChange(event.target.value)} ...${rest} />
  </${Frame}>`;
}

export function Area({ id, label, hint, wrong, value, onChange, ...rest }) {
  return html`<${Frame} ...${{ id, label, hint, wrong, wide: true }}>
    <textarea id=${id} spellcheck=${false} aria-invalid=${wrong ? "true" : null} aria-describedby=${describe(id, hint, wrong)} onInput=${(event) => onChange(event.target.value)} value=${value} ...${rest} />
  </${Frame}>`;
}

// choices: [[value, label]]
export function Select({ id, label, hint, wrong, wide, value, onChange, choices, ...rest }) {
  return html`<${Frame} ...${{ id, label, hint, wrong, wide }}>
    <select id=${id} value=${value} aria-invalid=${wrong ? "true" : null} aria-describedby=${describe(id, hint, wrong)} onChange=${(event) => onChange(event.target.value)} ...${rest}>
      ${choices.map(([key, word]) => html`<option key=${key} value=${key} selected=${key === value}>${word}</option>`)}
    </select>
  </${Frame}>`;
}

export function Check({ id, label, checked, onChange, ...rest }) {
  return html`<div class="check"><input id=${id} type="checkbox" checked=${checked} onChange=${(event) => onChange(event.target.checked)} ...${rest} /><label for=${id}>${label}</label></div>`;
}
