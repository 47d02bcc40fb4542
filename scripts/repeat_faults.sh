#!/usr/bin/env bash
# Runs the fault-injection tests again and again and prints a table: a fault that is told wrongly once in twenty times is
# a bug. Usage: scripts/repeat_faults.sh [REPETITIONS, default 20] [filter of tests, default all] [repetitions at a time,
# default 1; more make a busy machine, which the tests must stand]
# RINGFOLD_TORCHRUN names a torchrun that is not in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
repetitions="${1:-20}"; filter="${2:-*}"; at_a_time="${3:-1}"
program=build/dev/tests/test_faults
out=build/repeat_faults; rm -rf "$out"; mkdir -p "$out"
seq "$repetitions" | xargs -P "$at_a_time" -I{} sh -c \
  "$program --gtest_filter='$filter' --gtest_output='json:$out/{}.json' >$out/{}.log 2>&1 || true"
for ((i = 1; i <= repetitions; ++i)); do
  [ -s "$out/$i.json" ] || { echo "ringfold: repetition $i ended without a result; see $out/$i.log" >&2; exit 1; }
done
python3 - "$out" <<'PYTHON'
import collections, glob, json, sys
rows = collections.OrderedDict()
for file in sorted(glob.glob(sys.argv[1] + "/*.json")):
    for suite in json.load(open(file))["testsuites"]:
        for test in suite["testsuite"]:
            row = rows.setdefault(test["classname"].split("/")[-1] + "." + test["name"].split("/")[-1],
                                  {"passed": 0, "failed": 0, "skipped": 0, "seconds": []})
            row["failed" if "failures" in test else "skipped" if test["result"] == "SKIPPED" else "passed"] += 1
            row["seconds"].append(float(test["time"].rstrip("s")))
print(f"{'test':<78} {'passed':>6} {'failed':>6} {'skipped':>7} {'median s':>8} {'max s':>6}")
for name, row in rows.items():
    seconds = sorted(row["seconds"])
    print(f"{name[-78:]:<78} {row['passed']:>6} {row['failed']:>6} {row['skipped']:>7} "
          f"{seconds[len(seconds) // 2]:>8.1f} {seconds[-1]:>6.1f}")
failed = sum(row["failed"] for row in rows.values())
print(f"{len(rows)} tests, {sum(r['passed'] for r in rows.values())} passed, {failed} failed, "
      f"{sum(r['skipped'] for r in rows.values())} skipped")
sys.exit(1 if failed else 0)
PYTHON
