// Consumers of the queue, and its locked messages.
import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Connections, LocksPanel } from "../parts/connections.js";
import { Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";

export function ConsumersTab({ name }) {
  const state = useLoad((signal) => get(["connections"], { queue: name }, signal), [name], { every: 3 });
  return html`<div class="stack">
    <${Panel} title="Consumers" body=${false}>
      <${Loaded} state=${state} lines=${3}>${(page) => (page.items.length ? html`<${Connections} label="Consumers" rows=${page.items} onChanged=${state.reload} />` : html`<${Empty} title="No consumers">Clients appear here while they wait for messages, hold some, or have requested one in the last minute.</${Empty}>`)}</${Loaded}>
    </${Panel}>
    <${LocksPanel} pattern=${name} />
  </div>`;
}
