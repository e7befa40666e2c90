// Icons, always beside a label.
import { html } from "../lib/html.js";

const PATHS = {
  overview: "M3 12h4l3-7 4 14 3-7h4",
  queues: "M4 6h16M4 12h16M4 18h10",
  dead: "M12 8v5m0 3v.5M10.3 4.2 2.8 17.5A2 2 0 0 0 4.5 20.5h15a2 2 0 0 0 1.7-3L13.7 4.2a2 2 0 0 0-3.4 0Z",
  message: "M4 12h4m8 0h4M8 12a4 4 0 1 0 8 0 4 4 0 1 0-8 0",
  connections: "M9 7V3m6 4V3M7 7h10v5a5 5 0 0 1-10 0V7Zm5 10v4",
  pipelines: "M4 6h6a3 3 0 0 1 3 3v6a3 3 0 0 0 3 3h4M4 18h4m8-12h4",
  sql: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3Zm0 0v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  admin: "M4 7h10m4 0h2M4 17h2m4 0h10M14 7a2 2 0 1 0 4 0 2 2 0 1 0-4 0M6 17a2 2 0 1 0 4 0 2 2 0 1 0-4 0",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  up: "M12 19V6m-5 5 5-5 5 5",
  down: "M12 5v13m-5-5 5 5 5-5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8Zm0-5v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4M18.4 5.6 17 7M7 17l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5Z",
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Zm0 0v18",
  keyboard: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  copy: "M8 8h11v11H8zM5 16V5h11",
  download: "M12 4v11m-4-4 4 4 4-4M5 20h14",
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}
