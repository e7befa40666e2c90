// Links and badges of queues and messages.
import { divided } from "../lib/api.js";
import { html } from "../lib/html.js";
import { address } from "../lib/router.js";
import { Badge } from "./panel.js";

export const queueAddress = (name, tab, query) => address("queue", [...divided(name), ...(tab ? [tab] : [])], query);

export function QueueLink({ name }) {
  const [namespace, queue] = divided(name);
  return html`<a class="name" title=${name} href=${queueAddress(name)}><bdi class="soft">${namespace}/</bdi><bdi>${queue}</bdi></a>`;
}

export const lifeAddress = (queue, id) => address("message", [...divided(queue), id]);

export const shortId = (id) => `${id.slice(0, 8)}…${id.slice(-4)}`;

// States of messages as badges.
export const STATE_WORDS = { ready: "Ready", out: "In flight", delayed: "Delayed", dead: "Dead" };
export const StateBadge = ({ state }) => html`<${Badge} kind=${state}>${STATE_WORDS[state]}</${Badge}>`;

const QUEUE_WORDS = { paused: "paused", backlog: "no consumer" };

// Only unusual states have a badge, so that they stand out.
export function QueueBadges({ states }) {
  return states.filter((state) => state in QUEUE_WORDS).map((state) => html`<${Badge} key=${state} kind="warn">${QUEUE_WORDS[state]}</${Badge}> `);
}
