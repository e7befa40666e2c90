// Charts since this page was opened, and counters since the queue was created.
import { compact, count, rate } from "../lib/format.js";
import { html } from "../lib/html.js";
import { queueSamples } from "../lib/live.js";
import { useStore } from "../lib/store.js";
import { History, STATES } from "../parts/chart.js";
import { Facts, Panel } from "../parts/panel.js";

const RATES = [["Published", 1, (one) => one.rates.published], ["Delivered", 2, (one) => one.rates.delivered], ["Settled", 3, (one) => one.rates.settled]];

export function ActivityTab({ it }) {
  const past = useStore(queueSamples);
  const since = Object.entries(it.counters).map(([name, value]) => [name.replace("_", " "), count(value)]);
  const reasons = Object.entries(it.dead_by_reason).map(([name, value]) => [name, count(value)]);
  return html`<div class="stack">
    <div class="columns">
      <${History} title="Messages per second, since this page was opened" label="Messages per second" past=${past} lines=${RATES} format=${rate} />
      <${History} title="Messages in the queue, since this page was opened" label="Messages in the queue" past=${past} lines=${STATES} format=${compact} />
    </div>
    <div class="columns">
      <${Panel} title="Messages since the queue was created"><${Facts} entries=${since} /></${Panel}>
      <${Panel} title="Dead letters by reason">${reasons.length ? html`<${Facts} entries=${reasons} />` : html`<p class="soft">None.</p>`}</${Panel}>
    </div>
  </div>`;
}
