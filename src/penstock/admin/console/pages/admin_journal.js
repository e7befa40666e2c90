// The state of the journal, and its files.
import { get } from "../lib/api.js";
import { bytes, count, duration, moment } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Facts, Panel } from "../parts/panel.js";
import { Empty, Loaded, Notice } from "../parts/states.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { key: "name", label: "File", head: true, cell: (one) => html`<code>${one.name}</code>` },
  { key: "first", label: "From event", right: true, cell: (one) => count(one.first) },
  { key: "end", label: "Up to", right: true, off: "narrow", cell: (one) => count(one.end) },
  { key: "bytes", label: "Size", right: true, cell: (one) => bytes(one.bytes) },
  { key: "at", label: "Created", off: "narrow", cell: (one) => moment(one.created_at) },
  { key: "state", label: "State", cell: (one) => (one.finished ? "finished" : "being written") },
];

function facts(journal) {
  const { disk } = journal;
  return [
    ["Kind", `${journal.kind}, ${journal.durability}`],
    ["Folder", journal.folder && html`<code>${journal.folder}</code>`],
    ["Identity", html`<code>${journal.identity}</code>`],
    ["Events", `${count(journal.earliest)} to ${count(journal.latest)}`],
    ["Size", `${bytes(journal.bytes)} in ${count(journal.segments)} files`],
    ["Checkpoint", journal.checkpoint === null ? "none yet" : `at event ${count(journal.checkpoint)}, ${moment(journal.checkpoint_at)}`],
    ["Retention", [journal.retention_seconds && `for ${duration(journal.retention_seconds)}`, journal.retention_bytes && `up to ${bytes(journal.retention_bytes)}`].filter(Boolean).join(", ") || "unlimited"],
    ["Disk", disk && `${bytes(disk.free_bytes)} free of ${bytes(disk.total_bytes)}; publishing stops below ${bytes(disk.min_free_bytes)}`],
  ];
}

export function JournalTab() {
  const journal = useLoad((signal) => get(["journal"], {}, signal), [], { every: 5 });
  const segments = useLoad((signal) => get(["journal", "segments"], { limit: 1000 }, signal), [], { every: 10 });
  return html`<div class="stack">
    <${Panel} title="The journal"><${Loaded} state=${journal}>${(it) => html`<div class="stack">${it.trouble && html`<${Notice} kind="warn">${it.trouble}</${Notice}>`}<${Facts} entries=${facts(it)} /></div>`}</${Loaded}></${Panel}>
    <${Panel} title="Files" body=${false}><${Loaded} state=${segments}>${(page) => (page.items.length ? html`<${Table} label="Files of the journal" columns=${COLUMNS} rows=${page.items} rowKey=${(one) => one.name} />` : html`<${Empty} title="No files">The journal is in memory.</${Empty}>`)}</${Loaded}></${Panel}>
  </div>`;
}
