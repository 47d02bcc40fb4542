#!/usr/bin/env python3
"""Prints how loss and answer accuracy moved. Usage: summary.py RUN"""

import json
import pathlib
import sys


def read(path):
    return [json.loads(line) for line in open(path)]


def main():
    run = pathlib.Path(sys.argv[1])
    steps, evaluations = read(run / "metrics.jsonl"), read(run / "eval.jsonl")
    print("  step   held-out loss   answers right")
    for record in evaluations:
        print(f"{record['step']:6d} {record['loss']:15.4f} {record['accuracy']:15.0%}")
    packs = {}
    for record in steps:
        for size, count in record["cp_histogram"].items():
            packs[int(size)] = packs.get(int(size), 0) + count
    print("packs by CP size: " + ", ".join(f"{size}: {packs[size]}" for size in sorted(packs)))
    print(f"loss {steps[0]['loss']:.3f} -> {steps[-1]['loss']:.3f}, answers right "
          f"{evaluations[0]['accuracy']:.0%} -> {evaluations[-1]['accuracy']:.0%} in {len(steps)} steps")


if __name__ == "__main__":
    main()
