// Pipelines, readers with their lag, leases and writers.
import { get, may, remove } from "../lib/api.js";
import { age, compact, count, duration, moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Confirm } from "../parts/dialog.js";
import { QueueLink } from "../parts/names.js";
import { Badge, Head, Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

// A longer lag is highlighted.
const FAR_BEHIND_SECONDS = 60;

export function PipelinesPage() {
  return html`<${Head} title="Pipelines" /><div class="stack"><${Pipelines} /><${Readers} /><div class="columns"><${Leases} /><${Writers} /></div></div>`;
}

function Listed({ title, path, columns, rowKey, empty, children, every = 3 }) {
  const state = useLoad((signal) => get([path], {}, signal), [path], { every });
  return html`<${Panel} title=${title} body=${false}>
    <${Loaded} state=${state} lines=${4}>${(page) => (page.items.length ? html`<${Table} label=${title} columns=${columns(state.reload)} rows=${page.items} rowKey=${rowKey} />` : html`<${Empty} title=${empty}>${children}</${Empty}>`)}</${Loaded}>
  </${Panel}>`;
}

function Pipelines() {
  const columns = () => [
    { key: "name", label: "Pipeline", head: true, className: "stretch", cell: (one) => html`<span class="name">${one.name}</span>` },
    { key: "kind", label: "Kind", cell: (one) => one.kind },
    { key: "batch", label: "Last batch", right: true, cell: (one) => count(one.batch) },
    { key: "at", label: "Finished", right: true, cell: (one) => (one.finished_at ? html`<span title=${moment(one.finished_at)}>${age(one.finished_at)} ago</span>` : "–") },
    { key: "rows", label: "Rows", right: true, off: "narrow", cell: (one) => compact(one.rows) },
    { key: "quarantined", label: "Quarantine", right: true, cell: (one) => (one.quarantined ? html`<strong class="bad-text">${compact(one.quarantined)}</strong>` : compact(one.quarantined)) },
    { key: "report", label: "Report", cell: (one) => one.report && html`<a href=${one.report.replace(/^\//, "")} target="_blank" rel="noopener">Insight report</a>` },
  ];
  return html`<${Listed} title="Pipelines" path="pipelines" columns=${columns} rowKey=${(one) => one.name} empty="No pipelines">
    Pipelines in the folder <code>[http] lake</code> are shown here. <code>penstock up</code> starts two of them.
  </${Listed}>`;
}

// A button with a confirmation that explains the consequences.
function Forget({ kind, path, name, says, reload }) {
  const [asking, setAsking] = useState(false);
  if (!may("operate")) return null;
  const forget = async () => {
    await remove([path, name]);
    notify(`Forgot the ${kind} ${name}.`);
    reload();
  };
  return html`<button type="button" class="small" onClick=${() => setAsking(true)}>Forget…</button>
    ${asking && html`<${Confirm} title=${`Forget this ${kind}?`} action="Forget it" name=${name} onClose=${() => setAsking(false)} onConfirm=${forget}><p>${says}</p></${Confirm}>`}`;
}

function Readers() {
  const columns = (reload) => [
    { key: "name", label: "Reader", head: true, className: "stretch", cell: (one) => html`<span class="name">${one.name}</span>` },
    { key: "view", label: "Reads", cell: (one) => html`${one.view} <span class="soft">${one.where}</span>` },
    { key: "rows", label: "Behind", right: true, cell: (one) => `${compact(one.lag_rows)} rows` },
    { key: "lag", label: "Lag", right: true, cell: (one) => (one.lag_seconds > FAR_BEHIND_SECONDS ? html`<${Badge} kind="warn">${duration(one.lag_seconds)}</${Badge}>` : duration(one.lag_seconds)) },
    { key: "pin", label: "History", off: "middle", cell: (one) => (one.pin ? "retained" : "") },
    { key: "leased", label: "Leased", right: true, off: "middle", cell: (one) => compact(one.leased) },
    { key: "heard", label: "Last seen", right: true, off: "narrow", cell: (one) => html`<span title=${moment(one.heard_at)}>${age(one.heard_at)} ago</span>` },
    { key: "peer", label: "From", off: "middle", cell: (one) => html`${one.peer} <span class="soft">${one.owner}</span>` },
    { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (one) => html`<${Forget} kind="reader" path="readers" name=${one.name} reload=${reload} says="Its leases end, and history is no longer retained for it. If it still runs, it may miss rows that it has not read." />` },
  ];
  return html`<${Listed} title="Readers" path="readers" columns=${columns} rowKey=${(one) => one.name} empty="No readers">
    Streaming queries of Spark and other named readers over Flight are shown here with their lag.
  </${Listed}>`;
}

function Leases() {
  const columns = () => [
    { key: "reader", label: "Reader", head: true, className: "stretch", cell: (one) => html`<span class="name">${one.reader}</span>` },
    { key: "queue", label: "Queue", cell: (one) => html`<${QueueLink} name=${one.queue} />` },
    { key: "messages", label: "Messages", right: true, cell: (one) => compact(one.messages) },
    { key: "until", label: "Until", right: true, cell: (one) => moment(one.until) },
  ];
  return html`<${Listed} title="Leases" path="leases" columns=${columns} rowKey=${(one) => one.position} empty="No leases" />`;
}

function Writers() {
  const columns = (reload) => [
    { key: "name", label: "Writer", head: true, className: "stretch", cell: (one) => html`<span class="name">${one.name}</span>` },
    { key: "epoch", label: "Batch", right: true, cell: (one) => count(one.epoch) },
    { key: "partitions", label: "Partitions", right: true, off: "narrow", cell: (one) => count(one.partitions) },
    { key: "at", label: "Wrote", right: true, cell: (one) => (one.written_at ? `${age(one.written_at)} ago` : "–") },
    { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (one) => html`<${Forget} kind="writer" path="writers" name=${one.name} reload=${reload} says="Its chunks would be accepted again: if it still runs and repeats one, its messages are duplicated." />` },
  ];
  return html`<${Listed} title="Writers" path="writers" columns=${columns} rowKey=${(one) => one.name} empty="No writers" />`;
}
