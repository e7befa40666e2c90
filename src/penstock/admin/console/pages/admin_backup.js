// Copies of the journal, made while the broker runs.
import { get, post } from "../lib/api.js";
import { bytes, count, moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { jobs } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { useStore } from "../lib/store.js";
import { Text } from "../parts/field.js";
import { JobsPanel } from "../parts/jobs.js";
import { Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const COLUMNS = [
  { key: "name", label: "Backup", head: true, className: "stretch", cell: (one) => html`<span class="name">${one.name}</span>` },
  { key: "at", label: "Created", cell: (one) => moment(one.created_at) },
  { key: "bytes", label: "Size", right: true, cell: (one) => bytes(one.bytes) },
  { key: "position", label: "Up to event", right: true, off: "narrow", cell: (one) => count(one.position) },
  { key: "folder", label: "Folder", off: "middle", className: "wrap", cell: (one) => html`<code>${one.folder}</code>` },
];

export function BackupTab() {
  const [name, setName] = useState("");
  const [problem, setProblem] = useState(null);
  const done = Object.values(useStore(jobs)).filter((job) => job.kind === "backup" && job.state === "done").length;
  const state = useLoad((signal) => get(["backups"], {}, signal), [done], { every: 5 });
  const begin = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      await post(["backups"], { name });
      notify("The backup has started.");
      setName("");
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<div class="stack">
    <${Panel} title="New backup"><form class="row bottom" onSubmit=${begin}>
      <${Text} id="backup-name" label="Name" value=${name} onChange=${setName} autocomplete="off" hint="Empty: the current time" wrong=${problem?.message ?? ""} />
      <button type="submit" class="main">Back up now</button>
    </form></${Panel}>
    <${Panel} title="Backups" body=${false}><${Loaded} state=${state} lines=${3}>${(page) => (page.items.length ? html`<${Table} label="Backups" columns=${COLUMNS} rows=${page.items} rowKey=${(one) => one.name} />` : html`<${Empty} title="No backups yet">A backup is a complete copy of the journal. <code>penstock restore</code> turns it into a data folder.</${Empty}>`)}</${Loaded}></${Panel}>
    <${JobsPanel} kinds=${["backup"]} title="Backup jobs" />
  </div>`;
}
