// A dialog to publish a new message or an edited copy.
import { may, post, queueParts, remove } from "../lib/api.js";
import { asHex, asText, fromBase64, isEditable } from "../lib/bytes.js";
import { html, useState } from "../lib/html.js";
import { jsonPieces, numberOf } from "../lib/json.js";
import { Dialog } from "./dialog.js";
import { Area, Check, Select, Text } from "./field.js";
import { Notice } from "./states.js";
import { notify } from "./toast.js";

const ENCODINGS = [["text", "Text"], ["json", "JSON (validated, sent unchanged)"], ["hex", "Hex bytes"]];

function beginning(message) {
  if (!message) return { payload: "", encoding: "text" };
  const data = fromBase64(message.payload.value);
  const text = asText(data);
  return isEditable(text) ? { payload: text, encoding: "text" } : { payload: asHex(data), encoding: "hex" };
}

const number = (text) => (text.trim() === "" ? null : numberOf(text));

export function PublishDialog({ queue, copyOf, onClose, onDone }) {
  const [it, setIt] = useState({
    ...beginning(copyOf), target: queue, priority: String(copyOf?.priority ?? 0), ttl: "", delay: "", correlation: copyOf?.correlation_id ?? "", drop: false,
  });
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (field) => (value) => setIt({ ...it, [field]: value });
  const cut = copyOf?.payload.truncated;
  const publish = async () => {
    setProblem(null);
    const message = read(it, setProblem);
    if (!message || busy) return;
    setBusy(true);
    try {
      const { ids } = await post([...queueParts(it.target), "messages"], { messages: [message] });
      if (it.drop) await remove([...queueParts(queue), "messages", copyOf.id]);
      notify(`Published ${ids[0]} to ${it.target}${it.drop ? " and deleted the original" : ""}.`);
      onDone?.();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const wrong = (field) => (problem?.field?.endsWith(field) ? problem.message : "");
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${busy || cut}>Publish</button>`;
  return html`<${Dialog} wide title=${copyOf ? "Edit a copy" : `Publish to ${queue}`} onClose=${onClose} onSubmit=${publish} foot=${foot}>
    ${cut && html`<${Notice} kind="warn">The payload is too large to edit here. Download it, and publish it with <code>penstock send</code>.</${Notice}>`}
    <${Area} id="payload" label="Payload" value=${it.payload} onChange=${set("payload")} wrong=${wrong("payload")} rows="10" />
    <div class="fields">
      <${Select} id="encoding" label="Payload encoding" value=${it.encoding} onChange=${set("encoding")} choices=${ENCODINGS} />
      ${copyOf && html`<${Text} id="target" label="To the queue" value=${it.target} onChange=${set("target")} autocomplete="off" />`}
      <${Text} id="priority" label="Priority" inputmode="numeric" value=${it.priority} onChange=${set("priority")} wrong=${wrong("priority")} />
      <${Text} id="ttl" label="Time to live, seconds" inputmode="decimal" value=${it.ttl} onChange=${set("ttl")} wrong=${wrong("ttl_seconds")} hint="Empty: the queue's default" />
      <${Text} id="delay" label="Delay, seconds" inputmode="decimal" value=${it.delay} onChange=${set("delay")} wrong=${wrong("delay_seconds")} />
      <${Text} id="correlation" label="Correlation ID" value=${it.correlation} onChange=${set("correlation")} wrong=${wrong("correlation_id")} autocomplete="off" />
    </div>
    ${copyOf && may("operate") && copyOf.state !== "out" && html`<${Check} id="drop" label="Delete the original message" checked=${it.drop} onChange=${set("drop")} />`}
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}

// The message for the API, or undefined after reporting an invalid field.
function read(it, reportInvalid) {
  const message = { payload: it.payload, encoding: it.encoding === "hex" ? "hex" : "text", priority: number(it.priority) ?? 0, ttl_seconds: number(it.ttl), delay_seconds: number(it.delay) ?? 0, correlation_id: it.correlation };
  const bad = [["priority", message.priority], ["ttl_seconds", message.ttl_seconds], ["delay_seconds", message.delay_seconds]].find(([, value]) => Number.isNaN(value));
  if (bad) return void reportInvalid({ field: bad[0], message: "This must be a number." });
  if (it.encoding === "hex") message.payload = it.payload.replace(/\s+/g, "");
  if (it.encoding === "json" && jsonPieces(it.payload) === undefined) return void reportInvalid({ field: "payload", message: "This is not valid JSON." });
  return message;
}
