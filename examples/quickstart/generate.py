#!/usr/bin/env python3
"""Makes the quickstart's task: running sums modulo 10, written out step by step.

    prompt    <bos> 7 5 8 1 ?                       the operands
    response  7 + 5 = 2 ; 2 + 8 = 0 ; 0 + 1 = 1 ; # 1 .    each step, then the answer

Lengths are long-tailed like reasoning data: a lognormal body, 30 tokens and up, and a few giants of several thousand.
Everything is seeded; nothing is read from outside. Writes train.jsonl, eval.jsonl (loss mask on the last sum and the
answer only, so that accuracy means "the answer is right, given the steps before it") and config.json (the model).

Usage: generate.py OUTPUT_DIR [--seed 1] [--train 4096] [--eval 100]
"""

import argparse
import json
import math
import pathlib
import random

VOCABULARY = ["<pad>", "<bos>", "?", "+", "=", ";", "#", "."] + [str(digit) for digit in range(10)]
ID = {token: index for index, token in enumerate(VOCABULARY)}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 32, "hidden_size": 96,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
    "tie_word_embeddings": True, "max_position_embeddings": 8192, "initializer_range": 0.05,
}


def problem(operands):
    """Token ids of prompt and response for a list of digits."""
    prompt = [ID["<bos>"]] + [ID[str(digit)] for digit in operands] + [ID["?"]]
    response, total = [], operands[0]
    for digit in operands[1:]:
        result = (total + digit) % 10
        response += [ID[str(total)], ID["+"], ID[str(digit)], ID["="], ID[str(result)], ID[";"]]
        total = result
    return prompt, response + [ID["#"], ID[str(total)], ID["."]]


def draw(rng, longest):
    """A problem whose length follows a long-tailed law, at most `longest` tokens."""
    giant = rng.random() < 0.01
    tokens = rng.randint(longest // 2, longest) if giant else int(rng.lognormvariate(math.log(110), 0.9))
    operands = min(longest - 1, max(30, tokens)) // 7 + 1  # an operand makes seven tokens
    return problem([rng.randrange(10) for _ in range(operands)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", type=int, default=4096)
    parser.add_argument("--eval", type=int, default=100)
    parser.add_argument("--longest", type=int, default=4000)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    rng = random.Random(arguments.seed)

    with open(arguments.output / "train.jsonl", "w") as file:
        for _ in range(arguments.train):
            prompt, response = draw(rng, arguments.longest)
            file.write(json.dumps({"tokens": prompt + response, "response_length": len(response)}) + "\n")
    with open(arguments.output / "eval.jsonl", "w") as file:
        for _ in range(arguments.eval):
            prompt, response = draw(rng, 1000)
            mask = [0] * len(response)
            mask[-5] = mask[-2] = 1  # the last sum and the answer
            file.write(json.dumps({"tokens": prompt + response, "response_length": len(response),
                                   "loss_mask": mask}) + "\n")
    (arguments.output / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    main()
