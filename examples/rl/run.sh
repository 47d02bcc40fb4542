#!/usr/bin/env bash
# RL on the CPU: a small model that has learned the quickstart's task halfway improves on its own answers, 4 ranks.
# Expected last lines: mean reward of the first and the last 20 rollouts, the second at least 0.2 higher.
set -euo pipefail
cd "$(dirname "$0")/../.."
ringfold=build/dev/apps/ringfold/ringfold
run="${1:-runs/rl}"; seed="${2:-1}"
rm -rf "$run"; mkdir -p "$run"
export OMP_NUM_THREADS=1

step() { printf '\n== %s\n' "$*"; }

step "1/3 The task, and a model that was taught a little of it"
python3 examples/quickstart/generate.py "$run/task" --longest 60 --train 1024 --eval 64
$ringfold launch -n 2 -- train --config recipes/rl_quickstart_warmup.toml --model-config "$run/task/config.json" \
  --init-seed "$seed" --seed "$seed" --data "$run/task/train.jsonl" --output-dir "$run/warm" --log-level error

step "2/3 rl: rollout, rewards of examples/rl/judge.py, training"
$ringfold launch -n 4 -- rl --config recipes/rl_quickstart.toml --model "$run/warm/hf" --seed "$seed" \
  --data "$run/task/train.jsonl" --output-dir "$run/out" --rm-type program --rm-program "python3 examples/rl/judge.py" \
  --log-level warning --no-progress

step "3/3 Rewards"
python3 - "$run/out/rollouts.jsonl" <<'PYTHON'
import json, sys
rewards = [json.loads(line)["reward_mean"] for line in open(sys.argv[1])]
print("  first 20 rollouts %.3f, last 20 rollouts %.3f" % (sum(rewards[:20]) / 20, sum(rewards[-20:]) / 20))
PYTHON
