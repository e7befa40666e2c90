// Draining the queues before the broker is stopped or moved.
import { get, may, put, remove } from "../lib/api.js";
import { count, moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Confirm } from "../parts/dialog.js";
import { Check } from "../parts/field.js";
import { Facts, Panel } from "../parts/panel.js";
import { Loaded, Notice } from "../parts/states.js";
import { attempt, notify } from "../parts/toast.js";

export function DrainTab() {
  const state = useLoad((signal) => get(["drain"], {}, signal), [], { every: 2 });
  return html`<${Panel} title="Drain"><${Loaded} state=${state} lines=${3}>${(drain) => html`<${Now} drain=${drain} reload=${state.reload} />`}</${Loaded}></${Panel}>`;
}

function Now({ drain, reload }) {
  const [asking, setAsking] = useState(false);
  const [stop, setStop] = useState(false);
  const end = async () => {
    await remove(["drain"]);
    reload();
  };
  const begin = async () => {
    await put(["drain"], { stop_when_empty: stop });
    notify("Publishing is now refused.", { undo: end });
    reload();
  };
  const facts = [["Messages left", count(drain.messages_left)], ["Connections", count(drain.connections)], ["Since", drain.since && `${moment(drain.since)} by ${drain.by}`], ["Then", drain.stop_when_empty ? "the broker stops" : ""]];
  return html`<div class="stack">
    ${drain.active ? html`<${Notice} kind="warn"><strong>Draining.</strong> Publishing is refused; consumers continue.</${Notice}>` : html`<p class="soft">While draining, the broker refuses publishing and consumers empty the queues. No message is lost.</p>`}
    <${Facts} entries=${facts} />
    ${may("admin") && html`<div>${drain.active ? html`<button onClick=${() => attempt(end, "Publishing is accepted again.")}>End the drain</button>` : html`<button class="danger" onClick=${() => setAsking(true)}>Drain…</button>`}</div>`}
    ${asking && html`<${Confirm} title="Refuse publishing?" action="Drain" name="drain" onClose=${() => setAsking(false)} onConfirm=${begin}><p>Publishing is refused for all clients until the drain ends.</p><${Check} id="drain-stop" label="Stop the broker when all queues are empty" checked=${stop} onChange=${setStop} /></${Confirm}>`}
  </div>`;
}
