// A payload as a tree if it is JSON, as text if it is UTF-8, and as bytes.
import { asText, hexLines } from "../lib/bytes.js";
import { bytes as size, plural } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { jsonPieces } from "../lib/json.js";
import { Pick } from "./panel.js";

const ENTRIES_AT_ONCE = 100;
const BYTES_AT_ONCE = 4096;
const OPEN_DEPTH = 2;

export function PayloadView({ data, total, truncated, download }) {
  const text = useMemo(() => asText(data, truncated), [data]);
  const json = useMemo(() => (text === null || truncated ? undefined : jsonPieces(text)), [text]);
  const best = json?.list || json?.object ? "json" : text === null ? "hex" : "text";
  const [picked, setPicked] = useState(null);
  const choices = [json !== undefined && { key: "json", label: "JSON" }, text !== null && { key: "text", label: "Text" }, { key: "hex", label: "Hex" }].filter(Boolean);
  const how = choices.some((choice) => choice.key === picked) ? picked : best;
  return html`<div class="stack">
    <div class="row">
      <${Pick} label="Show the payload as" choices=${choices} chosen=${how} onPick=${setPicked} />
      <span class="soft">${size(total)}${truncated ? `, the first ${size(data.length)} shown` : ""}</span>
      ${download && html`<a class="button small" href=${download} download>Download</a>`}
    </div>
    <div class="payload" role="region" aria-label="Payload" tabindex="0">
      ${total === 0 && html`<p class="soft">The payload is empty.</p>`}
      ${how === "json" && html`<${Tree} piece=${json} />`}
      ${how === "text" && total > 0 && html`<pre>${text}</pre>`}
      ${how === "hex" && total > 0 && html`<${Hex} data=${data} />`}
    </div>
  </div>`;
}

function Hex({ data }) {
  const [most, setMost] = useState(BYTES_AT_ONCE);
  return html`<pre>${hexLines(data, most).join("\n")}</pre>
    ${most < data.length && html`<button type="button" class="small" onClick=${() => setMost(most * 4)}>Show more</button>`}`;
}

function Tree({ name, piece, depth = 0 }) {
  const label = name === undefined ? null : html`<span class="json-key">${name}</span>: `;
  const { source, list, object } = piece;
  if (source !== undefined) return html`<div class="json-leaf">${label}<span class=${looks(source)}>${source}</span></div>`;
  const entries = list ?? object;
  const summary = list ? `[ ${plural(entries.length, "element")} ]` : `{ ${plural(entries.length, "field")} }`;
  if (entries.length === 0) return html`<div class="json-leaf">${label}${list ? "[ ]" : "{ }"}</div>`;
  return html`<${Branch} label=${label} summary=${summary} entries=${entries} depth=${depth} />`;
}

// Closed branches are not rendered: a payload may have a million elements.
function Branch({ label, summary, entries, depth }) {
  const [open, setOpen] = useState(depth < OPEN_DEPTH);
  const [most, setMost] = useState(ENTRIES_AT_ONCE);
  return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${label}<span class="soft">${summary}</span></summary>
    ${open && html`<div class="json-inside">
      ${entries.slice(0, most).map(([name, piece], index) => html`<${Tree} key=${index} name=${name} piece=${piece} depth=${depth + 1} />`)}
      ${most < entries.length && html`<button type="button" class="small" onClick=${() => setMost(most * 4)}>${plural(entries.length - most, "more", "more")}</button>`}
    </div>`}
  </details>`;
}

const looks = (source) => (source[0] === '"' ? "json-string" : /[tfn]/.test(source[0]) ? "json-word" : "json-number");
