// Charts since this page was opened, and counters since the queue was created.
import { compact, count, rate } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { queueSamples } from "../lib/live.js";
import { useStore } from "../lib/store.js";
import { Chart } from "../parts/chart.js";
import { Facts, Panel } from "../parts/panel.js";

export function ActivityTab({ it }) {
  const past = useStore(queueSamples);
  const times = useMemo(() => past.map((one) => one.at), [past]);
  const rates = useMemo(() => [
    { label: "Published", colour: 1, values: past.map((one) => one.rates.published) },
    { label: "Delivered", colour: 2, values: past.map((one) => one.rates.delivered) },
    { label: "Settled", colour: 3, values: past.map((one) => one.rates.settled) },
  ], [past]);
  const depth = useMemo(() => [
    { label: "Ready", colour: 1, values: past.map((one) => one.ready) },
    { label: "In flight", colour: 2, values: past.map((one) => one.out) },
    { label: "Delayed", colour: 5, values: past.map((one) => one.delayed) },
    { label: "Dead", colour: 4, values: past.map((one) => one.dead) },
  ], [past]);
  const since = Object.entries(it.counters).map(([name, value]) => [name.replace("_", " "), count(value)]);
  const reasons = Object.entries(it.dead_by_reason).map(([name, value]) => [name, count(value)]);
  return html`<div class="stack">
    <div class="columns">
      <${Panel} title="Messages per second, since this page was opened"><${Chart} label="Messages per second" times=${times} series=${rates} format=${rate} /></${Panel}>
      <${Panel} title="Messages in the queue, since this page was opened"><${Chart} label="Messages in the queue" times=${times} series=${depth} format=${compact} /></${Panel}>
    </div>
    <div class="columns">
      <${Panel} title="Messages since the queue was created"><${Facts} entries=${since} /></${Panel}>
      <${Panel} title="Dead letters by reason">${reasons.length ? html`<${Facts} entries=${reasons} />` : html`<p class="soft">None.</p>`}</${Panel}>
    </div>
  </div>`;
}
