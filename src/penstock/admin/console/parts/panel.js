// Panels, figures, badges, facts and tabs.
import { html, useEffect } from "../lib/html.js";
import { address } from "../lib/router.js";
import { plainly } from "../lib/unseen.js";

export function Panel({ title, actions, children, body = true, level = 2, id }) {
  const head = level === 2 ? html`<h2>${title}</h2>` : html`<h3>${title}</h3>`;
  return html`<section class="panel" id=${id} aria-label=${title}>
    ${title && html`<div class="panel-head">${head}${actions && html`<div class="actions">${actions}</div>`}</div>`}
    ${body ? html`<div class="panel-body">${children}</div>` : children}
  </section>`;
}

// The head of a page, which also sets the document's title.
export function Head({ title, trail, badges, children }) {
  useEffect(() => {
    document.title = `${plainly(title)} · Penstock`;
  }, [title]);
  return html`<header class="page-head">
    <div>
      ${trail && html`<nav class="trail" aria-label="Above this page">${trail}</nav>`}
      <div class="row"><h1>${title}</h1>${badges}</div>
    </div>
    ${children && html`<div class="actions">${children}</div>`}
  </header>`;
}

// entries: {label, value, unit, note, kind, href}
// `across`: entries per row if there is space, chosen so that the last row is full.
export function Figures({ entries, label, across = "any" }) {
  return html`<dl class=${`figures across-${across}`} aria-label=${label}>
    ${entries.map(
      ({ label: name, value, unit, note, kind = "", href }) => html`<div class=${`figure ${kind}`} key=${name}>
        <dt>${href ? html`<a href=${href}>${name}</a>` : name}</dt>
        <dd>${value}${unit && html` <small>${unit}</small>`}${note && html`<div class="note">${note}</div>`}</dd>
      </div>`,
    )}
  </dl>`;
}

export const Badge = ({ kind = "", children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

export function Facts({ entries }) {
  const shown = entries.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html`<dl class="facts">${shown.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

// tabs: [{key, label}]; each has an address.
export function Tabs({ label, tabs, chosen, page, parts }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map((tab) => html`<a key=${tab.key} href=${address(page, [...parts, tab.key])} aria-current=${tab.key === chosen ? "page" : null}>${tab.label}</a>`)}
  </nav>`;
}

// A choice of one: [{key, label}]
export function Pick({ label, choices, chosen, onPick }) {
  return html`<div class="pick" role="group" aria-label=${label}>
    ${choices.map(({ key, label: word }) => html`<button type="button" key=${key} aria-pressed=${String(key === chosen)} onClick=${() => onPick(key)}>${word}</button>`)}
  </div>`;
}
