// The login page: it asks for a token.
import { login } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { Text } from "../parts/field.js";

const TEXTS = {
  unauthenticated: "This token is unknown, expired or revoked.",
  "too-many": "Too many attempts. Wait a minute, then try again.",
};

export function LoginPage() {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const form = useRef(null);
  useEffect(() => {
    document.title = "Log in · Penstock";
    form.current.querySelector("input").focus();
  }, []);
  const enter = async (event) => {
    event.preventDefault();
    if (!token.trim()) return setWrong("Paste a token first.");
    setBusy(true);
    try {
      await login(token.trim());
    } catch (problem) {
      setWrong(TEXTS[problem.code] ?? problem.message);
      setBusy(false);
    }
    return undefined;
  };
  return html`<main class="login">
    <form class="panel" ref=${form} onSubmit=${enter} novalidate>
      <div class="login-brand"><img src="icon.svg" alt="" /><h1>Penstock</h1></div>
      <${Text} id="token" label="Token" type="password" autocomplete="current-password" spellcheck=${false} value=${token} onChange=${setToken} wrong=${wrong} hint="This browser stores a cookie for it that no script can read." />
      <button class="main" type="submit" disabled=${busy}>Log in</button>
      <details><summary>Where do I get a token?</summary>
        <p>The first token was printed on the terminal at the broker's first start. Without a terminal it is in the file <code>admin-token</code> in the data folder, or in the file given by <code>--admin-token-file</code>. Administrators create more on the page Admin, or with <code>penstock token create</code>.</p>
      </details>
    </form>
  </main>`;
}
