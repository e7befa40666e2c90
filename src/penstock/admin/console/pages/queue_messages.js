// The messages of a queue by state, with search and selection. Browsing takes no message.
import { get, may, queueParts } from "../lib/api.js";
import { preview } from "../lib/bytes.js";
import { age, bytes, compact, count, moment } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { goQuery } from "../lib/router.js";
import { Select, Text } from "../parts/field.js";
import { JobDialog } from "../parts/jobs.js";
import { MessageDialog } from "../parts/message.js";
import { shortId, STATE_WORDS } from "../parts/names.js";
import { Panel, Pick } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const STATES = ["ready", "out", "delayed", "dead"];
const REASONS = [["", "Any reason"], ["rejected", "Rejected"], ["retries", "Retries exhausted"], ["expired", "Expired"], ["deliveries", "Delivered too often"], ["overflow", "Queue was full"]];
const LIMIT = 50;
const FIELDS = ["text", "id", "correlation_id", "published_from", "published_to", "reason", "hex"];

const isoOf = (local) => (local ? new Date(local).toISOString() : "");

function searchOf(query) {
  const found = Object.fromEntries(FIELDS.filter((field) => query[field]).map((field) => [field, query[field]]));
  for (const field of ["published_from", "published_to"]) if (found[field]) found[field] = isoOf(found[field]);
  return found;
}

export function MessagesTab({ name, it, query, reload }) {
  const { state = "ready", cursor = "", message = "" } = query;
  const search = searchOf(query);
  const wanted = JSON.stringify(search);
  // A short list follows the queue. A long one is refreshed only on request, so that it does not move.
  const followed = it[state] <= LIMIT ? it[state] : "many";
  const loaded = useLoad((signal) => get([...queueParts(name), "messages"], { state, cursor, limit: LIMIT, encoding: "base64", ...search }, signal), [name, state, cursor, wanted, followed]);
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => setChosen(new Set()), [name, state, wanted]);
  const changed = () => {
    setChosen(new Set());
    loaded.reload();
    reload();
  };
  const choices = STATES.map((key) => ({ key, label: html`${STATE_WORDS[key]} <span class="number">${compact(it[key])}</span>` }));
  return html`<${Panel} body=${false}>
    <div class="filter"><${Pick} label="State of the messages" choices=${choices} chosen=${state} onPick=${(key) => goQuery({ state: key, cursor: "", reason: "" })} /></div>
    <${SearchForm} query=${query} state=${state} />
    <${Loaded} state=${loaded}>${(page) => html`<${Found} name=${name} state=${state} page=${page} search=${search} chosen=${chosen} onChoose=${setChosen} onChanged=${changed} onRefresh=${loaded.reload} cursor=${cursor} />`}</${Loaded}>
    ${message && html`<${MessageDialog} key=${message} queue=${name} id=${message} onClose=${() => goQuery({ message: "" })} onChanged=${changed} />`}
  </${Panel}>`;
}

// Sent on submit, not while typing: a search may read many messages.
function SearchForm({ query, state }) {
  const [it, setIt] = useState(query);
  const picked = FIELDS.map((field) => query[field] ?? "").join("\n");
  useEffect(() => setIt(query), [picked, state]);
  const [open, setOpen] = useState(FIELDS.slice(1).some((field) => query[field]));
  const set = (field) => (value) => setIt({ ...it, [field]: value });
  const search = (event) => {
    event.preventDefault();
    goQuery({ ...Object.fromEntries(FIELDS.map((field) => [field, it[field]])), cursor: "" });
  };
  const clear = () => goQuery({ ...Object.fromEntries(FIELDS.map((field) => [field, ""])), cursor: "" });
  return html`<form class="filter message-search" role="search" aria-label="Search in the messages" onSubmit=${search}>
    <div class="row grow">
      <input class="grow" type="search" aria-label="Text in the payload" placeholder="Text in the payload" spellcheck=${false} value=${it.text ?? ""} onInput=${(event) => set("text")(event.target.value)} />
      <button type="submit">Search</button>
      ${picked.trim() && html`<button type="button" class="plain" onClick=${clear}>Clear</button>`}
      <button type="button" class="plain" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>${open ? "Fewer fields" : "More fields"}</button>
    </div>
    ${open && html`<div class="fields">
      <${Text} id="s-id" label="ID or its beginning" value=${it.id ?? ""} onChange=${set("id")} autocomplete="off" />
      <${Text} id="s-correlation" label="Correlation ID" value=${it.correlation_id ?? ""} onChange=${set("correlation_id")} autocomplete="off" />
      <${Text} id="s-from" label="Published from" type="datetime-local" value=${it.published_from ?? ""} onChange=${set("published_from")} />
      <${Text} id="s-to" label="Published before" type="datetime-local" value=${it.published_to ?? ""} onChange=${set("published_to")} />
      <${Text} id="s-hex" label="Bytes in the payload, hex" value=${it.hex ?? ""} onChange=${set("hex")} autocomplete="off" />
      ${state === "dead" && html`<${Select} id="s-reason" label="Reason" value=${it.reason ?? ""} onChange=${set("reason")} choices=${REASONS} />`}
    </div>`}
  </form>`;
}

