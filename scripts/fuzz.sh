#!/usr/bin/env bash
# Fuzzes each reader of outside bytes with libFuzzer under ASan and UBSan (clang), one after the other.
# Usage: scripts/fuzz.sh [MINUTES=10] [TARGET ...]
# New inputs gather in build/fuzz/found/TARGET, what broke in build/fuzz/crashes: fix it, and add the input to
# tests/fuzz/corpus/TARGET, so that every test run replays it.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes="${1:-10}"; shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(jsonl lengths recipe model_config safetensors tokenizer tokenizer_vocab plan_json
  cost_model)
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"
crashes=build/fuzz/crashes; mkdir -p $crashes
failed=0
for target in "${targets[@]}"; do
  found=build/fuzz/found/$target; log=build/fuzz/$target.log; mkdir -p "$found"
  broken=no
  # allocator_may_return_null would hide a length that is believed before it is checked.
  ASAN_OPTIONS=allocator_may_return_null=0 nice -n 19 build/fuzz/tests/fuzz/fuzz_"$target" -max_total_time=$((minutes * 60)) \
    -max_len=16384 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=$crashes/"$target"- \
    "$found" tests/fuzz/corpus/"$target" >"$log" 2>&1 || { broken=yes; failed=1; }
  echo "fuzz $target: $(sed -n 's/^stat::number_of_executed_units: */executions /p' "$log"), $minutes min, broken: $broken ($log)"
done
exit $failed
