#!/usr/bin/env bash
# The main job on the CPU: a seeded task, a small Qwen3-shaped model from scratch, 4 ranks, dynamic CP.
# Expected last lines:
#   == Next
#   ...
set -euo pipefail
cd "$(dirname "$0")/../.."
ringfold=build/dev/apps/ringfold/ringfold
run="${1:-runs/quickstart}"
rm -rf "$run"; mkdir -p "$run"

step() { printf '\n== %s\n' "$*"; }

step "1/4 A long-tailed task with verifiable answers (running sums, written out step by step)"
python3 examples/quickstart/generate.py "$run/task"
head -n 1 "$run/task/train.jsonl" | cut -c 1-150

step "2/4 What one step looks like: the plan of the first global batch, without training"
$ringfold plan --config recipes/quickstart.toml --data "$run/task/train.jsonl" --world-size 4

step "3/4 Training from scratch on 4 CPU ranks (teacher-forced answers on 100 unseen problems before and after)"
$ringfold launch -n 4 -- train --config recipes/quickstart.toml --model-config "$run/task/config.json" \
  --data "$run/task/train.jsonl" --eval-data "$run/task/eval.jsonl" --output-dir "$run/out" --log-level warning
python3 examples/quickstart/summary.py "$run/out"

step "4/4 Static against dynamic on the same samples, and the proof that the layout changes nothing"
$ringfold launch -n 4 -- bench --config recipes/quickstart.toml --model "$run/out/hf" --data "$run/task/train.jsonl" \
  --policies static,uniform --steps 4 --log-level error
$ringfold launch -n 4 -- parity --config recipes/quickstart.toml --model "$run/out/hf" --data "$run/task/train.jsonl" \
  --dtype float64 --log-level error

step "Next"
cat <<END
  $ringfold plan --lengths 900,100,100,3000 --world-size 4 --dynamic-context-parallel --use-dynamic-batch-size \\
    --calculate-per-token-loss --rollout-max-context-len 4096 --max-tokens-per-gpu 1024     your own lengths
  $ringfold train --help                            your own model (Hugging Face folder) and data (JSONL: token ids, texts or chats)
  less $run/out/metrics.jsonl                       one record a step
  docs/ and recipes/quickstart.toml                 what each flag does
END
