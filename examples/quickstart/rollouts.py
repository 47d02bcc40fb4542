#!/usr/bin/env python3
"""Stands in for an inference engine and a checker: several answers to each problem of the quickstart's task, judged.

    group         the problem's number: answers of one group belong together
    reward        1 when the answer at the end is right, else 0
    advantages    one a token: 1 for a sum that follows from what stands before it, -1 for one that does not, 0 for the rest

A sampled model slips now and then; here a sum goes wrong with the chance --slip, and what follows builds on it.
Usage: rollouts.py OUTPUT.jsonl [--groups 96] [--answers 4] [--longest 120] [--slip 0.3] [--seed 2]
"""

import argparse
import json
import math
import random

from generate import ID, loss_mask, problem


def answer(rng, operands, slip):
    """Token ids of a response that may go wrong, the judgement of each, and whether its final answer is right."""
    response, judged, total = [], [], 0
    for digit in operands:
        right = (total + digit) % 10
        total = rng.randrange(10) if rng.random() < slip else right
        response += [ID[f"+{digit}"], ID[f"={total}"]]
        judged += [0, 1 if total == right else -1]
    return response + [ID["#"], ID[str(total)], ID["."]], judged + [0, 0, 0], total == sum(operands) % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--groups", type=int, default=96)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--longest", type=int, default=120)
    parser.add_argument("--slip", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=2)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with open(arguments.output, "w") as file:
        for group in range(arguments.groups):
            tokens = min(arguments.longest, int(10 + rng.lognormvariate(math.log(6), 1.2)))  # a long tail
            operands = [rng.randrange(10) for _ in range((tokens - 4) // 3)]
            prompt, _ = problem(operands)
            for _ in range(arguments.answers):
                response, judged, right = answer(rng, operands, arguments.slip)
                record = {"tokens": prompt + response, "response_length": len(response), "loss_mask": loss_mask(response),
                          "group": group, "reward": int(right), "advantages": judged}
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
