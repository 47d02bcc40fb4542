#!/usr/bin/env bash
# Runs every test that needs no GPU. Tests that read the reference data look at RINGFOLD_SHARED_DIR (default ../shared)
# and skip visibly where it is absent.
set -euo pipefail
cd "$(dirname "$0")/.."
export RINGFOLD_SHARED_DIR="${RINGFOLD_SHARED_DIR:-$(cd .. && pwd)/shared}"
[ -d "$RINGFOLD_SHARED_DIR" ] && echo "ringfold: reference data in $RINGFOLD_SHARED_DIR" \
  || echo "ringfold: no reference data at $RINGFOLD_SHARED_DIR; tests that need it will be shown as skipped"
exec ctest --preset dev "$@"
