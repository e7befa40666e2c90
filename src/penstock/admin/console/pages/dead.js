// Dead letters by queue and reason, with links to inspect and redrive them.
import { get, may } from "../lib/api.js";
import { age, compact, count, plural } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { overview } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { hasWildcards } from "../lib/patterns.js";
import { goQuery } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { JobDialog, JobsPanel } from "../parts/jobs.js";
import { queueAddress, QueueLink } from "../parts/names.js";
import { Badge, Figures, Head, Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const MEANINGS = { rejected: "Rejected by a consumer", retries: "Retries exhausted", expired: "Time to live expired", deliveries: "Delivered too often", overflow: "Queue was full" };

const pattern = (text) => (text === "" ? "*" : hasWildcards(text) ? text : `*${text}*`);

export function DeadPage({ query }) {
  const { find = "", reason = "", cursor = "" } = query;
  const [redriving, setRedriving] = useState(null);
  const totals = useStore(overview)?.totals;
  const state = useLoad((signal) => get(["dead"], { pattern: pattern(find), cursor }, signal), [find, cursor, totals?.dead]);
  return html`<${Head} title="Dead letters" />
    <div class="stack">
      <${Reasons} reason=${reason} />
      <${Panel} body=${false}>
        <form class="filter" role="search" aria-label="Filter the queues" onSubmit=${(event) => (event.preventDefault(), goQuery({ find: event.target.elements.find.value.trim(), cursor: "" }))}>
          <div class="field grow"><label for="find">Queues</label><input id="find" name="find" type="search" spellcheck=${false} defaultValue=${find} placeholder="Part of a name, or a pattern like orders/*" /></div>
          <button type="submit">Filter</button>
        </form>
        <${Loaded} state=${state}>${(page) => html`<${Groups} page=${page} reason=${reason} cursor=${cursor} filtered=${Boolean(find || reason)} onRedrive=${setRedriving} />`}</${Loaded}>
      </${Panel}>
      <${JobsPanel} kinds=${["redrive", "move", "delete", "purge"]} />
    </div>
    ${redriving && html`<${JobDialog} kind="redrive" queue=${redriving.queue} search=${{ reason: redriving.reason }} about=${`${plural(redriving.count, "dead letter")} of ${redriving.queue}`} onClose=${() => setRedriving(null)} onDone=${() => notify("The redrive has started. Its progress is shown below.")} />`}`;
}

function Reasons({ reason }) {
  const reasons = useStore(overview)?.dead_by_reason;
  const entries = useMemo(() => Object.entries(reasons ?? {}).filter(([, number]) => number > 0).map(([name, number]) => ({
    label: name, value: compact(number), note: MEANINGS[name], kind: "bad",
  })), [reasons]);
  if (entries.length === 0) return null;
  return html`<${Figures} label="Dead letters by reason" entries=${entries} />
    <div class="row"><span class="soft">Show:</span>${["", ...entries.map((entry) => entry.label)].map((name) => html`<button key=${name} type="button" class="small" aria-pressed=${String(name === reason)} onClick=${() => goQuery({ reason: name })}>${name || "all reasons"}</button>`)}</div>`;
}

function Groups({ page, reason, cursor, filtered, onRedrive }) {
  const rows = page.items.filter((group) => !reason || group.reason === reason);
  const foot = html`<${Pager} page=${page} word="groups" cursor=${cursor} shown=${rows.length} total=${reason ? null : page.total} />`;
  if (rows.length === 0 && !filtered) return html`<${Empty} title="No dead letters">Messages become dead letters when they are rejected, expire, exhaust their retries, or overflow their queue.</${Empty}>`;
  if (rows.length === 0) return html`<${Empty} title="No matching dead letters" />`;
  return html`<${Table} label="Dead letters by queue and reason" columns=${columns(onRedrive, rows)} rows=${rows} rowKey=${(group) => `${group.queue} ${group.reason}`} foot=${foot} />`;
}

function columns(onRedrive, rows) {
  return [
    { key: "queue", label: "Queue", head: true, className: "stretch", cell: (group) => html`<${QueueLink} name=${group.queue} /><div class="narrow-only soft">${group.reason}</div>` },
    { key: "reason", label: "Reason", off: "narrow", cell: (group) => html`<${Badge} kind="bad">${group.reason}</${Badge}>` },
    { key: "count", label: "Count", right: true, cell: (group) => count(group.count) },
    rows.some((group) => group.oldest) && { key: "oldest", label: "Oldest", right: true, off: "narrow", cell: (group) => age(group.oldest) },
    { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (group) => html`<span class="steps"><a class="button small" aria-label=${`Inspect ${group.reason} of ${group.queue}`} href=${queueAddress(group.queue, "messages", { state: "dead", reason: group.reason })}>Inspect</a>${may("operate") && html`<button type="button" class="small" aria-label=${`Redrive ${group.reason} of ${group.queue}`} onClick=${() => onRedrive(group)}>Redrive…</button>`}</span>` },
  ].filter(Boolean);
}
