// The state of the broker: health, alarms, rates, backlog and the longest queues.
import { get } from "../lib/api.js";
import { age, bytes, compact, count, duration, moment, percent, plural, rate } from "../lib/format.js";
import { html, useEffect } from "../lib/html.js";
import { commits, overview, samples } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { address } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { History, STATES } from "../parts/chart.js";
import { QueueLink } from "../parts/names.js";
import { Badge, Facts, Figures, Head, Panel } from "../parts/panel.js";
import { Empty, Loaded, Loading, Notice } from "../parts/states.js";
import { Table } from "../parts/table.js";

export function OverviewPage() {
  const now = useStore(overview);
  const first = useLoad((signal) => get(["overview"], {}, signal), []);
  useHistory();
  const shown = now ?? first.value;
  return html`<${Head} title="Overview" badges=${shown && html`<${Badge}>${shown.version}</${Badge}>`} />
    ${shown ? html`<${Whole} it=${shown} />` : html`<${Panel}><${Loaded} state=${first}>${() => html`<${Loading} />`}</${Loaded}></${Panel}>`}`;
}

// Loads the minutes before this page was opened; the stream continues from there.
function useHistory() {
  useEffect(() => {
    if (samples.get().length > 1) return;
    get(["history"]).then(
      (page) => {
        const newest = page.items.at(-1)?.at ?? "";
        samples.set([...page.items, ...samples.get().filter((one) => one.at > newest)]);
      },
      () => {}, // The history needs the right to view all queues; without it the charts start empty.
    );
  }, []);
}

function Whole({ it }) {
  const past = useStore(samples);
  const recentCommits = useStore(commits);
  return html`<div class="stack">
    <${Verdict} it=${it} />
    ${it.alarms.length > 0 && html`<${Alarms} alarms=${it.alarms} />`}
    <${Numbers} it=${it} />
    <div class="columns">
      <${History} title="Messages per second" past=${past} lines=${RATES} format=${rate} />
      <${History} title="Messages in the queues" past=${past} lines=${STATES} format=${compact} />
    </div>
    <div class="columns">
      <${Busiest} />
      <div class="stack"><${History} title="Time of a commit" past=${recentCommits} lines=${TIMES} format=${duration} height=${120} /><${About} it=${it} /></div>
    </div>
  </div>`;
}

function Verdict({ it }) {
  if (it.draining) return html`<${Notice} kind="warn"><strong>Draining:</strong> publishing is refused while the queues are emptied.</${Notice}>`;
  if (it.ready) return html`<${Notice} kind="good"><strong>Accepts messages.</strong> <span class="soft">Up for ${duration((Date.now() - new Date(it.started_at)) / 1000)}${it.ephemeral ? ", in memory only: nothing survives a restart" : ""}.</span></${Notice}>`;
  return html`<${Notice} kind="bad"><strong>Does not accept messages.</strong><ul class="reasons">${it.reasons.map((reason) => html`<li key=${reason}>${reason}</li>`)}</ul></${Notice}>`;
}

function Alarms({ alarms }) {
  return html`<${Panel} title=${plural(alarms.length, "alarm")} body=${false}>
    <ul class="alarms">${alarms.map((alarm) => html`<li key=${alarm.code}><${Badge} kind=${alarm.level === "error" ? "bad" : "warn"}>${alarm.level}</${Badge}><span>${alarm.text}</span></li>`)}</ul>
  </${Panel}>`;
}

