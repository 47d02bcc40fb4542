#!/usr/bin/env bash
# Faults on all GPUs of this host, or on the CPU: each must end the job in time with one line and the right exit code, and
# leave nobody behind; a slow rank that gets on, and a job that was suspended as a whole, must finish. Builds nothing: runs
# from the bundle that scripts/gpu_bundle.sh makes, or with --cpu from build/dev. Where there is one GPU, two ranks share it.
#   fault_check.sh [--cpu RANKS] [CASE ...]   cases: the names below; files go to $OUT (default: a temporary folder)
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${OUT:-$(mktemp -d)}"
ranks=0 device=cuda timeout=8
if [ "${1:-}" = --cpu ]; then ranks="$2" device=cpu; shift 2; fi
if [ $device = cuda ]; then
  . "$here/gpu_host.sh"
  config="$bundle/models/tiny.json" ranks="$((gpus > 2 ? gpus : 2))"
else
  ringfold="$here/../build/dev/apps/ringfold/ringfold" config="$here/../bench/models/tiny.json"
fi
[ "$ranks" -ge 2 ] || { echo "fault_check: needs two ranks or more"; exit 2; }
work="$(mktemp -d)" table="$out/faults.txt" failed=0 wanted=" $* "
: >"$table"

# Batches with packs of every size, and several micro-steps a rank.
python3 - "$work/data.jsonl" "$ranks" <<'PY'
import json, random, sys
random.seed(5)
with open(sys.argv[1], "w") as out:
    for i in range(64 * int(sys.argv[2])):
        length = 700 if i % 16 == 0 else random.randrange(20, 200)
        out.write(json.dumps({"tokens": [random.randrange(512) for _ in range(length)]}) + "\n")
PY
flags=(train --model-config "$config" --init-seed 3 --data "$work/data.jsonl" --device $device --max-tokens-per-gpu 400
       --use-dynamic-batch-size --dynamic-context-parallel --rollout-max-context-len 800 --calculate-per-token-loss
       --global-batch-size $((32 * ranks)) --max-steps 4 --epochs 4 --comm-timeout-seconds $timeout --log-level warning
       --no-progress --no-save)

# check NAME CODE MOST_SECONDS LINE [FAULT]: LINE is a pattern of the one error, or empty for none.
check() {
  local name="$1" code="$2" most="$3" line="$4" fault="${5:-}" begin=$EPOCHREALTIME verdict=pass rc=0 took errors
  [ "$wanted" = "  " ] || [[ "$wanted" == *" $name "* ]] || return 0
  RINGFOLD_FAULT="$fault" setsid "$ringfold" launch -n "$ranks" -- "${flags[@]}" --output-dir "$work/$name" >"$out/$name.log" 2>&1 &
  local job=$!
  if [ "$name" = suspended ]; then
    for _ in $(seq 600); do [ -s "$work/$name/metrics.jsonl" ] && break; sleep 0.05; done
    kill -STOP -$job; sleep $((timeout + 4)); kill -CONT -$job
  fi
  timeout "$most" tail --pid=$job -f /dev/null || { verdict="FAIL: still running"; kill -9 -$job; }
  wait $job; rc=$?
  took="$(echo "$EPOCHREALTIME $begin" | awk '{print $1 - $2}')"
  errors="$(grep -c '^ringfold: error: ' "$out/$name.log")"
  if [ "$verdict" = pass ]; then
    [ $rc = "$code" ] || verdict="FAIL: exit code $rc, not $code"
    [ "$errors" = "$([ -n "$line" ] && echo 1 || echo 0)" ] || verdict="FAIL: $errors errors"
    [ -z "$line" ] || grep -qE "^ringfold: error: .*$line" "$out/$name.log" || verdict="FAIL: another message"
    [ -z "$(pgrep -g $job)" ] || verdict="FAIL: somebody is left"
  fi
  [ "$verdict" = pass ] || failed=1
  printf '%-18s %-28s %6.1f s  %s\n' "$name" "$verdict" "$took" "$(grep '^ringfold: error' "$out/$name.log" | head -n 1 | cut -c1-300)" |
    tee -a "$table"
}

at='1:2:' soon=60 late=$((60 + timeout))
check killed 137 $soon 'rank 1 .*killed by signal 9' "${at}forward:kill"
check stopped 4 $late 'rank 1 was last heard of' "${at}forward:stop"
check stopped_backward 4 $late 'rank 1 was last heard of' "${at}backward:stop"
check stopped_reduction 4 $late 'rank 1 was last heard of' "${at}reduction:stop"
check stopped_update 4 $late 'rank 1 was last heard of' "${at}update:stop"
check stuck 4 $late 'rank 1 ' "${at}forward:hang"
check out_of_memory 4 $soon '\[train\] out of memory: rank 1, step 2' "${at}backward:oom"
check failed 4 $soon '\[fault\] rank 1: failed on purpose' "${at}reduction:fail"
check silent_exit 5 $soon 'rank 1 .*ended first, with exit code 5' "${at}backward:exit"
check slow_but_alive 0 300 '' "${at}forward:slow:3"
check suspended 0 300 ''
rm -rf "$work"
echo "logs in $out"
exit $failed
