// One queue: its messages, activity, consumers and rules.
import { divided, get, may, post, put, queueParts, remove } from "../lib/api.js";
import { age, bytes, compact, plural, rate } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { queueNow, useLiveQueue } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { address, go } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { Confirm } from "../parts/dialog.js";
import { Check } from "../parts/field.js";
import { QueueBadges } from "../parts/names.js";
import { Figures, Head, Panel, Tabs } from "../parts/panel.js";
import { PublishDialog } from "../parts/publish.js";
import { Loaded, Notice } from "../parts/states.js";
import { attempt, notify } from "../parts/toast.js";
import { ActivityTab } from "./queue_activity.js";
import { ConsumersTab } from "./queue_consumers.js";
import { MessagesTab } from "./queue_messages.js";
import { RulesTab } from "./queue_rules.js";

const TABS = [{ key: "messages", label: "Messages" }, { key: "activity", label: "Activity" }, { key: "consumers", label: "Consumers and locks" }, { key: "rules", label: "Configuration" }];
// The stream reports changes; deletion is detected by polling.
const SECONDS = 4;
const SHOWN = { messages: MessagesTab, activity: ActivityTab, consumers: ConsumersTab, rules: RulesTab };

export function QueuePage({ parts, query }) {
  const [namespace = "", queue = "", tab = "messages"] = parts;
  return html`<${One} key=${`${namespace}/${queue}`} namespace=${namespace} queue=${queue} tab=${tab} query=${query} />`;
}

// The key makes sure that no data of one queue is shown on the page of another.
function One({ namespace, queue, tab, query }) {
  const name = `${namespace}/${queue}`;
  const state = useLoad((signal) => get(queueParts(name), {}, signal), [name], { every: SECONDS });
  useLiveQueue(name, state.value !== undefined);
  const live = useStore(queueNow);
  // The newest data: from the stream, or loaded after a change on this page.
  const shown = state.value && live?.name === name && live.heard > state.at ? { ...state.value, ...live } : state.value;
  const trail = html`<a href=${address("queues")}>Queues</a> / <a href=${address("queues", [], { find: `${namespace}/*` })}>${namespace}</a>`;
  const Tab = SHOWN[tab] ?? MessagesTab;
  return html`<${Head} title=${queue} trail=${trail} badges=${shown && html`<${QueueBadges} states=${shown.states} />`}>
      ${shown && html`<${Steps} it=${shown} name=${name} reload=${state.reload} />`}
    </${Head}>
    <${Loaded} state=${state}>${() => html`<div class="stack">
      ${shown.paused && html`<${Notice} kind="warn"><strong>Paused.</strong> Messages are accepted and not delivered.</${Notice}>`}
      <${Numbers} it=${shown} />
      <div><${Tabs} label="Sections" tabs=${TABS} chosen=${tab} page="queue" parts=${[namespace, queue]} />
      <${Tab} name=${name} it=${shown} query=${query} reload=${state.reload} /></div>
    </div>`}</${Loaded}>`;
}

function Numbers({ it }) {
  const entries = [
    { label: "Ready", value: compact(it.ready), note: bytes(it.bytes) },
    { label: "In flight", value: compact(it.out), note: plural(it.consumers, "consumer") },
    { label: "Delayed", value: compact(it.delayed) },
    { label: "Dead", value: compact(it.dead), kind: it.dead ? "bad" : "" },
    { label: "Published", value: rate(it.rates.published), unit: "/s" },
    { label: "Delivered", value: rate(it.rates.delivered), unit: "/s", note: it.rates.redelivered > 0 && `${rate(it.rates.redelivered)}/s repeated` },
    { label: "Settled", value: rate(it.rates.settled), unit: "/s" },
    { label: "Oldest ready", value: age(it.oldest) },
  ];
  return html`<${Figures} across="8" label="Figures of this queue" entries=${entries} />`;
}

function Steps({ it, name, reload }) {
  const [step, setStep] = useState("");
  const close = () => setStep("");
  if (!may("operate")) return null;
  return html`
    <button class="main" onClick=${() => setStep("publish")}>Publish</button>
    <button onClick=${() => pause(name, it.paused, reload)}>${it.paused ? "Resume" : "Pause"}</button>
    <button class="danger" onClick=${() => setStep("purge")}>Purge</button>
    ${may("admin") && html`<button class="danger" onClick=${() => setStep("delete")}>Delete</button>`}
    ${step === "publish" && html`<${PublishDialog} queue=${name} onClose=${close} onDone=${reload} />`}
    ${step === "purge" && html`<${Purge} it=${it} name=${name} onClose=${close} reload=${reload} />`}
    ${step === "delete" && html`<${Delete} it=${it} name=${name} onClose=${close} />`}`;
}

async function pause(name, paused, reload) {
  const turn = (word) => async () => {
    await post([...queueParts(name), word]);
    reload();
  };
  const [now, back] = paused ? ["resume", "pause"] : ["pause", "resume"];
  await attempt(turn(now), paused ? `Resumed ${name}.` : `Paused ${name}.`, { undo: turn(back) });
}

function Purge({ it, name, onClose, reload }) {
  const [states, setStates] = useState({ ready: true, delayed: false, dead: false });
  const chosen = Object.keys(states).filter((state) => states[state]);
  const purge = async () => {
    await post([...queueParts(name), "purge"], { states: chosen, confirm: name });
    notify(`Purging ${name}.`);
    reload();
  };
  return html`<${Confirm} title="Purge this queue?" action="Purge" name=${name} onClose=${onClose} onConfirm=${purge}>
    <p>All messages in these states are removed for good. Messages in flight stay with their consumers.</p>
    <fieldset class="stack"><legend>Remove messages that are</legend>
      ${Object.keys(states).map((state) => html`<${Check} key=${state} id=${`purge-${state}`} label=${`${state} (${compact(it[state])})`} checked=${states[state]} onChange=${(value) => setStates({ ...states, [state]: value })} />`)}
    </fieldset>
  </${Confirm}>`;
}

function Delete({ it, name, onClose }) {
  const left = it.ready + it.out + it.delayed + it.dead;
  const restore = async () => {
    const [namespace, queue] = divided(name);
    await put(["queues", namespace, queue], { rules: it.rules });
    go("queue", [namespace, queue]);
  };
  const confirm = async () => {
    await remove(queueParts(name));
    notify(`Deleted ${name}.`, { undo: restore });
    go("queues");
  };
  return html`<${Confirm} title="Delete this queue?" action="Delete it" name=${name} onClose=${onClose} onConfirm=${confirm}>
    ${left > 0 ? html`<p>It contains ${plural(left, "message")}: only an empty queue can be deleted. Purge it first.</p>` : html`<p>The queue and its configuration are removed. This can be undone for a short time.</p>`}
  </${Confirm}>`;
}
