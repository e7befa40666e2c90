// All queues, filtered, sorted and paged by the server. The selection is in the address.
import { get, may, put } from "../lib/api.js";
import { age, bytes, compact, rate } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useLoad, useSettled } from "../lib/load.js";
import { hasWildcards } from "../lib/patterns.js";
import { go, goQuery } from "../lib/router.js";
import { Dialog } from "../parts/dialog.js";
import { Text } from "../parts/field.js";
import { QueueBadges, QueueLink } from "../parts/names.js";
import { Head, Panel } from "../parts/panel.js";
import { Empty, Loaded, Notice } from "../parts/states.js";
import { Pager, Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const STATES = [["", "Any state"], ["active", "Active"], ["idle", "Idle"], ["backlog", "Backlog without consumer"], ["dead", "With dead letters"], ["paused", "Paused"], ["empty", "Empty"]];
const LIMIT = 100;
const SECONDS = 3;

const COLUMNS = [
  { key: "name", label: "Queue", sort: "name", head: true, className: "stretch", cell: (queue) => html`<${QueueLink} name=${queue.name} />` },
  { key: "states", label: "State", off: "narrow", cell: (queue) => html`<${QueueBadges} states=${queue.states} />` },
  { key: "ready", label: "Ready", sort: "ready", right: true, cell: (queue) => compact(queue.ready) },
  { key: "out", label: "In flight", sort: "out", right: true, off: "middle", cell: (queue) => compact(queue.out) },
  { key: "delayed", label: "Delayed", sort: "delayed", right: true, off: "middle", cell: (queue) => compact(queue.delayed) },
  { key: "dead", label: "Dead", sort: "dead", right: true, cell: (queue) => (queue.dead ? html`<strong class="bad-text">${compact(queue.dead)}</strong>` : "0") },
  { key: "published", label: "Published /s", sort: "published", right: true, off: "narrow", cell: (queue) => rate(queue.rates.published) },
  { key: "delivered", label: "Delivered /s", sort: "delivered", right: true, off: "full", cell: (queue) => rate(queue.rates.delivered) },
  { key: "settled", label: "Settled /s", sort: "settled", right: true, off: "middle", cell: (queue) => rate(queue.rates.settled) },
  { key: "oldest", label: "Oldest", sort: "oldest", right: true, cell: (queue) => age(queue.oldest) },
  { key: "consumers", label: "Consumers", sort: "consumers", right: true, off: "middle", cell: (queue) => compact(queue.consumers) },
  { key: "bytes", label: "Size", sort: "bytes", right: true, off: "wide", cell: (queue) => bytes(queue.bytes) },
];

// A text with wildcards is a pattern; without, a part of the name.
export function found(text) {
  return hasWildcards(text) ? { pattern: text } : { contains: text };
}

export function QueuesPage({ query }) {
  const { find = "", state = "", sort = "name", order = "ascending", cursor = "" } = query;
  const [making, setMaking] = useState(false);
  const loaded = useLoad((signal) => get(["queues"], { ...found(find), state, sort, order, cursor, limit: LIMIT }, signal), [find, state, sort, order, cursor], { every: SECONDS });
  return html`<${Head} title="Queues">
      ${may("admin") && html`<button class="main" onClick=${() => setMaking(true)}>New queue</button>`}
    </${Head}>
    <${Panel} body=${false}>
      <${Filter} find=${find} state=${state} />
      <${Loaded} state=${loaded} lines=${12}>${(page) => html`<${List} page=${page} query=${{ find, state, sort, order, cursor }} />`}</${Loaded}>
    </${Panel}>
    ${making && html`<${NewQueue} onClose=${() => setMaking(false)} />`}`;
}

function Filter({ find, state }) {
  const [text, setText] = useState(find);
  const settled = useSettled(text);
  const sent = useRef(find);
  useEffect(() => {
    if (settled !== sent.current) {
      sent.current = settled;
      goQuery({ find: settled, cursor: "" }, { replace: true });
    }
  }, [settled]);
  useEffect(() => {
    if (find !== sent.current) {
      sent.current = find;
      setText(find);
    }
  }, [find]);
  return html`<div class="filter">
    <div class="field grow"><label for="find">Name</label><input id="find" type="search" spellcheck=${false} autocomplete="off" placeholder="Part of a name, or a pattern like orders/*" value=${text} onInput=${(event) => setText(event.target.value)} /></div>
    <div class="field"><label for="state">State</label><select id="state" value=${state} onChange=${(event) => goQuery({ state: event.target.value, cursor: "" })}>${STATES.map(([key, word]) => html`<option key=${key} value=${key} selected=${key === state}>${word}</option>`)}</select></div>
  </div>`;
}

function List({ page, query }) {
  const { find, state, sort, order, cursor } = query;
  if (page.items.length === 0) return html`<${Nothing} filtered=${Boolean(find || state)} />`;
  const foot = html`<${Pager} page=${page} word="queues" cursor=${cursor} />`;
  return html`<${Table} label="Queues" columns=${COLUMNS} rows=${page.items} rowKey=${(queue) => queue.name} sort=${{ by: sort, order }} onSort=${(by, next) => goQuery({ sort: by, order: next, cursor: "" })} foot=${foot} />`;
}

function Nothing({ filtered }) {
  if (!filtered) return html`<${Empty} title="No queues yet">Clients create queues if the configuration allows it; administrators create them here.</${Empty}>`;
  return html`<div class="state"><strong>No matching queues</strong><button onClick=${() => goQuery({ find: "", state: "", cursor: "" })}>Show all queues</button></div>`;
}

function NewQueue({ onClose }) {
  const [namespace, setNamespace] = useState("default");
  const [name, setName] = useState("");
  const [problem, setProblem] = useState(null);
  const make = async () => {
    try {
      await put(["queues", namespace, name], {});
      notify(`Created ${namespace}/${name}.`);
      onClose();
      go("queue", [namespace, name, "rules"]);
    } catch (error) {
      setProblem(error);
    }
  };
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${!namespace || !name}>Create queue</button>`;
  return html`<${Dialog} title="New queue" onClose=${onClose} onSubmit=${make} foot=${foot}>
    <div class="fields">
      <${Text} id="new-namespace" label="Namespace" value=${namespace} onChange=${setNamespace} autocomplete="off" />
      <${Text} id="new-name" label="Queue" value=${name} onChange=${setName} autocomplete="off" hint="It is configured on the next page." />
    </div>
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}
