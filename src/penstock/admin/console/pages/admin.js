// Administration: tokens, definitions, backups, draining, the journal, jobs and the audit log.
import { may } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Head, Panel, Tabs } from "../parts/panel.js";
import { JobsPanel } from "../parts/jobs.js";
import { Empty } from "../parts/states.js";
import { AuditTab } from "./admin_audit.js";
import { BackupTab } from "./admin_backup.js";
import { DefinitionsTab } from "./admin_definitions.js";
import { DrainTab } from "./admin_drain.js";
import { JournalTab } from "./admin_journal.js";
import { TokensTab } from "./admin_tokens.js";

const JobsTab = () => html`<${JobsPanel} limit=${50} />`;
const TABS = [
  { key: "tokens", label: "Tokens", show: TokensTab, role: "admin" },
  { key: "definitions", label: "Definitions", show: DefinitionsTab, role: "admin" },
  { key: "backup", label: "Backup", show: BackupTab, role: "admin" },
  { key: "drain", label: "Drain", show: DrainTab, role: "view" },
  { key: "journal", label: "Journal", show: JournalTab, role: "view" },
  { key: "jobs", label: "Jobs", show: JobsTab, role: "view" },
  { key: "audit", label: "Audit", show: AuditTab, role: "admin" },
];

export function AdminPage({ parts, query }) {
  const chosen = TABS.find((tab) => tab.key === parts[0]) ?? TABS.find((tab) => may(tab.role));
  const Tab = chosen.show;
  return html`<${Head} title="Admin" />
    <${Tabs} label="Sections" tabs=${TABS} chosen=${chosen.key} page="admin" parts=${[]} />
    ${may(chosen.role) ? html`<${Tab} query=${query} />` : html`<${Panel}><${Empty} title="Access denied">This needs the role ${chosen.role}. Log in with a token that has it, or ask an administrator for one.</${Empty}></${Panel}>`}`;
}
