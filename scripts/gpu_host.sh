# Sourced by the checks that run on a GPU host, in the folder of a bundle (scripts/gpu_bundle.sh) or with
# RINGFOLD_GPU_BUNDLE set to one: sets bundle, ringfold, gpus, bundle_commit and the environment of the program.
bundle="$(cd "${RINGFOLD_GPU_BUNDLE:-$(dirname "${BASH_SOURCE[0]}")}" && pwd)"
torch="$(python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))')" || exit 2
LD_LIBRARY_PATH="$bundle/lib:$torch/lib$(printf ':%s' "$torch"/../nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH NCCL_NVLS_ENABLE=0 PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}"
ringfold="$bundle/ringfold-cuda"
gpus="${RINGFOLD_GPUS:-$(nvidia-smi -L | wc -l)}"
bundle_commit="$(cat "$bundle/commit")"
# Two ranks on one GPU: for correctness and faults alone.
[ "$gpus" -ge 2 ] || export RINGFOLD_SHARE_GPU=1
