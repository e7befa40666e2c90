// Tables of connections and locks, and a dialog for one connection.
import { get, may, remove } from "../lib/api.js";
import { age, bytes, compact, count, duration, moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Confirm, Dialog } from "./dialog.js";
import { lifeAddress, QueueLink, shortId } from "./names.js";
import { Badge, Facts, Panel } from "./panel.js";
import { Empty, Loaded } from "./states.js";
import { Table } from "./table.js";
import { attempt, notify } from "./toast.js";

function columns(onOpen, sortable) {
  const sort = (by) => (sortable ? by : undefined);
  return [
    { key: "id", label: "Connection", sort: sort("id"), head: true, cell: (one) => html`<button type="button" class="link" onClick=${() => onOpen(one)}>${one.peer}</button>` },
    { key: "protocol", label: "Protocol", cell: (one) => html`${one.protocol}${one.tls ? html` <${Badge} kind="good">TLS</${Badge}>` : ""}` },
    { key: "who", label: "Who", off: "middle", className: "wrap", cell: (one) => one.subject || one.user },
    { key: "since", label: "For", right: true, off: "narrow", cell: (one) => html`<span title=${moment(one.since)}>${age(one.since)}</span>` },
    { key: "consumers", label: "Consumers", right: true, off: "narrow", cell: (one) => count(one.consumers) },
    { key: "out", label: "In flight", sort: sort("out"), right: true, cell: (one) => compact(one.out) },
    { key: "input", label: "Input", sort: sort("input_bytes"), right: true, off: "middle", cell: (one) => bytes(one.input_bytes) },
    { key: "output", label: "Output", sort: sort("output_bytes"), right: true, off: "middle", cell: (one) => bytes(one.output_bytes) },
    { key: "state", label: "State", cell: (one) => (one.ending ? html`<${Badge}>ending</${Badge}>` : one.throttled ? html`<${Badge} kind="warn">${one.throttled}</${Badge}>` : "") },
  ];
}

export function Connections({ label, rows, sort, onSort, foot, onChanged }) {
  const [open, setOpen] = useState(null);
  return html`<${Table} label=${label} columns=${columns(setOpen, Boolean(onSort))} rows=${rows} rowKey=${(one) => one.id} sort=${sort} onSort=${onSort} foot=${foot} />
    ${open && html`<${One} key=${open.id} id=${open.id} onClose=${() => setOpen(null)} onChanged=${onChanged} />`}`;
}

function One({ id, onClose, onChanged }) {
  const [closing, setClosing] = useState(false);
  const state = useLoad((signal) => get(["connections", String(id)], {}, signal), [id], { every: 2 });
  const end = async () => {
    await remove(["connections", String(id)]);
    notify("Closed the connection.");
    onChanged?.();
    onClose();
  };
  if (closing) return html`<${Confirm} title="Close this connection?" action="Close it" onClose=${() => setClosing(false)} onConfirm=${end}><p>Messages in flight (${count(state.value.out)}) return to their queues. The client may reconnect at once.</p></${Confirm}>`;
  const foot = state.value && may("operate") && html`<button type="button" class="danger" onClick=${() => setClosing(true)}>Close the connection</button>`;
  return html`<${Dialog} wide title=${`Connection ${id}`} onClose=${onClose} foot=${foot}>
    <${Loaded} state=${state}>${(one) => html`<${Facts} entries=${facts(one)} />${one.subscriptions.length > 0 && html`<${Table} label="Subscriptions" columns=${SUBSCRIPTION_COLUMNS} rows=${one.subscriptions} rowKey=${(want) => `${want.queue} ${want.dead}`} />`}`}</${Loaded}>
  </${Dialog}>`;
}

const SUBSCRIPTION_COLUMNS = [
  { key: "queue", label: "Queue", head: true, cell: (want) => html`<${QueueLink} name=${want.queue} />${want.dead ? " dead letters" : ""}` },
  { key: "window", label: "Window", right: true, cell: (want) => (want.window ? count(want.window) : "one at a time") },
  { key: "credit", label: "Credit", right: true, cell: (want) => count(want.credit) },
];

function facts(one) {
  return [
    ["Protocol", `${one.protocol}${one.tls ? ", TLS" : ""}`],
    ["Peer", one.peer],
    ["Certificate", one.subject],
    ["User", one.user],
    ["Since", `${moment(one.since)} (${age(one.since)})`],
    ["In flight", count(one.out)],
    ["Input buffered", bytes(one.input_bytes)],
    ["Output buffered", bytes(one.output_bytes)],
    ["Throttled", one.throttled],
  ];
}

const LOCK_COLUMNS = [
  { key: "message", label: "Message", head: true, cell: (lock) => html`<a class="mono" href=${lifeAddress(lock.queue, lock.message)}>${shortId(lock.message)}</a>` },
  { key: "queue", label: "Queue", cell: (lock) => html`<${QueueLink} name=${lock.queue} />` },
  { key: "peer", label: "Held by", cell: (lock) => lock.peer },
  { key: "since", label: "For", right: true, off: "narrow", cell: (lock) => age(lock.since) },
  { key: "left", label: "Left", right: true, cell: (lock) => duration(lock.seconds_left) },
];

export function LocksPanel({ pattern }) {
  const state = useLoad((signal) => get(["locks"], { pattern }, signal), [pattern], { every: 3 });
  const release = async (lock) => {
    await attempt(() => remove(["locks", lock.message]), "Released. The message is back in its place.");
    state.reload();
  };
  const steps = { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (lock) => html`<button type="button" class="small" onClick=${() => release(lock)}>Release</button>` };
  return html`<${Panel} title="Locks" body=${false}>
    <${Loaded} state=${state} lines=${3}>${(page) => (page.items.length ? html`<${Table} label="Locks" columns=${may("operate") ? [...LOCK_COLUMNS, steps] : LOCK_COLUMNS} rows=${page.items} rowKey=${(lock) => lock.message} />` : html`<${Empty} title="No locks" />`)}</${Loaded}>
  </${Panel}>`;
}
