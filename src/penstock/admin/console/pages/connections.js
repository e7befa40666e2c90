// All connections, with filters, and all locks.
import { get } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useLoad, useSettled } from "../lib/load.js";
import { goQuery } from "../lib/router.js";
import { Connections, LocksPanel } from "../parts/connections.js";
import { Check, Select, Text } from "../parts/field.js";
import { Head, Panel } from "../parts/panel.js";
import { Empty, Loaded } from "../parts/states.js";
import { Pager } from "../parts/table.js";

export function ConnectionsPage({ query }) {
  const { find = "", protocol = "", throttled = "", sort = "id", order = "ascending", cursor = "" } = query;
  const state = useLoad((signal) => get(["connections"], { contains: find, protocol, throttled: throttled ? "true" : "", sort, order, cursor }, signal), [find, protocol, throttled, sort, order, cursor], { every: 3 });
  const broker = useLoad((signal) => get(["overview"], {}, signal), []);
  const protocols = [["", "All protocols"], ...Object.entries(broker.value?.protocols ?? {})];
  const [text, setText] = useState(find);
  const settled = useSettled(text);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) goQuery({ find: settled, cursor: "" }, { replace: true });
    first.current = false;
  }, [settled]);
  const filtered = Boolean(find || protocol || throttled);
  const foot = (page) => html`<${Pager} page=${page} word="connections" cursor=${cursor} />`;
  return html`<${Head} title="Connections" />
    <div class="stack">
      <${Panel} body=${false}>
        <div class="filter">
          <div class="grow"><${Text} id="find" label="Address, certificate or user" type="search" value=${text} onChange=${setText} autocomplete="off" spellcheck=${false} /></div>
          <${Select} id="protocol" label="Protocol" value=${protocol} onChange=${(value) => goQuery({ protocol: value, cursor: "" })} choices=${protocols} />
          <${Check} id="throttled" label="Only throttled" checked=${Boolean(throttled)} onChange=${(on) => goQuery({ throttled: on ? "yes" : "", cursor: "" })} />
        </div>
        <${Loaded} state=${state}>${(page) => (page.items.length ? html`<${Connections} label="Connections" rows=${page.items} sort=${{ by: sort, order }} onSort=${(by, next) => goQuery({ sort: by, order: next, cursor: "" })} foot=${foot(page)} onChanged=${state.reload} />` : html`<${Empty} title=${filtered ? "No matching connections" : "No connections"} />`)}</${Loaded}>
      </${Panel}>
      <${LocksPanel} pattern="*" />
    </div>`;
}