function Found({ name, state, page, search, chosen, onChoose, onChanged, onRefresh, cursor }) {
  const searched = Object.keys(search).length > 0;
  const foot = html`<${Foot} page=${page} searched=${searched} cursor=${cursor} onRefresh=${onRefresh} />`;
  return html`<${Bulk} name=${name} state=${state} search=${searched ? search : null} total=${page.total} chosen=${chosen} onChanged=${onChanged} />
    ${page.items.length ? html`<${Table} label=${`Messages: ${STATE_WORDS[state]}`} columns=${columns(state, chosen, onChoose)} rows=${page.items} rowKey=${(message) => message.id} chosen=${chosen} foot=${foot} />` : html`<${NoMessages} state=${state} page=${page} searched=${searched} foot=${foot} />`}`;
}

function NoMessages({ state, page, searched, foot }) {
  if (searched && page.next !== null) return html`<${Empty} title="Nothing found so far">${count(page.looked_at)} messages were searched. Continue to search more.</${Empty}><div class="table-foot">${foot}</div>`;
  if (searched) return html`<${Empty} title="No matching messages">All messages in this state were searched.</${Empty}>`;
  return html`<${Empty} title=${`No messages: ${STATE_WORDS[state].toLowerCase()}`} />`;
}

function Foot({ page, searched, cursor, onRefresh }) {
  const words = searched ? `${count(page.items.length)} found in ${count(page.looked_at)} searched` : `${count(page.items.length)} of ${count(page.total)} messages`;
  return html`<span role="status">${words}</span>
    <div class="actions">
      <button type="button" class="small" onClick=${onRefresh}>Refresh</button>
      <button type="button" class="small" disabled=${!cursor} onClick=${() => goQuery({ cursor: "" })}>First page</button>
      <button type="button" class="small" disabled=${page.next === null} onClick=${() => goQuery({ cursor: page.next })}>${searched ? "Continue" : "Next page"}</button>
    </div>`;
}

function columns(state, chosen, onChoose) {
  const choose = (id, on) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    onChoose(next);
  };
  const choosing = state !== "out" && may("operate");
  return [
    choosing && { key: "choose", label: "Select", hideLabel: true, cell: (message) => html`<input type="checkbox" aria-label=${`Select message ${message.id}`} checked=${chosen.has(message.id)} onChange=${(event) => choose(message.id, event.target.checked)} />` },
    { key: "id", label: "Message", head: true, cell: (message) => html`<button type="button" class="link mono" aria-label=${`Message ${message.id}`} onClick=${() => goQuery({ message: message.id })}>${shortId(message.id)}</button>` },
    { key: "payload", label: "Payload", className: "preview stretch", cell: (message) => preview(message.payload) },
    state === "dead" && { key: "reason", label: "Reason", cell: (message) => message.reason },
    { key: "size", label: "Size", right: true, off: "narrow", cell: (message) => bytes(message.payload.size) },
    { key: "deliveries", label: "Deliveries", right: true, off: "middle", cell: (message) => count(message.deliveries) },
    { key: "correlation", label: "Correlation", off: "middle", className: "wrap", cell: (message) => message.correlation_id },
    state === "delayed" && { key: "due", label: "Due", right: true, cell: (message) => moment(message.due_at) },
    { key: "age", label: "Age", right: true, cell: (message) => html`<span title=${moment(message.published_at)}>${age(message.published_at)}</span>` },
  ].filter(Boolean);
}

// Actions on the selected messages, on the results of a search, or on all.
function Bulk({ name, state, search, total, chosen, onChanged }) {
  const [kind, setKind] = useState("");
  if (state === "out" || !may("operate") || total === 0) return null;
  const ids = [...chosen];
  const about = ids.length ? `${count(ids.length)} selected` : search ? "search results" : `all ${count(total)}`;
  const kinds = [state === "dead" && ["redrive", "Redrive"], state !== "delayed" && ["move", "Move"], ["delete", "Delete"]].filter(Boolean);
  return html`<div class="bulk"><span class="soft">${ids.length ? `${count(ids.length)} selected` : search ? "Search results" : `All ${count(total)}`}:</span>
    ${kinds.map(([key, word]) => html`<button key=${key} type="button" class=${`small ${key === "delete" ? "danger" : ""}`} onClick=${() => setKind(key)}>${word}…</button>`)}
    ${kind && html`<${JobDialog} kind=${kind} queue=${name} state=${state} ids=${ids} search=${ids.length ? null : search} about=${`${about} of ${name}`} onClose=${() => setKind("")} onDone=${() => (notify("The job has started."), onChanged())} />`}
  </div>`;
}
