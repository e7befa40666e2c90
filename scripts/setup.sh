# Sourced by the scripts, from the checkout's root: makes .venv with everything they need, and sets PY to its Python.
#
# .venv/.penstock-set-up says how far the set-up came and where: "making - FOLDER", "installing - FOLDER", and at the
# end "CHECKSUM-OF-PYPROJECT FOLDER". So the second time is quick, an interrupted set-up goes on where it can, a moved
# checkout or a changed pyproject.toml is noticed, and a .venv that this script did not make is left alone.
fail() { printf 'set-up: %s\n' "$1" >&2; shift; for line in "$@"; do printf '        %s\n' "$line" >&2; done; exit 3; }

HERE="$(pwd -P)"
PY="$HERE/.venv/bin/python"
STAMP=".venv/.penstock-set-up"
WANTED="$(cksum < pyproject.toml) $HERE"

new_enough() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; }

stamp() { cat "$STAMP" 2>/dev/null || true; }

ready() { [ -x "$PY" ] && [ "$(stamp)" = "$WANTED" ]; }

# Whether .venv itself is whole and here, so that only its packages are in question.
whole() {
  case "$(stamp)" in "making "*) return 1 ;; esac
  [ "$(stamp | cut -d' ' -f3-)" = "$HERE" ] && [ -x "$PY" ] && new_enough "$PY"
}

find_python() {
  local name
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer."
    BASE="$PYTHON"
    return
  fi
  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then BASE="$name"; return; fi
  done
  fail "Python 3.11 or newer was not found on the PATH." \
    "Install one (Debian: apt-get install python3 python3-venv), or name it: PYTHON=/path/to/python3.11 $0"
}

make_venv() {
  if [ -e .venv ] && [ ! -e "$STAMP" ]; then
    fail "there is a .venv here that this script did not make. Move it away and run this again."
  fi
  rm -rf .venv
  mkdir .venv && printf 'making - %s' "$HERE" > "$STAMP" && "$BASE" -m venv .venv ||
    fail "could not create the virtual environment .venv (is the disk full?)."
}

install() {
  printf 'installing - %s' "$HERE" > "$STAMP"
  "$PY" -m pip install --quiet --disable-pip-version-check --editable '.[dev]' ||
    fail "pip could not install the dependencies (its message is above)." \
      "Without a network, or behind a proxy, point pip at a reachable index (pip config, PIP_INDEX_URL) and run this again."
  # Fuzzing is optional equipment: where it cannot be had, its tests skip and say so.
  "$PY" -m pip install --quiet --disable-pip-version-check --only-binary :all: --editable '.[fuzz]' 2>/dev/null ||
    echo "set-up: atheris could not be installed (no wheel for this Python?); the fuzzing tests will be skipped" >&2
  # So is compiling: without a C compiler everything runs from source.
  local said
  said="$(PENSTOCK_COMPILED=off "$PY" -m penstock compile 2>&1)" ||
    printf 'set-up: nothing was compiled, so Penstock runs from source (%s)\n' "${said%%$'\n'*}" >&2
  printf '%s' "$WANTED" > "$STAMP"
}

set_up() {
  # Two scripts at once: the second waits, and then finds the work done.
  if command -v flock >/dev/null 2>&1; then flock 9; fi
  if ready; then return; fi
  find_python
  "$BASE" -c 'import venv, ensurepip' 2>/dev/null || fail "$("$BASE" --version) has no venv module." \
    "Install it (Debian: apt-get install python3-venv) and run this again."
  echo "set-up: preparing .venv with $("$BASE" --version) (once; later runs re-use it)" >&2
  whole || make_venv
  install
}

if ! ready; then
  : 2>/dev/null >> .venv.lock || fail "no right to write in $HERE."
  ( set_up ) 9>> .venv.lock || exit $?
fi
