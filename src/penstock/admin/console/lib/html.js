// What every file needs of the libraries: one place knows where they are.
import { h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";

const html = htm.bind(h);

export { html, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };
