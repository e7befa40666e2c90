// Payloads are bytes of any sort. They come as base64 and are shown from the bytes themselves, so nothing is changed by
// the way: numbers keep all their digits, bytes that are no text stay bytes.
export function fromBase64(text) {
  return Uint8Array.from(window.atob(text), (character) => character.charCodeAt(0));
}

// The text, or null if it is none. A cut may have gone through the last character.
export function asText(bytes, truncated = false) {
  for (let cut = 0; cut <= (truncated ? 3 : 0); cut += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, bytes.length - cut));
    } catch {
      // One byte less, or no text at all.
    }
  }
  return null;
}

// A number as it was written.
export class Digits {
  constructor(text) {
    this.text = text;
  }
}

// The value, or undefined if the text is no JSON.
export function asJson(text) {
  try {
    return JSON.parse(text, (key, value, context) => (typeof value === "number" && context ? new Digits(context.source) : value));
  } catch {
    return undefined;
  }
}

const WIDTH = 16;

export function hexLines(bytes, most) {
  const lines = [];
  for (let start = 0; start < Math.min(bytes.length, most); start += WIDTH) {
    const row = bytes.subarray(start, Math.min(start + WIDTH, bytes.length));
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0"));
    const shown = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    const halves = [digits.slice(0, 8).join(" "), digits.slice(8).join(" ")].join("  ");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${halves.padEnd(48)}  ${shown}`);
  }
  return lines;
}

// One line of a payload in a list, from what the API made of it.
export function preview(payload) {
  if (payload.size === 0) return "(empty)";
  const text = payload.encoding === "json" ? JSON.stringify(payload.value) : String(payload.value);
  const line = text.replace(/\s+/g, " ");
  return payload.truncated ? `${line}…` : line;
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
