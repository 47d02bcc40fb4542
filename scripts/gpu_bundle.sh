#!/usr/bin/env bash
# Builds what runs on a GPU host and puts it, stripped, into one folder that can be carried there (build/gpu): the
# program, the GPU tests, the model shapes and the check. Usage: scripts/gpu_bundle.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-build/gpu}"
cmake --preset dev >/dev/null
cmake --build --preset dev --target ringfold-cuda test_gpu bench_gpu_kernels -j "${JOBS:-2}"
rm -rf "$out"
mkdir -p "$out"
strip -s -o "$out/ringfold-cuda" build/dev/apps/ringfold/ringfold-cuda
strip -s -o "$out/test_gpu" build/dev/tests/test_gpu
strip -s -o "$out/bench_gpu_kernels" build/dev/tests/bench_gpu_kernels
cp -r bench/models bench/baseline_liger.py scripts/timeline_picture.py "$out/"
cp scripts/{gpu_host,gpu_check,fault_check,scale_check,rl_check}.sh "$out/"
# What a host with torch's wheel alone lacks.
mkdir "$out/lib"
ldd build/dev/apps/ringfold/ringfold-cuda | awk '$1 ~ /^libtomlplusplus/ {print $3}' | xargs -I{} cp -L {} "$out/lib/"
git rev-parse HEAD >"$out/commit"
du -sh "$out"
