#!/usr/bin/env python3
"""Stands in for an inference engine: several answers to each problem of the quickstart's task, each with its reward.

    group     the problem's number: answers of one group are compared with each other
    reward    1 when the answer at the end is right, else 0

A sampled model slips now and then; here a sum goes wrong with the chance --slip, and what follows builds on it.
Usage: rollouts.py OUTPUT.jsonl [--groups 64] [--answers 4] [--longest 120] [--slip 0.05] [--seed 2]
"""

import argparse
import json
import math
import random

from generate import ID, problem


def answer(rng, operands, slip):
    """Token ids of a response that may go wrong, and whether its final answer is right."""
    response, total = [], 0
    for digit in operands:
        total = (total + digit) % 10
        if rng.random() < slip:
            total = rng.randrange(10)
        response += [ID[f"+{digit}"], ID[f"={total}"]]
    return response + [ID["#"], ID[str(total)], ID["."]], total == sum(operands) % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--longest", type=int, default=120)
    parser.add_argument("--slip", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=2)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with open(arguments.output, "w") as file:
        for group in range(arguments.groups):
            tokens = min(arguments.longest, max(20, int(rng.lognormvariate(math.log(40), 0.6))))
            operands = [rng.randrange(10) for _ in range((tokens - 5) // 3)]
            prompt, _ = problem(operands)
            for _ in range(arguments.answers):
                response, right = answer(rng, operands, arguments.slip)
                record = {"tokens": prompt + response, "response_length": len(response), "group": group,
                          "reward": int(right)}
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
