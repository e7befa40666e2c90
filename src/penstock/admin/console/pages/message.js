// The history of one message, from the journal, as a timeline.
import { get, Problem, post, queueParts } from "../lib/api.js";
import { count, duration, moment } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { address, go } from "../lib/router.js";
import { Text } from "../parts/field.js";
import { queueAddress, QueueLink, StateBadge } from "../parts/names.js";
import { Badge, Facts, Head, Panel } from "../parts/panel.js";
import { Empty, Loaded, Notice } from "../parts/states.js";

const MESSAGE_ID = /^[0-9a-f]{32}$/i;
const KINDS = {
  published: ["ready", "Published"], carried: ["", "Carried forward"], returned: ["delayed", "Returned"], requeued: ["delayed", "Requeued at the end"], dead: ["dead", "Became a dead letter"],
  redriven: ["ready", "Redriven"], acknowledged: ["good", "Acknowledged"], popped: ["good", "Popped"], dropped: ["dead", "Dropped"], purged: ["dead", "Purged"], dead_purged: ["dead", "Purged from the dead letters"],
};
const WHY = { rejected: "a consumer rejected it", retries: "its retries were exhausted", expired: "its time to live expired", deliveries: "it was delivered too often", overflow: "its queue was full", lost: "its connection was lost", released: "the consumer released it", lock_expired: "its lock expired", deleted: "an operator removed it", damaged: "its payload is damaged on the disk" };

export function MessagePage({ parts, query }) {
  const [namespace, queue, id] = parts;
  if (!id) return html`<${Find} id=${query.id ?? ""} />`;
  return html`<${Life} key=${parts.join("/")} name=${`${namespace}/${queue}`} id=${id} />`;
}

// An ID does not contain its queue, so the journal is queried. IDs made by the broker end in the message's position, which
// is tried first; IDs chosen by clients are found only by a scan of all messages.
async function place(id) {
  const position = BigInt(`0x${id.slice(16)}`);
  const direct = position > 0n && position < 2n ** 63n ? await found(`position = ${position} and id = from_hex('${id}')`) : [];
  const rows = direct.length ? direct : await found(`id = from_hex('${id}')`);
  if (rows.length === 0) throw new Problem({ status: 404, code: "not-found", title: "Not found", detail: "The journal has no message with this ID. It may be older than the retained history." });
  return rows[0];
}

async function found(where) {
  try {
    return (await post(["sql"], { query: `select namespace, queue from messages where ${where} limit 1`, rows: 1 })).rows;
  } catch (problem) {
    if (problem.code !== "not-found") throw problem;
    throw new Problem({ status: 404, code: "not-found", title: "Not found", detail: "Enter its queue as well: finding a message by ID alone needs SQL, which this broker does not serve." });
  }
}

function Find({ id }) {
  const [text, setText] = useState(id);
  const [queue, setQueue] = useState("");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const find = async (wanted) => {
    setProblem(null);
    if (!MESSAGE_ID.test(wanted)) return setProblem({ field: "id", message: "An ID has 32 hexadecimal digits." });
    if (queue) return go("message", [...queueParts(queue).slice(1), wanted.toLowerCase()]);
    setBusy(true);
    try {
      go("message", [...(await place(wanted.toLowerCase())), wanted.toLowerCase()]);
    } catch (error) {
      setProblem(error);
    }
    return setBusy(false);
  };
  useEffect(() => {
    setText(id);
    if (id) find(id);
  }, [id]);
  return html`<${Head} title="Message history" />
    <${Panel}><form class="stack" onSubmit=${(event) => (event.preventDefault(), find(text.trim()))}>
      <p class="soft">All events of one message in the journal, from its publication to its end.</p>
      <div class="fields">
        <${Text} id="message-id" label="Message ID" value=${text} onChange=${setText} autocomplete="off" spellcheck=${false} wrong=${problem?.field === "id" ? problem.message : ""} />
        <${Text} id="message-queue" label="Queue" value=${queue} onChange=${setQueue} autocomplete="off" placeholder="namespace/queue" hint="Optional, but faster" />
      </div>
      <div><button type="submit" class="main" disabled=${busy}>${busy ? "Searching …" : "Show history"}</button></div>
      ${problem && problem.field !== "id" && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
    </form></${Panel}>`;
}

// The journal is searched in pieces; found events stay while the next piece is read.
function useLife(name, id) {
  const [cursor, setCursor] = useState("");
  const [events, setEvents] = useState([]);
  const state = useLoad((signal) => get([...queueParts(name), "messages", id, "events"], { cursor }, signal), [name, id, cursor]);
  useEffect(() => {
    if (!state.value) return;
    const known = new Map(events.map((event) => [event.position, event]));
    for (const event of state.value.events) known.set(event.position, event);
    setEvents([...known.values()].sort((one, other) => (one.position < other.position ? -1 : 1)));
    if (state.value.next !== null) setCursor(state.value.next);
  }, [state.value]);
  return { state, events };
}

function Life({ name, id }) {
  const { state, events } = useLife(name, id);
  const trail = html`<a href=${address("message")}>Messages</a> / <a href=${queueAddress(name)}>${name}</a>`;
  return html`<${Head} title="Message history" trail=${trail} />
    <${Loaded} state=${state}>${(life) => html`<div class="stack">
      <${Panel}><${Facts} entries=${[
        ["ID", html`<code>${life.id}</code>`],
        ["Now", life.state ? html`<${StateBadge} state=${life.state} /> in <${QueueLink} name=${life.queue} />` : html`<${Badge}>gone</${Badge}> <span class="soft">It left the broker; this is its history.</span>`],
        ["Payload", life.state && html`<a href=${queueAddress(life.queue, "messages", { state: life.state, message: life.id })}>Show</a>`],
        ["Events", count(events.length)],
        ["Lifetime", events.length > 1 && duration((new Date(events.at(-1).at) - new Date(events[0].at)) / 1000)],
      ].filter(([, value]) => value !== false)} /></${Panel}>
      ${life.since && events[0]?.kind !== "published" && html`<${Notice} kind="warn">Events before ${moment(life.since)} have been removed.</${Notice}>`}
      <${Panel} title="Events" body=${false}>${events.length ? html`<${Line} events=${events} />` : html`<${Empty} title=${life.next ? "Searching the journal" : "The journal has no events of it"} />`}</${Panel}>
    </div>`}</${Loaded}>`;
}

function Line({ events }) {
  return html`<ol class="life">
    ${events.map((event, index) => {
      const [kind, word] = KINDS[event.kind] ?? ["", event.kind];
      const before = events[index - 1];
      return html`<li key=${event.position} class=${kind}>
        <div class="life-time"><time datetime=${event.at}>${moment(event.at)}</time>${before && html`<span class="soft">+${duration((new Date(event.at) - new Date(before.at)) / 1000)}</span>`}</div>
        <div class="life-what"><strong>${word}</strong>${event.reason && event.reason !== "none" && html` <span>because ${WHY[event.reason] ?? event.reason}</span>`}
          <div class="soft">${details(event)}</div></div>
        <div class="life-where"><${QueueLink} name=${event.queue} /><span class="soft mono">#${event.position}</span></div>
      </li>`;
    })}
  </ol>`;
}

function details(event) {
  const held = event.delivered_at ? (new Date(event.at) - new Date(event.delivered_at)) / 1000 : null;
  return [event.source && `by ${event.source}`, event.deliveries && `delivery ${event.deliveries}`, held !== null && `held for ${duration(held)}`].filter(Boolean).join(" · ");
}