function Numbers({ it }) {
  const { totals, commits: commit, disk } = it;
  const entries = [
    { label: "Published", value: rate(totals.rates.published), unit: "/s" },
    { label: "Delivered", value: rate(totals.rates.delivered), unit: "/s", note: totals.rates.redelivered > 0 && `${rate(totals.rates.redelivered)}/s repeated` },
    { label: "Settled", value: rate(totals.rates.settled), unit: "/s" },
    { label: "Ready", value: compact(totals.ready), note: bytes(totals.bytes), href: address("queues", [], { sort: "ready", order: "descending" }) },
    { label: "In flight", value: compact(totals.out), note: plural(totals.consumers, "consumer") },
    { label: "Delayed", value: compact(totals.delayed) },
    { label: "Dead", value: compact(totals.dead), kind: totals.dead > 0 ? "bad" : "", href: address("dead") },
    { label: "Oldest ready", value: totals.oldest ? age(totals.oldest) : "–" },
    { label: "Commit", value: duration(commit.seconds), note: `sync ${duration(commit.sync_seconds)}, ${rate(commit.per_second)}/s` },
    { label: "Disk free", value: disk ? percent(disk.free_bytes / disk.total_bytes) : "–", note: disk && bytes(disk.free_bytes), kind: disk && disk.free_bytes < disk.min_free_bytes * 2 ? "warn" : "" },
  ];
  return html`<${Figures} across="5" label="Figures of the broker" entries=${entries} />`;
}

const RATES = [["Published", 1, (one) => one.published_per_second], ["Delivered", 2, (one) => one.delivered_per_second], ["Settled", 3, (one) => one.settled_per_second]];
const TIMES = [["Commit", 1, (one) => one.seconds], ["Sync", 3, (one) => one.sync_seconds], ["Loop lag", 5, (one) => one.loop_lag]];

function Busiest() {
  const state = useLoad((signal) => get(["queues"], { sort: "ready", order: "descending", limit: 12 }, signal), [], { every: 3 });
  const columns = [
    { key: "name", label: "Queue", head: true, className: "stretch", cell: (queue) => html`<${QueueLink} name=${queue.name} />` },
    { key: "ready", label: "Ready", right: true, cell: (queue) => compact(queue.ready) },
    { key: "dead", label: "Dead", right: true, cell: (queue) => compact(queue.dead) },
    { key: "in", label: "Published /s", off: "slim", right: true, cell: (queue) => rate(queue.rates.published) },
    { key: "done", label: "Settled /s", right: true, off: "narrow", cell: (queue) => rate(queue.rates.settled) },
    { key: "age", label: "Oldest", right: true, cell: (queue) => age(queue.oldest) },
  ];
  return html`<${Panel} title="Longest queues" body=${false} actions=${html`<a href=${address("queues", [], { sort: "ready", order: "descending" })}>All queues</a>`}>
    <${Loaded} state=${state}>${(page) => (page.items.length ? html`<${Table} label="Longest queues" columns=${columns} rows=${page.items} rowKey=${(queue) => queue.name} />` : html`<${Empty} title="No queues yet">The first client that uses a queue creates it, or you on the page Queues.</${Empty}>`)}</${Loaded}>
  </${Panel}>`;
}

function About({ it }) {
  const protocols = Object.entries(it.connections_by_protocol).map(([name, number]) => `${name} ${count(number)}`).join(", ");
  const reasons = Object.entries(it.dead_by_reason).map(([name, number]) => `${name} ${compact(number)}`).join(", ");
  const listeners = Object.entries(it.listeners).flatMap(([name, addresses]) => addresses.map((one) => html`<div key=${name + one}><span class="soft">${name}</span> <code>${one}</code></div>`));
  const entries = [
    ["Queues", html`${count(it.totals.queues)} in ${plural(it.totals.namespaces, "namespace")}`],
    ["Connections", html`<a href=${address("connections")}>${count(it.connections)}</a>${protocols && ` (${protocols})`}`],
    ["Readers", html`<a href=${address("pipelines")}>${count(it.readers)}</a>`],
    ["Dead by reason", reasons],
    ["Damaged", it.totals.damaged ? plural(it.totals.damaged, "message") : ""],
    ["Memory", bytes(it.memory_bytes)],
    ["Disk", it.disk && html`${bytes(it.disk.free_bytes)} free of ${bytes(it.disk.total_bytes)}; publishing stops below ${bytes(it.disk.min_free_bytes)}`],
    ["Started", moment(it.started_at)],
    ["Code", it.code],
    ["Listens on", listeners.length > 0 && listeners],
  ];
  return html`<${Panel} title="The broker"><${Facts} entries=${entries.filter(([, value]) => value !== false)} /></${Panel}>`;
}
