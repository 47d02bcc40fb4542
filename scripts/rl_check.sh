#!/usr/bin/env bash
# `ringfold rl` under each policy on all GPUs of this host, or small on the CPU: a table of rollout, log-prob and train
# times, tokens/s of training alone and end to end, and memory before and after sleep. A random model of Qwen3-0.6B's
# shape; response lengths drawn from the RL law (docs/benchmarks/planner.md), the same ones for every policy; samples of
# up to 16,384 tokens. A first rollout of long prompts and short responses warms up; the second is measured. Builds
# nothing: runs from the bundle that scripts/gpu_bundle.sh makes, or with --cpu from build/dev.
#   rl_check.sh [--cpu RANKS] [--policies static,best_static,uniform,mixed] [--prompts N] [--seed N] [--eager]
#   static: by tokens at CP = S. best_static: CP 1 with the whole length as the budget, balanced by work.
#   --prompts: groups of 8 responses a rank [3]; --eager: no CUDA graphs. Files go to $OUT (default: a temporary folder).
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${OUT:-$(mktemp -d)}"
ranks=0 device=cuda policies="" prompts=3 seed=1 eager=() limit="${RL_CHECK_SECONDS:-120}"
while [ $# -gt 0 ]; do
  case "$1" in
    --cpu) ranks="$2" device=cpu; shift ;;
    --policies) policies="$2"; shift ;;
    --prompts) prompts="$2"; shift ;;
    --seed) seed="$2"; shift ;;
    --eager) eager=(--rollout-enforce-eager) ;;
    *) echo "rl_check: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
if [ $device = cuda ]; then
  . "$here/gpu_host.sh"
  config="$bundle/models/qwen3_0_6b.json"
  ranks="$gpus" context=16384 shrink=1 dtype=bfloat16 recompute=selective
  git_commit="$bundle_commit"
else
  ringfold="$here/../build/dev/apps/ringfold/ringfold" config="$here/../bench/models/tiny.json"
  context=256 shrink=64 dtype=float32 recompute=none
  git_commit="$(git -C "$here" rev-parse HEAD)"
fi
# On one rank CP is 1 whatever the policy: static and uniform differ in nothing but their packing.
[ -n "$policies" ] || policies="static,best_static,uniform$([ "$ranks" -gt 1 ] && echo ,mixed)"
budget=$((context / ranks)) responses=$((prompts * ranks * 8))
[ $budget -lt $((context / 8)) ] && budget=$((context / 8))
table="$out/rl.txt"
echo "commit $git_commit, $ranks ranks on $device, $responses responses a rollout, samples up to $context tokens" | tee "$table"

"$ringfold" simulate --law rl --samples "$responses" --world-size 4 --seed "$seed" --json >"$out/law.json" || exit 2
python3 - "$out" $((prompts * ranks)) $context $shrink "$seed" "$config" <<'PY' || exit 2
import json, math, random, sys
out, prompts, context, shrink, seed = sys.argv[1], *map(int, sys.argv[2:6])
vocabulary = json.load(open(sys.argv[6]))["vocab_size"]
random.seed(seed)
totals = [min(max(2, n // shrink), context) for n in json.load(open(f"{out}/law.json"))["lengths"]]
warm_response = max(1, 64 // shrink)
with open(f"{out}/prompts.jsonl", "w") as data, open(f"{out}/lengths.txt", "w") as lengths:
    def write(prompt, responses):
        tokens = [random.randrange(vocabulary) for _ in range(prompt + 1)]
        data.write(json.dumps({"tokens": tokens, "response_length": 1}) + "\n")
        lengths.write("".join(f"{n}\n" for n in responses))
    groups = [totals[i * 8:i * 8 + 8] for i in range(prompts)]
    for group in groups:  # as long as the first of the group, but for a few tokens all prompt
        write(max(1, group[0] - warm_response), [warm_response] * 8)
    for group in groups:
        prompt = min(max(1, int(math.exp(random.gauss(5.5, 0.6))) // shrink), context // 4)
        write(prompt, [max(1, total - prompt) for total in group])
PY

flags_of() {
  local dynamic=(--dynamic-context-parallel --max-tokens-per-gpu $budget)
  case "$1" in
    static) echo "${dynamic[@]}" --cp-policy static ;;
    best_static) echo --context-parallel-size 1 --max-tokens-per-gpu $context --cp-policy static --static-balance work ;;
    uniform | mixed) echo "${dynamic[@]}" --cp-policy "$1" ;;
    *) echo "rl_check: unknown policy $1" >&2; return 1 ;;
  esac
}
# Header and one line a policy, from the record of the second rollout.
row() {
  python3 - "$1" "$ranks" "$2" <<'PY'
import json, sys
policy, ranks, run = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if policy == "header":
    print(f"{'policy':<12} {'tokens':>8} {'sampled':>8} {'generate s':>10} {'log-prob s':>10} {'train s':>8} {'total s':>8} "
          f"{'sampled/s/rank':>14} {'train tok/s/rank':>16} {'end-to-end':>10} {'held GB':>8} {'asleep':>7} {'|dlogp|':>8}")
    sys.exit()
rollout = [json.loads(line) for line in open(f"{run}/rollouts.jsonl")][1]
steps = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
gap = steps[-1].get("train_rollout_logprob_abs_diff", float("nan"))
sampled = rollout["response_length_mean"] * rollout["responses"]
second = {name: rollout[name + "_ms"] / 1e3 for name in ("generate", "log_probs", "train", "total")}
print(f"{policy:<12} {rollout['tokens']:8d} {sampled:8.0f} {second['generate']:10.2f} {second['log_probs']:10.2f} "
      f"{second['train']:8.2f} {second['total']:8.2f} {sampled / second['generate'] / ranks:14.0f} "
      f"{rollout['train_tokens_per_s'] / ranks:16.0f} {rollout['end_to_end_tokens_per_s'] / ranks:10.0f} "
      f"{rollout['held_bytes_training'] / 1e9:8.2f} {rollout['held_bytes_sampling'] / 1e9:7.2f} {gap:8.1e}")
PY
}
failed=0
row header "" | tee -a "$table"
for policy in ${policies//,/ }; do
  flags="$(flags_of "$policy")" || exit 2
  begin=$EPOCHREALTIME
  # shellcheck disable=SC2086
  timeout -k 5 "$limit" "$ringfold" launch -n "$ranks" -- rl --model-config "$config" --init-seed 1 --device $device --dtype $dtype \
    --recompute $recompute --data "$out/prompts.jsonl" --rollout-lengths-file "$out/lengths.txt" --no-shuffle --seed "$seed" \
    --objective grpo --num-rollout 2 --rollout-batch-size $((prompts * ranks)) --n-samples-per-prompt 8 \
    --rollout-max-response-len $context --rollout-max-context-len $context --use-dynamic-batch-size --calculate-per-token-loss \
    --log-prob-chunk-tokens 4096 --offload-train --lr 1e-6 --no-save --no-progress --output-dir "$out/run_$policy" $flags "${eager[@]}" \
    >"$out/rl_$policy.log" 2>&1 || { echo "$policy: FAILED($?), see $out/rl_$policy.log"; tail -n 15 "$out/rl_$policy.log"; failed=1; continue; }
  row "$policy" "$out/run_$policy" >"$out/row" || failed=1
  tee -a "$table" <"$out/row"
  rm -rf "$out/run_$policy/hf"
  echo "  ($(echo "$EPOCHREALTIME $begin" | awk '{printf "%.0f", $1 - $2}') s with start and warm-up)" | tee -a "$table"
done
echo "--- result; logs in $out"
cat "$table"
exit $failed
