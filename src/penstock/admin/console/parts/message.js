// A dialog for one message: its payload, its properties and actions. Opening it does not take the message.
import { apiAddress, get, may, post, queueParts, remove } from "../lib/api.js";
import { fromBase64 } from "../lib/bytes.js";
import { count, duration, moment } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Confirm, Dialog } from "./dialog.js";
import { lifeAddress, QueueLink, StateBadge } from "./names.js";
import { Facts } from "./panel.js";
import { PayloadView } from "./payload.js";
import { PublishDialog } from "./publish.js";
import { Loaded } from "./states.js";
import { attempt, notify } from "./toast.js";

// The API's limit; the whole payload is a download.
const SHOWN_BYTES = 65_536;
const MOST_BYTES = 1_048_576;

export function MessageDialog({ queue, id, onClose, onChanged }) {
  const [most, setMost] = useState(SHOWN_BYTES);
  const [step, setStep] = useState("");
  const state = useLoad((signal) => get([...queueParts(queue), "messages", id], { bytes: most, encoding: "base64" }, signal), [queue, id, most]);
  const changed = () => {
    onChanged?.();
    onClose();
  };
  if (step === "copy") return html`<${PublishDialog} queue=${queue} copyOf=${state.value} onClose=${() => setStep("")} onDone=${changed} />`;
  if (step === "delete") return html`<${Delete} queue=${queue} message=${state.value} onClose=${() => setStep("")} onDone=${changed} />`;
  return html`<${Dialog} wide title="Message" onClose=${onClose} foot=${state.value && html`<${Steps} queue=${queue} message=${state.value} onStep=${setStep} onChanged=${changed} />`}>
    <${Loaded} state=${state}>${(message) => html`<${Shown} queue=${queue} message=${message} onMore=${message.payload.truncated && most < MOST_BYTES ? () => setMost(MOST_BYTES) : null} />`}</${Loaded}>
  </${Dialog}>`;
}

function Shown({ queue, message, onMore }) {
  const data = useMemo(() => fromBase64(message.payload.value), [message.payload.value]);
  const download = apiAddress([...queueParts(queue), "messages", message.id, "payload"]);
  return html`<${PayloadView} data=${data} total=${message.payload.size} truncated=${message.payload.truncated} download=${download} />
    ${onMore && html`<button type="button" class="small" onClick=${onMore}>Show more</button>`}
    <${Facts} entries=${facts(message)} />`;
}

function facts(message) {
  const { holder } = message;
  return [
    ["State", html`<${StateBadge} state=${message.state} /> ${message.reason ?? ""}`],
    ["Queue", html`<${QueueLink} name=${message.queue} />`],
    ["ID", html`<code>${message.id}</code>`],
    ["Published", html`${moment(message.published_at)} <span class="soft">by ${message.source || "–"} ${message.source_info}</span>`],
    ["Deliveries", `${count(message.deliveries)}${message.retries_left === null ? "" : `, ${count(message.retries_left)} left`}`],
    ["Priority", message.priority ? count(message.priority) : ""],
    ["Due", message.due_at && moment(message.due_at)],
    ["Expires", message.expires_at && moment(message.expires_at)],
    ["Correlation", message.correlation_id && html`<code>${message.correlation_id}</code>`],
    ["Request", message.request_id && html`<code>${message.request_id}</code>`],
    ["Held by", holder && html`${holder.reader ? `reader ${holder.reader}` : `connection ${holder.connection}`} ${holder.peer} <span class="soft">for ${duration((Date.now() - new Date(holder.since)) / 1000)}${holder.until ? `, until ${moment(holder.until)}` : ""}</span>`],
  ];
}

function Steps({ queue, message, onStep, onChanged }) {
  const redrive = async () => {
    const done = await attempt(() => post(["jobs"], { kind: "redrive", queue, state: "dead", ids: [message.id] }), "Sent back to its queue.");
    if (done) onChanged();
  };
  return html`<a class="button" href=${lifeAddress(queue, message.id)}>Message history</a>
    ${may("operate") && html`<button type="button" onClick=${() => onStep("copy")}>Edit a copy</button>`}
    ${may("operate") && message.state !== "out" && html`<button type="button" class="danger" onClick=${() => onStep("delete")}>Delete</button>`}
    ${may("operate") && message.state === "dead" && html`<button type="button" class="main" onClick=${redrive}>Redrive</button>`}`;
}

function Delete({ queue, message, onClose, onDone }) {
  const confirm = async () => {
    await remove([...queueParts(queue), "messages", message.id]);
    notify("Deleted the message.");
    onDone();
  };
  return html`<${Confirm} title="Delete this message?" action="Delete it" name=${message.id.slice(-4)} onClose=${onClose} onConfirm=${confirm}>
    <p>Message <code>${message.id}</code> is removed from ${queue} for good. Its history stays in the journal.</p>
  </${Confirm}>`;
}
