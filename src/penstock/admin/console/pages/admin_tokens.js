// Tokens: made, shown once, revoked.
import { get, post, remove } from "../lib/api.js";
import { moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Check, Select, Text } from "../parts/field.js";
import { Badge, Panel } from "../parts/panel.js";
import { Empty, Loaded, Notice } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { notify } from "../parts/toast.js";

const RIGHTS = [
  ["view", "View everything"], ["operate", "Pause, purge, publish, redrive"], ["admin", "Rules, tokens, backup, drain"],
  ["publish", "Publish"], ["consume", "Consume"], ["dead-letter", "Work with dead letters"], ["administer", "Administer queues over the protocols"], ["read", "Read history (Flight, Spark)"], ["create", "Create queues"],
];
const LIFETIMES = [["", "Does not expire"], ["3600", "An hour"], ["86400", "A day"], ["2592000", "30 days"], ["31536000", "A year"]];

export function TokensTab() {
  const state = useLoad((signal) => get(["tokens"], {}, signal), []);
  const [step, setStep] = useState(null);
  const close = () => (setStep(null), state.reload());
  const columns = [
    { key: "name", label: "Name", head: true, className: "stretch", cell: (token) => html`<span class="name">${token.name}</span> ${token.expired && html`<${Badge} kind="warn">expired</${Badge}>`}<div class="narrow-only soft">${token.may.join(", ")}</div>` },
    { key: "may", label: "Rights", off: "narrow", className: "wrap", cell: (token) => token.may.join(", ") },
    { key: "where", label: "Queues", className: "wrap", cell: (token) => html`<code>${token.where.join(" ")}</code>` },
    { key: "made", label: "Created", off: "narrow", cell: (token) => html`${moment(token.created_at)} <span class="soft">by ${token.created_by}</span>` },
    { key: "expires", label: "Expires", off: "narrow", cell: (token) => (token.expires_at ? moment(token.expires_at) : "–") },
    { key: "steps", label: "Actions", hideLabel: true, right: true, cell: (token) => html`<button type="button" class="small danger" onClick=${() => setStep({ revoke: token })}>Revoke…</button>` },
  ];
  return html`<${Panel} title="Tokens" body=${false} actions=${html`<button class="main small" onClick=${() => setStep({ make: true })}>New token</button>`}>
      <${Loaded} state=${state}>${(page) => (page.items.length ? html`<${Table} label="Tokens" columns=${columns} rows=${page.items} rowKey=${(token) => token.id} />` : html`<${Empty} title="No tokens" />`)}</${Loaded}>
    </${Panel}>
    ${step?.make && html`<${NewToken} onClose=${close} />`}
    ${step?.revoke && html`<${Revoke} token=${step.revoke} onClose=${close} />`}`;
}

function NewToken({ onClose }) {
  const [it, setIt] = useState({ name: "", may: new Set(["view"]), where: "*", life: "" });
  const [made, setMade] = useState(null);
  const [problem, setProblem] = useState(null);
  const set = (change) => setIt({ ...it, ...change });
  const choose = (right, on) => {
    const rights = new Set(it.may);
    if (on) rights.add(right);
    else rights.delete(right);
    set({ may: rights });
  };
  const make = async () => {
    try {
      const where = it.where.split(/[\s,]+/).filter(Boolean);
      setMade(await post(["tokens"], { name: it.name, may: [...it.may], where, expires_in_seconds: it.life ? Number(it.life) : null }));
    } catch (error) {
      setProblem(error);
    }
  };
  if (made) return html`<${Made} made=${made} onClose=${onClose} />`;
  const wrong = (field) => (problem?.field?.endsWith(field) ? problem.message : "");
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${!it.name || it.may.size === 0}>Create token</button>`;
  return html`<${Dialog} wide title="New token" onClose=${onClose} onSubmit=${make} foot=${foot}>
    <div class="fields">
      <${Text} id="token-name" label="Token name" value=${it.name} onChange=${(name) => set({ name })} autocomplete="off" wrong=${wrong("name")} />
      <${Text} id="token-where" label="Queues" value=${it.where} onChange=${(where) => set({ where })} autocomplete="off" hint="Patterns like orders/*, separated by spaces" wrong=${wrong("where")} />
      <${Select} id="token-life" label="Expires" value=${it.life} onChange=${(life) => set({ life })} choices=${LIFETIMES} />
    </div>
    <fieldset><legend>Rights</legend><div class="fields">${RIGHTS.map(([right, words]) => html`<${Check} key=${right} id=${`may-${right}`} label=${html`<b>${right}</b> <span class="soft">${words}</span>`} checked=${it.may.has(right)} onChange=${(on) => choose(right, on)} />`)}</div></fieldset>
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}

function Made({ made, onClose }) {
  const copy = () => navigator.clipboard.writeText(made.token).then(() => notify("Copied."), () => notify("The browser does not allow copying; select the token and copy it yourself.", { bad: true }));
  return html`<${Dialog} title="The new token" onClose=${onClose} foot=${html`<button type="button" class="main" onClick=${onClose}>Done</button>`}>
    <${Notice} kind="warn">The token is shown only now: only its hash is stored.</${Notice}>
    <div class="field"><label for="token-made">Token of ${made.summary.name}</label><div class="row"><input id="token-made" class="grow mono" readonly value=${made.token} onFocus=${(event) => event.target.select()} /><button type="button" onClick=${copy}>Copy</button></div></div>
  </${Dialog}>`;
}

function Revoke({ token, onClose }) {
  const revoke = async () => {
    await remove(["tokens", token.id]);
    notify(`Revoked the token of ${token.name}.`);
  };
  return html`<${Confirm} title="Revoke this token?" action="Revoke it" name=${token.name} onClose=${onClose} onConfirm=${revoke}><p>All its users are refused immediately. This can't be undone; you can create a new token.</p></${Confirm}>`;
}
