#!/usr/bin/env bash
# Tests, parity and speed on the GPUs of this host; builds nothing. Runs from the bundle that scripts/gpu_bundle.sh makes
# (or with RINGFOLD_GPU_BUNDLE set to it). Logs go to $OUT (default: a temporary folder); the last lines are the result.
#   gpu_check.sh [--quick] [--only tests,parity,faults,kernels,bench,policies,rl] [--kernels flash,cudnn]
#   With one GPU, two ranks share it (RINGFOLD_SHARE_GPU): right and ended in time, but slow. policies needs two GPUs or
#   more: scripts/scale_check.sh; faults: scripts/fault_check.sh; rl, only when named: scripts/rl_check.sh
#   --quick   fewer and shorter bench runs
set -uo pipefail
out="${OUT:-$(mktemp -d)}"
quick=0 only=tests,parity,faults,kernels,bench,policies kernels=flash,cudnn
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1 ;;
    --only) only="$2"; shift ;;
    --kernels) kernels="$2"; shift ;;
    *) echo "gpu_check: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done

. "$(dirname "$0")/gpu_host.sh"
log="$out/gpu_check.log" table="$out/gpu_check.txt"
work="$(mktemp -d)"
: >"$log"; : >"$table"
{
  echo "commit $bundle_commit"
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.limit --format=csv,noheader
  ldd "$ringfold" | grep "not found"
} | tee -a "$log"

wants() { [[ ",$only," == *",$1,"* ]]; }
failed=0
# step NAME SECONDS COMMAND...: runs it into the log and adds a line to the table.
step() {
  local name="$1" limit="$2" begin=$EPOCHREALTIME rc=0; shift 2
  echo "=== $name: $*" >>"$log"
  timeout -k 5 "$limit" "$@" >"$work/step" 2>&1 || rc=$?
  cat "$work/step" >>"$log"
  printf '%-46s %s %6.1f s\n' "$name" "$([ $rc = 0 ] && echo pass || echo "FAIL($rc)")" \
    "$(echo "$EPOCHREALTIME $begin" | awk '{print $1 - $2}')" | tee -a "$table"
  if [ $rc != 0 ]; then failed=1; tail -n 25 "$work/step"; fi
  return $rc
}

# Samples of awkward lengths: 1, primes, one giant among dwarfs.
python3 - "$work/awkward.jsonl" <<'PY'
import json, random, sys
random.seed(5)
with open(sys.argv[1], "w") as out:
    for length in (1, 2, 3, 7, 17, 129, 257, 64, 511, 1021, 13, 700, 37, 5, 96, 333):
        tokens = [random.randrange(512) for _ in range(length)]
        out.write(json.dumps({"tokens": tokens, "response_length": max(0, length - max(1, length // 3))}) + "\n")
PY
common=(--model-config "$bundle/models/tiny.json" --init-seed 3 --data "$work/awkward.jsonl" --device cuda
        --max-tokens-per-gpu 600 --use-dynamic-batch-size --rollout-max-context-len 1100 --calculate-per-token-loss)

run2=("$ringfold" launch -n 2 --) pair="2 GPUs"
[ "$gpus" -ge 2 ] || pair="2 ranks, 1 GPU"

if wants tests; then
  step "GPU tests" 240 "$bundle/test_gpu" --gtest_color=no --gtest_brief=1
fi
if wants parity; then
  layout=(--dynamic-context-parallel)
  one=(--max-tokens-per-gpu 1100)
  step "parity 1 GPU float32" 90 "$ringfold" parity "${common[@]}" "${one[@]}" --dtype float32
  for recompute in selective full; do
    step "parity 1 GPU float32 fused $recompute" 90 "$ringfold" parity "${common[@]}" "${one[@]}" --dtype float32 \
      --recompute $recompute
  done
  step "parity 1 GPU bfloat16 fused" 90 "$ringfold" parity "${common[@]}" "${one[@]}" --dtype bfloat16 --recompute selective
  for kernel in ${kernels//,/ }; do
    step "parity 1 GPU bfloat16 $kernel" 90 "$ringfold" parity "${common[@]}" "${one[@]}" --dtype bfloat16 --attention-kernel "$kernel"
  done
  for scheme in p2p all_gather a2a; do
    step "parity $pair float32 $scheme" 90 "${run2[@]}" parity "${common[@]}" "${layout[@]}" --dtype float32 --cp-comm-type $scheme
    for kernel in ${kernels//,/ }; do
      step "parity $pair bfloat16 $kernel $scheme" 90 "${run2[@]}" parity "${common[@]}" "${layout[@]}" --dtype bfloat16 \
        --attention-kernel "$kernel" --cp-comm-type $scheme
    done
  done
  for recompute in selective full; do
    step "parity $pair bfloat16 a2a $recompute" 90 "${run2[@]}" parity "${common[@]}" "${layout[@]}" --dtype bfloat16 \
      --recompute $recompute --cp-comm-type a2a
  done
  step "train $pair" 90 "${run2[@]}" train "${common[@]}" "${layout[@]}" --dtype bfloat16 --max-steps 3 --output-dir "$work/run2"
  step "train 1 GPU" 90 "$ringfold" train "${common[@]}" "${one[@]}" --dtype bfloat16 --max-steps 3 --output-dir "$work/run1"
  step "logprob 1 GPU" 90 "$ringfold" logprob "${common[@]}" "${one[@]}" --dtype bfloat16 --output "$work/scores.jsonl"
fi

# The same 100 steps under three policies at a learning rate of post-training: mean difference of the losses at most 1e-4.
if wants parity && [ "$gpus" -ge 2 ]; then
  for policy in static uniform mixed; do
    step "100 steps, $policy" 120 "${run2[@]}" train "${common[@]}" "${layout[@]}" --dtype bfloat16 --recompute selective \
      --cp-policy $policy --global-batch-size 8 --max-steps 100 --lr 1e-5 --output-dir "$work/long_$policy"
  done
  step "losses of 100 steps agree" 20 python3 - "$work" <<'PY'
import json, sys
losses = {policy: [json.loads(line)["loss"] for line in open(f"{sys.argv[1]}/long_{policy}/metrics.jsonl")]
          for policy in ("static", "uniform", "mixed")}
print("first and last loss", {policy: (x[0], x[-1]) for policy, x in losses.items()})
for policy in ("uniform", "mixed"):
    gap = sum(abs(a - b) for a, b in zip(losses["static"], losses[policy])) / len(losses["static"])
    print(f"mean |loss difference| of {len(losses['static'])} steps, static and {policy}: {gap:.3g}")
    assert len(losses[policy]) == 100 and gap <= 1e-4
PY
  tail -n 3 "$work/step" | sed 's/^/  /' | tee -a "$table"
fi
if wants faults; then
  OUT="$out" bash "$bundle/fault_check.sh" || failed=1
  cat "$out/faults.txt" >>"$table"
fi
if wants kernels; then
  step "kernel rates" 120 "$bundle/bench_gpu_kernels"
  sed 's/^/  /' "$work/step" | tee -a "$table"
fi

yes 8192 | head -n 8 >"$work/1x8192"
yes 2048 | head -n 32 >"$work/4x2048"
# bench MODEL PACK KERNEL RECOMPUTE [FLAGS]: 8 packs of 8192 tokens a step, optimizer included.
bench() {
  local name="$1 $2 $3 $4" model="$1" pack="$2" kernel="$3" recompute="$4" rows; shift 4
  rows="$(wc -l <"$work/$pack")"
  step "bench $name" 150 "$ringfold" bench --json --model-config "$bundle/models/qwen3_$model.json" \
    --lengths-file "$work/$pack" --global-batch-size "$rows" --no-shuffle --device cuda --dtype bfloat16 \
    --attention-kernel "$kernel" --recompute "$recompute" --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
    --rollout-max-context-len 8192 --calculate-per-token-loss --context-parallel-size 1 --policies static --update \
    --log-prob-chunk-tokens 4096 --peak-tflops 989 --log-level warning --warmup-steps 1 --steps "$steps" "$@" || return
  python3 - "$work/step" "$name" <<'PY' | tee -a "$table"
import json, sys
data = json.loads([line for line in open(sys.argv[1]) if line.startswith("{")][-1])
for row in data["policies"]:
    print(f"  {sys.argv[2]:<28} {row['median_ms']:8.1f} ms {row['tokens_per_s_per_rank']:7.0f} tok/s "
          f"{row['tflops_per_rank']:5.0f} TFLOP/s {100 * row['mfu']:5.1f} % MFU, peak {row['peak_memory_bytes'] / 1e9:.1f} GB "
          f"(states {data['state_bytes'] / 1e9:.1f})")
PY
}
# liger MODEL PACK: the same step by transformers with Liger kernels, where they are installed or lie in wheels/.
liger() {
  PYTHONPATH="$bundle/wheels:${PYTHONPATH:-}" python3 -c 'import liger_kernel, transformers' 2>>"$log" || return 0
  PYTHONPATH="$bundle/wheels:${PYTHONPATH:-}" step "Liger $1 $2" 150 python3 "$bundle/baseline_liger.py" \
    "$bundle/models/qwen3_$1.json" --pack "$2" --steps "$steps" || return
  python3 - "$work/step" "Liger $1 $2" <<'PY' | tee -a "$table"
import json, sys
row = json.loads([line for line in open(sys.argv[1]) if line.startswith("{")][-1])
print(f"  {sys.argv[2]:<28} {row['median_ms']:8.1f} ms {row['tokens_per_s']:7.0f} tok/s {row['tflops']:5.0f} TFLOP/s "
      f"{100 * row['mfu']:5.1f} % MFU, peak {row['peak_memory_bytes'] / 1e9:.1f} GB")
PY
}
if wants bench; then
  steps=$([ $quick = 1 ] && echo 2 || echo 4)
  for pack in 1x8192 4x2048; do
    bench 4b $pack cudnn selective --profile "$out/profile_4b_$pack.txt"
    liger 4b $pack
  done
  if [ $quick = 0 ]; then
    for model in 1_7b 0_6b; do
      for pack in 1x8192 4x2048; do bench $model $pack cudnn selective; done
    done
    bench 4b 1x8192 flash selective
    bench 0_6b 1x8192 flash none
  fi
fi
if wants policies && [ "$gpus" -ge 2 ]; then
  OUT="$out" bash "$bundle/scale_check.sh" || failed=1
  cat "$out/scale.txt" >>"$table"
fi
if wants rl; then
  OUT="$out" bash "$bundle/rl_check.sh" || failed=1
  cat "$out/rl.txt" >>"$table"
fi
rm -rf "$work"
echo "--- result ($gpus GPU(s)); logs in $out"
cat "$table"
exit $failed
