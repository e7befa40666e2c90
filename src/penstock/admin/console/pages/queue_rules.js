// The rules of a queue. A change names the version it is based on, so that concurrent changes are detected.
import { get, may, patch, queueParts } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { numberOf } from "../lib/json.js";
import { useLoad } from "../lib/load.js";
import { Check, Select, Text } from "../parts/field.js";
import { Panel } from "../parts/panel.js";
import { Loaded, Notice } from "../parts/states.js";
import { attempt, notify } from "../parts/toast.js";

const isNumber = (value) => typeof value === "number" || typeof value === "bigint";
const asText = (rules) => Object.fromEntries(Object.entries(rules).map(([field, value]) => [field, isNumber(value) ? String(value) : value]));

// Only differences are sent, so that concurrent changes to other fields stay.
function difference(edited, rules) {
  const changed = Object.entries(edited).filter(([field, value]) => String(value) !== String(rules[field]));
  return Object.fromEntries(changed.map(([field, value]) => [field, isNumber(rules[field]) ? numberOf(value) : value]));
}

// The API describes each rule. Numbers come first, then choices, then switches. Pausing has a button of its own.
function Fields({ schema, edited, set, wrong }) {
  const rules = Object.entries(schema.properties).filter(([field]) => field !== "paused");
  const choices = rules.filter(([, rule]) => rule["x-choices"]);
  const switches = rules.filter(([, rule]) => rule.type === "boolean");
  const numbers = rules.filter((rule) => !choices.includes(rule) && !switches.includes(rule));
  return html`<div class="fields">
    ${numbers.map(([field, { title, description }]) => html`<${Text} key=${field} id=${field} label=${title} hint=${description} inputmode="decimal" value=${edited[field]} onChange=${set(field)} wrong=${wrong(field)} />`)}
    ${choices.map(([field, rule]) => html`<${Select} key=${field} id=${field} label=${rule.title} value=${edited[field]} onChange=${set(field)} choices=${Object.entries(rule["x-choices"])} />`)}
    ${switches.map(([field, { title }]) => html`<${Check} key=${field} id=${field} label=${title} checked=${edited[field]} onChange=${set(field)} />`)}
  </div>`;
}

export function RulesTab(properties) {
  const state = useLoad((signal) => get(["openapi.json"], {}, signal), []);
  return html`<${Loaded} state=${state}>${(api) => html`<${RulesForm} ...${properties} schema=${api.components.schemas.QueueRules} />`}</${Loaded}>`;
}

function RulesForm({ name, it, reload, schema }) {
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
  // Changes by others are shown at once, unless there are unsaved edits.
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
      notify(`Changed the configuration of ${name}.`, { undo: async () => (await patch(queueParts(name), before, now.version), reload()) });
    } catch (error) {
      setProblem(error);
    }
  };
  const load = () => attempt(async () => begin(await get(queueParts(name))), "This is the current configuration.");
  const conflict = problem?.code === "stale" || (dirty && it.version !== base.version);
  const wrong = (field) => (problem?.field?.endsWith(field) ? problem.message : Number.isNaN(changes[field]) ? "This must be a number." : "");
  const set = (field) => (value) => setEdited({ ...edited, [field]: value });
  const off = !may("admin");
  const bad = Object.values(changes).some((value) => Number.isNaN(value));
  return html`<${Panel} title="Configuration"><form class="stack" onSubmit=${save} novalidate>
    ${off && html`<${Notice}>Changing the configuration needs the role admin.</${Notice}>`}
    ${conflict && html`<${Notice} kind="warn" actions=${html`<button type="button" class="small" onClick=${load}>Load the current configuration</button>`}><strong>Somebody else has changed this configuration.</strong> Your changes were not saved. Load the current configuration, then repeat them.</${Notice}>`}
    ${problem && !conflict && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
    <fieldset disabled=${off}><legend class="hidden-text">Configuration</legend><${Fields} schema=${schema} edited=${edited} set=${set} wrong=${wrong} /></fieldset>
    ${!off && html`<div class="row"><button type="submit" class="main" disabled=${!dirty || bad}>Save</button><button type="button" disabled=${!dirty} onClick=${() => begin({ rules: base.rules, version: base.version })}>Discard</button></div>`}
  </form></${Panel}>`;
}
