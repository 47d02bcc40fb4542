#!/usr/bin/env python3
"""Says whether the last evaluation of a run is better than its first; fails when it is not. Usage: better.py EVAL.jsonl"""

import json
import sys


def main():
    records = [json.loads(line) for line in open(sys.argv[1])]
    before, after = records[0], records[-1]
    better = after["loss"] < before["loss"]
    print(f"held-out loss {before['loss']:.3f} -> {after['loss']:.3f}, answers right {before['accuracy']:.0%} -> "
          f"{after['accuracy']:.0%}: {'better' if better else 'not better'}")
    return 0 if better else 1


if __name__ == "__main__":
    sys.exit(main())
