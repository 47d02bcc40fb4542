#!/usr/bin/env python3
"""Judges responses to the quickstart's running sums: the share of the sums that are right, over all that were asked for.

Reads one JSON line a response on stdin and answers with one on stdout (docs/guide/rl.md).
"""

import json
import sys

FIRST_SUM = 25  # the token "=0" (examples/quickstart/generate.py)


def sums(tokens):
    """The running sums that a response writes down, in order."""
    return [token - FIRST_SUM for token in tokens if FIRST_SUM <= token < FIRST_SUM + 10]


for line in sys.stdin:
    sample = json.loads(line)
    right, given = sums(sample["answer_tokens"]), sums(sample["response_tokens"])
    share = sum(a == b for a, b in zip(right, given)) / len(right)
    print(json.dumps({"reward": share}), flush=True)
