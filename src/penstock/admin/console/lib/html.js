// Exports of the libraries, with one change: invisible characters are marked in everything that is rendered.
import { h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";
import { hasUnseen, marked, plainly } from "./unseen.js";

const SPOKEN = ["title", "aria-label", "placeholder", "label"];

function seen(child) {
  if (typeof child === "string") return hasUnseen(child) ? marked(child, mark) : child;
  return Array.isArray(child) ? child.map(seen) : child;
}

const mark = (text, index) => h("span", { class: "unseen", key: index }, text);

// Marks the texts and spoken attributes of elements. Components pass theirs on to elements.
function element(type, properties, ...children) {
  if (typeof type !== "string") return h(type, properties, ...children);
  for (const name of SPOKEN) {
    if (typeof properties?.[name] === "string" && hasUnseen(properties[name])) properties = { ...properties, [name]: plainly(properties[name]) };
  }
  return h(type, properties, ...children.map(type === "option" ? plainly : seen));
}

const html = htm.bind(element);

export { html, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };
