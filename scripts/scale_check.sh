#!/usr/bin/env bash
# Policies side by side on all GPUs of this host (2, 4, 8), or small on the CPU: a table with NCCL's start-up figures, the raw
# JSON lines and a picture a workload (timeline of each policy's last step), under nine minutes. Builds nothing: runs from the
# bundle that scripts/gpu_bundle.sh makes, or with --cpu from build/dev.
# Usage: scale_check.sh [--cpu RANKS]; SCALE_STEPS: steps a policy [3]; files go to $OUT (default: a temporary folder).
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${OUT:-$(mktemp -d)}"
ranks=0 device=cuda dtype=bfloat16 recompute=selective
if [ "${1:-}" = --cpu ]; then ranks="$2" device=cpu dtype=float32 recompute=none; fi
if [ $device = cuda ]; then
  . "$here/gpu_host.sh"
  models="$bundle/models" scripts="$bundle"
  ranks="$gpus"
  git_commit="$bundle_commit"
else
  ringfold="$here/../build/dev/apps/ringfold/ringfold" models="$here/../bench/models" scripts="$here"
  git_commit="$(git -C "$here" rev-parse HEAD)"
fi
raw="$out/scale.jsonl" table="$out/scale.txt"
: >"$raw"; : >"$table"
echo "commit $git_commit, $ranks ranks on $device" | tee -a "$table"

# workload NAME MODEL LAW BUDGET S SAMPLES-A-STEP [FLAGS]
workload() {
  local name="$1" model="$2" law="$3" budget="$4" s="$5" batch="$6" files; shift 6
  files="$out/$(echo "$name" | tr -c 'A-Za-z0-9\n' _)"
  local log="$files.log"
  local steps="${SCALE_STEPS:-3}" cost="$out/cost_${model}_$budget.toml"
  local common=(--model-config "$models/$model.json" --device $device --dtype $dtype --recompute $recompute
    --dynamic-context-parallel --use-dynamic-batch-size --max-tokens-per-gpu "$budget" --calculate-per-token-loss
    --rollout-max-context-len $((budget * s)) --log-prob-chunk-tokens 4096)
  if [ ! -e "$cost" ]; then
    timeout -k 5 120 "$ringfold" launch -n "$ranks" -- bench "${common[@]}" --steps 2 --calibrate "$cost" >"$cost.log" 2>&1 || {
      echo "$name: calibration FAILED, see $cost.log" | tee -a "$table"; tail -n 5 "$cost.log"; return 1; }
    grep -h "NCCL connected" "$cost.log" | tee -a "$table"
  fi
  timeout -k 5 150 "$ringfold" launch -n "$ranks" -- bench --json "${common[@]}" --law "$law" \
    --samples $((batch * (steps + 1))) --global-batch-size "$batch" --skip-bad-samples --update --cost-model "$cost" \
    --peak-tflops 989 --warmup-steps 2 --steps $steps --log-level warning --timeline "$files.timeline.jsonl" \
    --policies static,static_work,uniform,mixed "$@" >"$log" 2>&1 || { echo "$name: FAILED, see $log" | tee -a "$table"; tail -n 5 "$log"; return 1; }
  python3 "$scripts/timeline_picture.py" "$files.timeline.jsonl" "$files.svg" "$name, $ranks ranks on $device" \
    "static by tokens,static by work,uniform,mixed"
  python3 - "$log" "$name" "$raw" <<'PY' | tee -a "$table"
import json, sys
data = json.loads([line for line in open(sys.argv[1]) if line.startswith("{")][-1])
data["workload"] = sys.argv[2]
open(sys.argv[3], "a").write(json.dumps(data) + "\n")
print(sys.argv[2])
for row in data["policies"]:
    shares = " ".join(f"{size}:{100 * share:.0f}%" for size, share in row["cp_token_share"].items())
    print(f"  {row['policy']:<12} {row['median_ms']:9.1f} ms, predicted {row['predicted_ms']:9.1f}, {row['ratio']:5.2f}x, "
          f"T* {100 * row['share_of_limit']:3.0f} %, loss {row['loss']:.5f}, "
          f"{row['tokens_per_s_per_rank']:8.0f} tok/s/rank, {100 * row.get('mfu', 0):5.1f} % MFU, "
          f"exposed {row['exposed_comm_ms']:7.1f} ms, tokens by CP {shares}")
PY
}
failed=0
if [ $device = cpu ]; then
  workload "tiny model, lognormal lengths" tiny mega $((2048 / ranks)) "$ranks" $((2 * ranks)) || failed=1
else
  workload "Megatron's lognormal" megatron_small mega 4096 2 $((64 * ranks)) || failed=1
  workload "Qwen3-4B, multimodal lengths, S 2" qwen3_4b mm 16384 2 $((16 * ranks)) || failed=1
  [ "$ranks" -ge 4 ] && { workload "Qwen3-4B, multimodal lengths, S 4" qwen3_4b mm 8192 4 $((16 * ranks)) || failed=1; }
  workload "Qwen3-1.7B, RL lengths, S 2" qwen3_1_7b rl 16384 2 $((8 * ranks)) || failed=1
  [ "$ranks" -ge 8 ] && { workload "Qwen3-1.7B, RL lengths, S 8" qwen3_1_7b rl 4096 8 $((32 * ranks)) || failed=1; }
  workload "Qwen3-1.7B, conversation lengths, S 2" qwen3_1_7b moon 32768 2 $((8 * ranks)) || failed=1
fi
echo "--- result; logs and scale.jsonl in $out"
cat "$table"
exit $failed
