#!/usr/bin/env bash
# Formats every C++ file (clang-format 14), or with --check fails when one is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i); [ "${1:-}" = --check ] && mode=(--dry-run --Werror)
git ls-files -co --exclude-standard '*.cpp' '*.h' '*.cu' | xargs -r clang-format "${mode[@]}"
