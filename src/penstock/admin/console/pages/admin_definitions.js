// Namespaces, queues and their rules as one file: export, comparison, import.
import { apiAddress, post } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { writeJson } from "../lib/json.js";
import { Area, Check } from "../parts/field.js";
import { Badge, Panel } from "../parts/panel.js";
import { Empty } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const KINDS = { create: "good", change: "warn", delete: "bad", other: "" };
const COLUMNS = [
  { key: "action", label: "Change", cell: (change) => html`<${Badge} kind=${KINDS[change.action]}>${change.action}</${Badge}>` },
  { key: "what", label: "What", cell: (change) => change.what },
  { key: "name", label: "Name", head: true, className: "wrap", cell: (change) => change.name },
  { key: "difference", label: "Difference", className: "wrap", cell: difference },
];

function difference(change) {
  const before = change.before ?? {};
  const after = change.after ?? {};
  if (typeof before !== "object" || typeof after !== "object") return `${writeJson(change.before)} → ${writeJson(change.after)}`;
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((field) => writeJson(before[field]) !== writeJson(after[field]));
  return html`${fields.map((field) => html`<div key=${field}><span class="soft">${field}</span> ${field in before && html`<del>${writeJson(before[field])}</del>`} ${field in after && html`<ins>${writeJson(after[field])}</ins>`}</div>`)}${change.note && html`<div class="soft">${change.note}</div>`}`;
}

export function DefinitionsTab() {
  const [text, setText] = useState("");
  const [drop, setDrop] = useState(false);
  const [seen, setSeen] = useState(null);
  const [problem, setProblem] = useState(null);
  const edit = (value) => (setText(value), setSeen(null));
  const send = async (dry) => {
    setProblem(null);
    try {
      const type = text.trim().startsWith("{") ? "application/json" : "application/toml";
      const answer = await post(["definitions"], text, { type, parameters: { dry_run: dry ? "true" : "", remove: drop ? "true" : "" } });
      setSeen(dry ? answer : null);
      if (!dry) notify(`Applied ${answer.changes.length} changes.`);
    } catch (error) {
      setProblem(error);
    }
  };
  const open = async (event) => edit(await event.target.files[0].text());
  return html`<div class="stack">
    <${Panel} title="Export"><div class="row"><p class="soft grow">Namespaces, queues, rules and limits, without messages.</p><a class="button" href=${apiAddress(["definitions"], { format: "toml" })} download="definitions.toml">TOML</a><a class="button" href=${apiAddress(["definitions"])} download="definitions.json">JSON</a></div></${Panel}>
    <${Panel} title="Import"><div class="stack">
      <div class="field"><label for="definitions-file">File</label><input id="definitions-file" type="file" accept=".toml,.json" onChange=${open} /></div>
      <${Area} id="definitions" label="Definitions, TOML or JSON" value=${text} onChange=${edit} rows="8" wrong=${problem?.message ?? ""} />
      <${Check} id="definitions-remove" label="Delete empty queues and namespaces that are not in the file" checked=${drop} onChange=${(on) => (setDrop(on), setSeen(null))} />
      <div class="row"><button disabled=${!text.trim()} onClick=${() => send(true)}>Show the difference</button><button class="main" disabled=${!seen || seen.changes.length === 0} onClick=${() => send(false)}>Apply</button>${!seen && html`<span class="soft">Show the difference first.</span>`}</div>
    </div></${Panel}>
    ${seen && html`<${Panel} title="What would change" body=${false}>${seen.changes.length ? html`<${Table} label="Changes" columns=${COLUMNS} rows=${seen.changes} rowKey=${(change) => `${change.what} ${change.name}`} />` : html`<${Empty} title="Nothing would change">The broker already matches these definitions.</${Empty}>`}</${Panel}>`}
  </div>`;
}
