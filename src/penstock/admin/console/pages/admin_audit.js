// The audit log: changes and attempts with their author, time, origin and values.
import { get } from "../lib/api.js";
import { moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { writeJson } from "../lib/json.js";
import { useLoad } from "../lib/load.js";
import { goQuery } from "../lib/router.js";
import { Dialog } from "../parts/dialog.js";
import { Text } from "../parts/field.js";
import { Badge, Facts, Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";

const OUTCOMES = { done: "good", partial: "warn", "dry-run": "", refused: "warn", failed: "bad" };

const Outcome = ({ entry }) => html`<${Badge} kind=${OUTCOMES[entry.outcome]}>${entry.outcome}</${Badge}>`;

export function AuditTab({ query }) {
  const { who = "", action = "", target = "", cursor = "" } = query;
  const [it, setIt] = useState({ who, action, target });
  const [open, setOpen] = useState(null);
  const state = useLoad((signal) => get(["audit"], { who, action, target, cursor }, signal), [who, action, target, cursor]);
  const set = (field) => (value) => setIt({ ...it, [field]: value });
  const columns = [
    { key: "at", label: "When", head: true, cell: (entry) => html`<button type="button" class="link nowrap" onClick=${() => setOpen(entry)}>${moment(entry.at)}</button><div class="narrow-only"><span class="soft">${entry.who}</span> <${Outcome} entry=${entry} /></div>` },
    { key: "who", label: "Who", off: "narrow", cell: (entry) => html`${entry.who} <span class="soft">${entry.origin}</span>` },
    { key: "action", label: "What", className: "wrap", cell: (entry) => entry.action },
    { key: "target", label: "About", className: "wrap", cell: (entry) => entry.target },
    { key: "outcome", label: "Outcome", off: "narrow", cell: (entry) => html`<${Outcome} entry=${entry} />` },
  ];
  const foot = (page) => html`<${Pager} page=${page} word="entries" cursor=${cursor} />`;
  return html`<${Panel} body=${false}>
    <form class="filter" role="search" aria-label="Filter the audit log" onSubmit=${(event) => (event.preventDefault(), goQuery({ ...it, cursor: "" }))}>
      <${Text} id="audit-who" label="Who" value=${it.who} onChange=${set("who")} autocomplete="off" />
      <${Text} id="audit-action" label="What" value=${it.action} onChange=${set("action")} autocomplete="off" />
      <${Text} id="audit-target" label="About" value=${it.target} onChange=${set("target")} autocomplete="off" />
      <button type="submit">Filter</button>
    </form>
    <${Loaded} state=${state}>${(page) => (page.items.length ? html`<${Table} label="Audit log" columns=${columns} rows=${page.items} rowKey=${(entry) => entry.number} foot=${foot(page)} />` : html`<${Empty} title="No matching entries" />`)}</${Loaded}>
    ${open && html`<${Entry} entry=${open} onClose=${() => setOpen(null)} />`}
  </${Panel}>`;
}

const written = (value) => (value === null || value === undefined ? "" : html`<pre class="said">${writeJson(value, "  ")}</pre>`);

function Entry({ entry, onClose }) {
  const facts = [["When", moment(entry.at)], ["Who", entry.who], ["Token", entry.token], ["From", entry.origin], ["What", entry.action], ["About", entry.target], ["Outcome", entry.outcome], ["Detail", entry.detail], ["Before", written(entry.before)], ["After", written(entry.after)]];
  return html`<${Dialog} wide title=${`Change ${entry.number}`} onClose=${onClose}><${Facts} entries=${facts} /></${Dialog}>`;
}
