#!/usr/bin/env bash
# Installs what Ringfold needs and says why. Idempotent: what is there already is left alone.
#   Debian packages   compiler, CMake, header libraries, test libraries
#   private Python    holds the pinned torch wheel (headers and libraries; Ringfold itself runs no Python)
# The Python environment is shared by all clones of a user: $RINGFOLD_HOME (default ~/.cache/ringfold).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

say() { echo "ringfold setup: $*"; }

packages=()
while read -r name _; do
  case "$name" in ''|'#'*) continue ;; esac
  dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || packages+=("$name")
done < scripts/debian-packages.txt
if [ ${#packages[@]} -gt 0 ]; then
  say "installing Debian packages: ${packages[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    say "error: not root. Run as root, or: sudo apt-get install ${packages[*]}" >&2; exit 2
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >build/apt.log 2>&1 || { cat build/apt.log >&2; exit 1; }
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >>build/apt.log 2>&1 || { tail -20 build/apt.log >&2; exit 1; }
fi

requirements=scripts/requirements.txt
home="${RINGFOLD_HOME:-$HOME/.cache/ringfold}"
env="$home/python-$(sha256sum $requirements | cut -c1-12)"
if [ ! -e "$env/.complete" ]; then
  say "making the private Python environment $env (torch 2.11.0 and what it links to; about 2 GB)"
  rm -rf "$env"; mkdir -p "$home"
  /usr/bin/python3 -m venv "$env"
  # --no-deps: the CPU build needs only the libraries that libtorch_cpu links to, not the whole CUDA stack.
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements"
  touch "$env/.complete"
fi
test_mark="$env/.tests-$(sha256sum scripts/test_requirements.txt | cut -c1-12)"
if [ ! -e "$test_mark" ]; then
  say "adding what tests need to it (scripts/test_requirements.txt; 23 MB)"
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps -r scripts/test_requirements.txt
  touch "$test_mark"
fi
if [ "$(readlink .venv 2>/dev/null || true)" != "$env" ]; then ln -sfn "$env" .venv; fi
say "ready: $(g++ --version | head -n1), $(cmake --version | head -n1), torch 2.11.0 in $env"
