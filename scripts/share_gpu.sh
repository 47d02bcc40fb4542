#!/usr/bin/env bash
# Runs N ranks on one GPU: NCCL, told that each rank is a host of its own, joins them over sockets of this machine. For
# correctness and faults where there is but one GPU; it says nothing of speed. Ends with the exit code of the lowest rank that
# failed; the higher ones are killed then, if they still run.
# Usage: share_gpu.sh N PROGRAM ARG...
set -u
ranks="$1"; shift
export WORLD_SIZE="$ranks" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1
MASTER_PORT="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
export MASTER_PORT NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null' TERM INT
for rank in $(seq 0 $((ranks - 1))); do
  RANK="$rank" NCCL_HOSTID="host$rank" "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do
  if [ $code != 0 ]; then kill -9 "$pid" 2>/dev/null; fi
  wait "$pid"; ended=$?
  [ $code != 0 ] || code=$ended
done
exit $code
