#!/usr/bin/env bash
# RL on the CPU: `ringfold rl` on 4 ranks, from a model that answers 9 to 18 % of its problems until it answers about 80 %.
# Command: examples/rl/run.sh [PATH OF ringfold] [RUN] [SEED] [ROLLOUTS]
# Expected last lines:
#   the last 20 rollouts earn at least 0.2 more than the first 20, each of 1 run
set -euo pipefail
cd "$(dirname "$0")/../.."
ringfold="${1:-build/dev/apps/ringfold/ringfold}"
run="${2:-runs/rl}" seed="${3:-1}" rollouts="${4:-80}"
rm -rf "$run"; mkdir -p "$run"

# Samples of 20 tokens need no context parallelism: every rank packs whole ones.
layout=(--use-dynamic-batch-size --calculate-per-token-loss --max-tokens-per-gpu 1024 --seed "$seed" --shuffle
  --log-level warning --no-progress)

echo "== 1/3 Short running sums, demonstrated by a teacher who slips"
python3 examples/rl/task.py "$run/task" --seed "$seed"

echo "== 2/3 Warm start: the model learns to answer, slips included"
"$ringfold" launch -n 4 -- train "${layout[@]}" --model-config "$run/task/config.json" --init-seed "$seed" \
  --data "$run/task/demonstrations.jsonl" --output-dir "$run/warm" --global-batch-size 64 --max-steps 150 \
  --lr 3e-3 --lr-warmup-steps 20 --no-save

echo "== 3/3 RL: 8 answers to each of 16 problems a rollout; a reward of 1 for the right response, else 0"
"$ringfold" launch -n 4 -- rl "${layout[@]}" --model "$run/warm/hf" --data "$run/task/prompts.jsonl" --output-dir "$run/rl" \
  --objective grpo --num-rollout "$rollouts" --rollout-batch-size 16 --n-samples-per-prompt 8 --rollout-max-response-len 16 \
  --rollout-stop-token-ids 4 --rm-type exact --lr 1e-3
python3 examples/rl/curve.py "$run/rl/rollouts.jsonl" --window $((rollouts < 4 ? 1 : rollouts / 4)) --rise 0.2 --svg "$run/curve.svg"
