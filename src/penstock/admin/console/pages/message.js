// Everything that happened to one message, from the journal, on a line of time.
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
  published: ["ready", "Published"], carried: ["", "Carried forward"], returned: ["delayed", "Returned"], requeued: ["delayed", "Put at the end"], dead: ["dead", "Became a dead letter"],
  redriven: ["ready", "Redriven"], acknowledged: ["good", "Acknowledged"], popped: ["good", "Taken for good"], dropped: ["dead", "Dropped"], purged: ["dead", "Purged"], dead_purged: ["dead", "Purged from the dead letters"],
};
const WHY = { rejected: "a consumer rejected it", retries: "its retries ran out", expired: "its time to live ran out", deliveries: "it was given out too often", overflow: "its queue was full", lost: "the connection that had it went away", released: "the consumer gave it back", lock_expired: "the lock ran out", deleted: "an operator removed it", damaged: "its payload is damaged on the disk" };

export function MessagePage({ parts, query }) {
  const [namespace, queue, id] = parts;
  if (!id) return html`<${Find} id=${query.id ?? ""} />`;
  return html`<${Life} key=${parts.join("/")} name=${`${namespace}/${queue}`} id=${id} />`;
}

// An ID says nothing of its queue: the journal is asked for it. IDs that the broker makes end in the message's position,
// so that is looked at first; a client may have asked for another, which only a look at all messages finds.
async function place(id) {
  const position = BigInt(`0x${id.slice(16)}`);
  const known = position > 0n && position < 2n ** 63n ? await found(`position = ${position} and id = from_hex('${id}')`) : [];
  const rows = known.length ? known : await found(`id = from_hex('${id}')`);
  if (rows.length === 0) throw new Problem({ status: 404, code: "not-found", title: "Not found", detail: "The journal knows no message with this ID. It may be older than the history that is kept." });
  return rows[0];
}

async function found(where) {
  try {
    return (await post(["sql"], { query: `select namespace, queue from messages where ${where} limit 1`, rows: 1 })).rows;
  } catch (problem) {
    if (problem.code !== "not-found") throw problem;
    throw new Problem({ status: 404, code: "not-found", title: "Not found", detail: "Name its queue as well: without SQL, which this broker does not serve, an ID alone is not enough." });
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
  return html`<${Head} title="A message’s life" />
    <${Panel}><form class="stack" onSubmit=${(event) => (event.preventDefault(), find(text.trim()))}>
      <p class="soft">Every event of one message, from its publication to its end, as the journal has it.</p>
      <div class="fields">
        <${Text} id="message-id" label="Message ID" value=${text} onChange=${setText} autocomplete="off" spellcheck=${false} wrong=${problem?.field === "id" ? problem.message : ""} />
        <${Text} id="message-queue" label="Queue" value=${queue} onChange=${setQueue} autocomplete="off" placeholder="namespace/queue" hint="If it is known, that is quicker" />
      </div>
      <div><button type="submit" class="main" disabled=${busy}>${busy ? "Looking …" : "Show its life"}</button></div>
      ${problem && problem.field !== "id" && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
    </form></${Panel}>`;
}

// The journal is looked through a piece at a time; what was found stays while the next piece is read.
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
  return html`<${Head} title="A message’s life" trail=${trail} />
    <${Loaded} state=${state}>${(life) => html`<div class="stack">
      <${Panel}><${Facts} entries=${[
        ["ID", html`<code>${life.id}</code>`],
        ["Now", life.state ? html`<${StateBadge} state=${life.state} /> in <${QueueLink} name=${life.queue} />` : html`<${Badge}>gone</${Badge}> <span class="soft">It left the broker; its history is still here.</span>`],
        ["Payload", life.state && html`<a href=${queueAddress(life.queue, "messages", { state: life.state, message: life.id })}>Look at it</a>`],
        ["Events", count(events.length)],
        ["Lived", events.length > 1 && duration((new Date(events.at(-1).at) - new Date(events[0].at)) / 1000)],
      ].filter(([, value]) => value !== false)} /></${Panel}>
      ${life.since && events[0]?.kind !== "published" && html`<${Notice} kind="warn">What happened before ${moment(life.since)} is not kept any more.</${Notice}>`}
      <${Panel} title="What happened" body=${false}>${events.length ? html`<${Line} events=${events} />` : html`<${Empty} title=${life.next ? "Looking through the journal" : "The journal has nothing of it any more"} />`}</${Panel}>
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
          <div class="soft">${told(event)}</div></div>
        <div class="life-where"><${QueueLink} name=${event.queue} /><span class="soft mono">#${event.position}</span></div>
      </li>`;
    })}
  </ol>`;
}

function told(event) {
  const held = event.delivered_at ? (new Date(event.at) - new Date(event.delivered_at)) / 1000 : null;
  return [event.source && `by ${event.source}`, event.deliveries && `delivery ${event.deliveries}`, held !== null && `held for ${duration(held)}`].filter(Boolean).join(" · ");
}
