#!/usr/bin/env bash
# Two ranks on the CPU: three training steps of a tiny model, then the proof that the layout changes nothing.
# Command: examples/02_two_ranks/run.sh [PATH OF ringfold]
# Expected last lines:
#   records in metrics.jsonl: 3, loss falls: yes
#   CP sizes used: 1, 2
#   parity: equal within tolerance (24 gradients compared)
set -euo pipefail
cd "$(dirname "$0")/../.."
ringfold="${1:-build/dev/apps/ringfold/ringfold}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cat > "$work/layout.toml" <<'END'
dynamic-context-parallel = true
use-dynamic-batch-size = true
calculate-per-token-loss = true
rollout-max-context-len = 256   # S = 2 = next_power_of_2(256 / 128): short micro-batches run at 1
max-tokens-per-gpu = 128
log-level = "warning"
END
python3 examples/quickstart/generate.py "$work/task" --train 32 --eval 1 --longest 200

# `launch` starts the ranks; the same command runs under torchrun --no-python, srun or mpirun.
"$ringfold" launch -n 2 -- train --config "$work/layout.toml" --model-config "$work/task/config.json" \
  --data "$work/task/train.jsonl" --output-dir "$work/run" --global-batch-size 8 --max-steps 3 --lr 1e-3
python3 - "$work/run/metrics.jsonl" <<'END'
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
sizes = sorted({int(size) for step in steps for size in step["cp_histogram"]})
print(f"records in metrics.jsonl: {len(steps)}, loss falls: {'yes' if steps[-1]['loss'] < steps[0]['loss'] else 'no'}")
print("CP sizes used:", ", ".join(map(str, sizes)))
END
"$ringfold" launch -n 2 -- parity --config "$work/layout.toml" --model "$work/run/hf" --data "$work/task/train.jsonl" \
  --global-batch-size 4 --dtype float64 | tail -n 1
