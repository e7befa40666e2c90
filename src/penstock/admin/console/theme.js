// Before the first paint: the theme that was chosen here before, so that nothing flashes. A file, because the
// Content-Security-Policy allows no inline scripts.
(() => {
  let kept = null;
  try {
    kept = JSON.parse(window.localStorage.getItem("penstock.theme"));
  } catch {
    // No storage: as the system is.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
