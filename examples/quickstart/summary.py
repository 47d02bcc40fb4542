#!/usr/bin/env python3
"""Prints how loss and answer accuracy moved, from a metrics.jsonl. Usage: summary.py metrics.jsonl"""

import json
import sys


def main():
    records = [json.loads(line) for line in open(sys.argv[1])]
    steps = [record for record in records if record["step"] > 0]
    scored = [record for record in records if record.get("eval_accuracy") is not None]
    print("  step     loss   eval loss   answers right")
    for record in scored:
        loss = f"{record['loss']:8.4f}" if record["step"] > 0 else "        "
        print(f"{record['step']:6d} {loss} {record['eval_loss']:11.4f} {record['eval_accuracy']:12.0%}")
    sizes = {}
    for record in steps:
        for size, packs in record["cp_histogram"].items():
            sizes[int(size)] = sizes.get(int(size), 0) + packs
    print("packs by CP size: " + ", ".join(f"{size}: {sizes[size]}" for size in sorted(sizes)))
    print(f"loss {steps[0]['loss']:.3f} -> {steps[-1]['loss']:.3f}, answers right "
          f"{scored[0]['eval_accuracy']:.0%} -> {scored[-1]['eval_accuracy']:.0%} in {len(steps)} steps")


if __name__ == "__main__":
    main()
