// The rules of a queue. A change names the version it was made from, so two people can't undo each other unseen.
import { get, may, patch, queueParts } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { numberOf } from "../lib/json.js";
import { Check, Select, Text } from "../parts/field.js";
import { Panel } from "../parts/panel.js";
import { Notice } from "../parts/states.js";
import { attempt, tell } from "../parts/toast.js";

const NUMBERS = [
  ["default_ttl_seconds", "Time to live, seconds", "Of messages that come without one. 0: without end"],
  ["max_deliveries", "Maximum deliveries", "After that a message is dead. 0: no limit"],
  ["max_depth", "Maximum messages", "0: no limit"],
  ["max_bytes", "Maximum bytes", "0: no limit"],
  ["lock_seconds", "Lock duration, seconds", "How long a consumer may hold a message (Kokaq)"],
  ["deduplication_seconds", "De-duplication window, seconds", "How long an ID is remembered"],
];
const WORDS = { on_expiry: [["dead", "become dead letters"], ["drop", "are dropped"]], on_full: [["reject", "reject new messages"], ["drop-oldest", "drop the oldest"]] };

const asText = (rules) => ({ ...rules, ...Object.fromEntries(NUMBERS.map(([field]) => [field, String(rules[field])])) });

// Only what differs is sent: what others have changed meanwhile in other fields stays.
function difference(edited, rules) {
  const changed = Object.entries(edited).filter(([field, value]) => String(value) !== String(rules[field]));
  return Object.fromEntries(changed.map(([field, value]) => [field, NUMBERS.some(([name]) => name === field) ? numberOf(value) : value]));
}

export function RulesTab({ name, it, reload }) {
  const [base, setBase] = useState({ rules: it.rules, version: it.version });
  const [edited, setEdited] = useState(asText(it.rules));
  const [problem, setProblem] = useState(null);
  const begin = (queue) => {
    setBase({ rules: queue.rules, version: queue.version });
    setEdited(asText(queue.rules));
    setProblem(null);
  };
  const changes = difference(edited, base.rules);
  const dirty = Object.keys(changes).length > 0;
  // What somebody else has changed is shown at once, unless something is being edited here.
  useEffect(() => {
    if (it.version !== base.version && !dirty) begin(it);
  }, [it.version]);
  const save = async (event) => {
    event.preventDefault();
    const before = Object.fromEntries(Object.keys(changes).map((field) => [field, base.rules[field]]));
    try {
      const now = await patch(queueParts(name), changes, base.version);
      begin(now);
      reload();
      tell(`Changed the configuration of ${name}.`, { undo: async () => (await patch(queueParts(name), before, now.version), reload()) });
    } catch (error) {
      setProblem(error);
    }
  };
  const take = () => attempt(async () => begin(await get(queueParts(name))), "This is the current configuration.");
  const conflict = problem?.code === "stale" || (dirty && it.version !== base.version);
  const wrong = (field) => (problem?.field?.endsWith(field) ? problem.message : Number.isNaN(changes[field]) ? "This must be a number." : "");
  const set = (field) => (value) => setEdited({ ...edited, [field]: value });
  const off = !may("admin");
  const bad = Object.values(changes).some((value) => Number.isNaN(value));
  return html`<${Panel} title="Configuration"><form class="stack" onSubmit=${save} novalidate>
    ${off && html`<${Notice}>Changing the configuration needs the role admin.</${Notice}>`}
    ${conflict && html`<${Notice} kind="warn" actions=${html`<button type="button" class="small" onClick=${take}>Load the current configuration</button>`}><strong>Somebody else has changed this configuration.</strong> Your changes were not saved. Look at theirs first, then make yours again.</${Notice}>`}
    ${problem && !conflict && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
    <fieldset disabled=${off}><legend class="hidden-text">Configuration</legend><div class="fields">
      ${NUMBERS.map(([field, label, hint]) => html`<${Text} key=${field} id=${field} label=${label} hint=${hint} inputmode="decimal" value=${edited[field]} onChange=${set(field)} wrong=${wrong(field)} />`)}
      <${Select} id="on_expiry" label="Expired messages" value=${edited.on_expiry} onChange=${set("on_expiry")} choices=${WORDS.on_expiry} />
      <${Select} id="on_full" label="When full" value=${edited.on_full} onChange=${set("on_full")} choices=${WORDS.on_full} />
      <${Check} id="dead_letters" label="Keep dead letters" checked=${edited.dead_letters} onChange=${set("dead_letters")} />
    </div></fieldset>
    ${!off && html`<div class="row"><button type="submit" class="main" disabled=${!dirty || bad}>Save</button><button type="button" disabled=${!dirty} onClick=${() => begin({ rules: base.rules, version: base.version })}>Discard</button></div>`}
  </form></${Panel}>`;
}
