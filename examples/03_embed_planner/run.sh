#!/usr/bin/env bash
# Builds and runs main.cpp against a build tree of Ringfold.
# Command: examples/03_embed_planner/run.sh [BUILD TREE=build/dev] [WHERE TO BUILD=build/embed]
# Expected last lines:
#   micro-step 2: CP 2 on ranks 0-1 (500 tokens per GPU), CP 2 on ranks 2-3 (226 tokens per GPU)
#   micro-step 3: CP 4 on ranks 0-3 (500 tokens per GPU)
#   a sample of 4096 tokens: refused
set -euo pipefail
cd "$(dirname "$0")/../.."
tree="$(realpath "${1:-build/dev}")" out="${2:-build/embed}"
cmake -S examples/03_embed_planner -B "$out" -Dringfold_DIR="$tree" >/dev/null
cmake --build "$out" >/dev/null
"$out/embed_planner"
