# Sourced by the scripts: makes .venv with everything the checkout needs, and sets PY to its Python.
# A stamp with the checksum of pyproject.toml makes the second time quick.
fail() { printf 'set-up: %s\n' "$1" >&2; shift; for line in "$@"; do printf '        %s\n' "$line" >&2; done; exit 3; }

new_enough() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
    if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then printf '%s' "$name"; return; fi
  done
  return 1
}

PY="$PWD/.venv/bin/python"
STAMP=".venv/.penstock-set-up"
WANTED="$(cksum < pyproject.toml) $PWD"

if [ ! -x "$PY" ] || [ "$(cat "$STAMP" 2>/dev/null || true)" != "$WANTED" ]; then
  BASE="$(find_python)" || fail "Python 3.11 or newer was not found on the PATH." \
    "Install one (Debian: apt-get install python3 python3-venv), or name it: PYTHON=/path/to/python3.11 $0"
  "$BASE" -c 'import venv, ensurepip' 2>/dev/null || fail "$("$BASE" --version) has no venv module." \
    "Install it (Debian: apt-get install python3-venv) and run this again."
  echo "set-up: preparing .venv with $("$BASE" --version) (once; later runs re-use it)" >&2
  if [ ! -x "$PY" ] || ! new_enough "$PY" || [ "$(cut -d' ' -f3- "$STAMP" 2>/dev/null)" != "$PWD" ]; then
    rm -rf .venv
    "$BASE" -m venv .venv || fail "could not create the virtual environment .venv (disk full, or no right to write here?)."
  fi
  rm -f "$STAMP"
  "$PY" -m pip install --quiet --disable-pip-version-check --editable '.[dev]' || fail \
    "pip could not install the dependencies (its message is above)." \
    "Without a network, or behind a proxy, point pip at a reachable index (pip config, PIP_INDEX_URL) and run this again."
  # Fuzzing is optional equipment: where it has no wheel, its tests skip and say so.
  "$PY" -m pip install --quiet --disable-pip-version-check --only-binary :all: --editable '.[fuzz]' 2>/dev/null ||
    echo "set-up: no atheris for this Python; the fuzzing tests will be skipped" >&2
  printf '%s' "$WANTED" > "$STAMP"
fi
