#!/usr/bin/env bash
# A dry run: what one step of ten samples looks like on 4 ranks. No model, no GPU, no other process; works in every build.
# Command: examples/01_plan_only/run.sh [PATH OF ringfold]
# Expected last lines:
#   micro-steps: 4
#   CP sizes used: 1, 2, 4
#   tokens run without any splitting: 24 %
set -euo pipefail
cd "$(dirname "$0")/../.."
ringfold="${1:-build/dev/apps/ringfold/ringfold}"

flags=(--lengths 2000,1000,1000,500,400,300,450,350,500,300 --world-size 4
  --dynamic-context-parallel --use-dynamic-batch-size --calculate-per-token-loss
  --rollout-max-context-len 2048 --max-tokens-per-gpu 512)

# For people: every micro-step with its groups, and what static CP would cost.
"$ringfold" plan "${flags[@]}"

# For scripts: the same as JSON (docs/reference/plan_json.md).
"$ringfold" plan "${flags[@]}" --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
sizes = sorted({group["cp_size"] for step in plan["micro_steps"] for group in step["groups"]})
print("micro-steps:", len(plan["micro_steps"]))
print("CP sizes used:", ", ".join(map(str, sizes)))
print("tokens run without any splitting: {:.0%}".format(plan["summary"]["cp_token_share"]["1"]).replace("%", " %"))'
