#!/usr/bin/env python3
"""Makes the task of the RL example: the quickstart's running sums modulo 10, short, and learned from a bad teacher.

    prompt    <bos> 7 5 8 ?                the operands
    response  +7 =7 +5 =2 +8 =0 # 0 .      each step and the sum so far, the answer, the end

demonstrations.jsonl  for the warm start: every token is trained, and each sum goes wrong with the chance --slip, so that a
                      model that has learned them well is right about as often as they are
prompts.jsonl         for `ringfold rl`: other problems, with the right response as the reference answer
config.json           the model
Usage: task.py OUTPUT_DIR [--seed 1] [--demonstrations 8192] [--prompts 4096] [--slip 0.3] [--operands 4 6]
"""

import argparse
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "quickstart"))
from generate import CONFIG, problem  # noqa: E402
from rollouts import answer  # noqa: E402

SMALL = {"hidden_size": 64, "intermediate_size": 256, "head_dim": 16, "max_position_embeddings": 64}


def problems(rng, count, shortest, longest, taken):
    """Distinct lists of digits that are not in `taken` yet."""
    drawn = []
    while len(drawn) < count:
        operands = tuple(rng.randrange(10) for _ in range(rng.randint(shortest, longest)))
        if operands not in taken:
            taken.add(operands)
            drawn.append(operands)
    return drawn


def write(path, samples):
    with open(path, "w") as file:
        for prompt, response in samples:
            file.write(json.dumps({"tokens": prompt + response, "response_length": len(response)}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--demonstrations", type=int, default=8192)
    parser.add_argument("--prompts", type=int, default=4096)
    parser.add_argument("--slip", type=float, default=0.3)
    parser.add_argument("--operands", type=int, nargs=2, default=(4, 6), metavar=("SHORTEST", "LONGEST"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    rng, taken = random.Random(arguments.seed), set()
    prompts = problems(rng, arguments.prompts, *arguments.operands, taken)
    taught = problems(rng, arguments.demonstrations, *arguments.operands, taken)
    right = 0
    samples = []
    for operands in taught:
        response, _, is_right = answer(rng, operands, arguments.slip)
        samples.append((problem(operands)[0], response))
        right += is_right
    write(arguments.output / "demonstrations.jsonl", samples)
    write(arguments.output / "prompts.jsonl", [problem(operands) for operands in prompts])
    (arguments.output / "config.json").write_text(json.dumps({**CONFIG, **SMALL}, indent=2) + "\n")
    print(f"{len(samples)} demonstrations, {right / len(samples):.0%} of them with the right answer; "
          f"{len(prompts)} prompts that are not among them")


if __name__ == "__main__":
    main()
