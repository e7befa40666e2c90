// Background jobs with their progress, and buttons to cancel and resume them.
import { get, may, post } from "../lib/api.js";
import { bytes, compact, count, moment, rate } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { jobs } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { useStore } from "../lib/store.js";
import { plainly } from "../lib/unseen.js";
import { Dialog } from "./dialog.js";
import { Text } from "./field.js";
import { QueueLink } from "./names.js";
import { Badge, Panel } from "./panel.js";
import { Empty, Loaded, Notice } from "./states.js";
import { Table } from "./table.js";
import { attempt } from "./toast.js";

const WORDS = { redrive: "Redrive", move: "Move", delete: "Delete", purge: "Purge", backup: "Backup" };
const KINDS = { running: "ready", waiting: "", done: "good", cancelled: "warn", interrupted: "warn", failed: "bad" };
const ENDED = ["done", "failed"];

export function JobsPanel({ kinds, title = "Jobs", limit = 8 }) {
  const live = useStore(jobs);
  const state = useLoad((signal) => get(["jobs"], { limit: 50 }, signal), [], { every: 5 });
  const rows = useMemo(() => merged(state.value?.items ?? [], live).filter((job) => !kinds || kinds.includes(job.kind)).slice(0, limit), [state.value, live]);
  return html`<${Panel} title=${title} body=${false}>
    <${Loaded} state=${state} lines=${3}>${() => (rows.length ? html`<${Table} label=${title} columns=${columns(state.reload)} rows=${rows} rowKey=${(job) => job.id} />` : html`<${Empty} title="No jobs yet" />`)}</${Loaded}>
  </${Panel}>`;
}

// Events of the stream are newer than the list.
function merged(listed, live) {
  const found = new Map(listed.map((job) => [job.id, job]));
  for (const job of Object.values(live)) {
    const before = found.get(job.id);
    if (!before || !ENDED.includes(before.state)) found.set(job.id, job);
  }
  return [...found.values()].sort((one, other) => (one.created_at < other.created_at ? 1 : -1));
}

function columns(reload) {
  return [
    { key: "kind", label: "Job", head: true, cell: (job) => WORDS[job.kind] ?? job.kind },
    { key: "queue", label: "Queue", cell: (job) => html`${job.queue && html`<${QueueLink} name=${job.queue} />`}${job.target && html` → <${QueueLink} name=${job.target} />`}` },
    { key: "state", label: "State", cell: (job) => html`<${Badge} kind=${KINDS[job.state]}>${job.state}</${Badge}>` },
    { key: "progress", label: "Progress", className: "progress wrap", cell: (job) => html`<${Progress} job=${job} />` },
    { key: "by", label: "By", off: "middle", cell: (job) => html`${job.by} <span class="soft nowrap">${moment(job.created_at)}</span>` },
    { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (job) => html`<${Steps} job=${job} reload=${reload} />` },
  ];
}

function Progress({ job }) {
  const size = job.kind === "backup" ? bytes : compact;
  const words = `${size(job.done)}${job.total === null ? "" : ` of ${size(job.total)}`}${job.skipped ? `, ${count(job.skipped)} skipped` : ""}`;
  return html`${job.total > 0 && !ENDED.includes(job.state) && html`<progress max=${job.total} value=${job.done} aria-label=${`${WORDS[job.kind]} of ${job.queue}`} />`}
    <div class="soft">${words}${job.rate ? ` at ${rate(job.rate)}/s` : ""}</div>
    ${job.detail && html`<div class=${job.state === "failed" ? "bad-text" : "soft"}>${job.detail}</div>`}`;
}

// A job that was just cancelled finishes its last step before it can be resumed.
async function retryConflict(what, times = 10) {
  try {
    return await what();
  } catch (problem) {
    if (problem.code !== "conflict" || times === 1) throw problem;
    await new Promise((resolve) => window.setTimeout(resolve, 500));
    return retryConflict(what, times - 1);
  }
}

function Steps({ job, reload }) {
  if (!may("operate")) return null;
  const step = (name, done) => async () => {
    await attempt(() => retryConflict(() => post(["jobs", job.id, name])), done);
    reload();
  };
  if (["running", "waiting"].includes(job.state)) return html`<button type="button" class="small" onClick=${step("cancel", "Cancelled. Completed steps are not undone.")}>Cancel</button>`;
  if (["cancelled", "interrupted"].includes(job.state)) return html`<button type="button" class="small" onClick=${step("resume", "Resumed.")}>Resume</button>`;
  return null;
}

// Redrives, moves or deletes all messages, the selected ones, or the results of a search.
export function JobDialog({ kind, queue, state = "dead", ids = [], search = null, about, onClose, onDone }) {
  const [target, setTarget] = useState("");
  const [speed, setSpeed] = useState("");
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(null);
  const sure = kind !== "delete" || typed === queue || typed === plainly(queue);
  const begin = async () => {
    if (!sure) return;
    const most = Number(speed); // 0 if empty: unlimited
    if (Number.isNaN(most)) return void setProblem({ field: "rate", message: "This must be a number." });
    try {
      const job = await post(["jobs"], { kind, queue, state, target, ids, search, rate: most });
      jobs.update({ [job.id]: job });
      onDone?.();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class=${`main ${kind === "delete" ? "danger" : ""}`} disabled=${!sure || (kind === "move" && !target)}>${WORDS[kind]}</button>`;
  return html`<${Dialog} title=${`${WORDS[kind]} ${about}`} onClose=${onClose} onSubmit=${begin} foot=${foot}>
    <p>${SAID[kind]}</p>
    <div class="fields">
      ${kind !== "delete" && html`<${Text} id="job-target" label="To the queue" value=${target} onChange=${setTarget} autocomplete="off" placeholder=${kind === "redrive" ? queue : "namespace/queue"} hint=${kind === "redrive" ? "Empty: the same queue" : ""} wrong=${problem?.field?.endsWith("target") ? problem.message : ""} />`}
      <${Text} id="job-rate" label="Maximum messages per second" inputmode="decimal" value=${speed} onChange=${setSpeed} hint="Empty: unlimited" wrong=${problem?.field?.endsWith("rate") ? problem.message : ""} />
      ${kind === "delete" && html`<${Text} wide id="job-typed" label=${`Type ${queue} to confirm`} value=${typed} onChange=${setTyped} autocomplete="off" />`}
    </div>
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}

const SAID = {
  redrive: "They become ready again, at the end of the queue. The job can be cancelled and resumed at any time; no message is lost or duplicated.",
  move: "They move to the end of the other queue. The job can be cancelled and resumed at any time; no message is lost or duplicated.",
  delete: "They are removed for good. The job can be cancelled while it runs, but not undone.",
};
