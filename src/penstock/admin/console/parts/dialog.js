// Native dialogs: focus stays inside, Escape closes, and focus returns afterwards.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { plainly } from "../lib/unseen.js";
import { Icon } from "./icons.js";
import { Notice } from "./states.js";

let numbers = 0;

export function Dialog({ title, onClose, children, foot, wide, onSubmit }) {
  const dialog = useRef(null);
  const [id] = useState(() => `dialog-${(numbers += 1)}`);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    onSubmit?.();
  };
  // Browsers may force a dialog to close, at a second Escape.
  return html`<dialog ref=${dialog} class=${wide ? "wide" : null} aria-labelledby=${id} onCancel=${(event) => (event.preventDefault(), onClose())} onClose=${onClose}>
    <form onSubmit=${submit} novalidate>
      <div class="dialog-head"><h2 id=${id}>${title}</h2><button type="button" class="icon plain" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></div>
      <div class="dialog-body">${children}</div>
      ${foot && html`<div class="dialog-foot">${foot}</div>`}
    </form>
  </dialog>`;
}

// Confirmation of an irreversible action: it states the consequences, and may ask to type a name.
export function Confirm({ title, name, action, onClose, onConfirm, children }) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const right = !name || typed === name || typed === plainly(name);
  const confirm = async () => {
    if (!right || busy) return;
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="danger main" disabled=${!right || busy}>${action}</button>`;
  return html`<${Dialog} title=${title} onClose=${onClose} onSubmit=${confirm} foot=${foot}>
    <div>${children}</div>
    ${name && html`<div class="field"><label for="typed-name">Type <code>${name}</code> to confirm</label><input id="typed-name" autocomplete="off" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></div>`}
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}
