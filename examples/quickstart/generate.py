#!/usr/bin/env python3
"""Makes the quickstart's task: running sums modulo 10, written out step by step.

    prompt    <bos> 7 5 8 1 ?                    the operands
    response  +7 =7 +5 =2 +8 =0 +1 =1 # 1 .      each step and the sum so far, then the answer

Lengths are long-tailed like reasoning data: a lognormal body, 30 tokens and up, and a few giants of several thousand.
Everything is seeded; nothing is read from outside. Writes train.jsonl (the loss is on the sums and the answer: the
operands are copied from the prompt), eval.jsonl (on the last sum and the answer only, so that accuracy means "the answer
is right, given the steps before it") and config.json (the model).

Usage: generate.py OUTPUT_DIR [--seed 1] [--train 4096] [--eval 100]
"""

import argparse
import json
import math
import pathlib
import random

VOCABULARY = (["<pad>", "<bos>", "?", "#", "."] + [str(digit) for digit in range(10)]
              + [f"+{digit}" for digit in range(10)] + [f"={digit}" for digit in range(10)])
ID = {token: index for index, token in enumerate(VOCABULARY)}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 40, "hidden_size": 128,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
    "tie_word_embeddings": True, "max_position_embeddings": 8192, "initializer_range": 0.1,
}


def problem(operands):
    """Token ids of prompt and response for a list of digits."""
    prompt = [ID["<bos>"]] + [ID[str(digit)] for digit in operands] + [ID["?"]]
    response, total = [], 0
    for digit in operands:
        total = (total + digit) % 10
        response += [ID[f"+{digit}"], ID[f"={total}"]]
    return prompt, response + [ID["#"], ID[str(total)], ID["."]]


def draw(rng, longest):
    """A problem whose length follows a long-tailed law, at most `longest` tokens."""
    giant = rng.random() < 0.01
    tokens = rng.randint(longest // 2, longest) if giant else int(rng.lognormvariate(math.log(110), 0.9))
    operands = (min(longest, max(30, tokens)) - 5) // 3 + 1  # an operand makes three tokens, the rest is five
    return problem([rng.randrange(10) for _ in range(operands)])


def loss_mask(response):
    """The sums and the answer: what is copied from the prompt is nothing to learn."""
    return [index % 2 for index in range(len(response) - 3)] + [1, 1, 1]


def write_sample(file, prompt, response, mask):
    sample = {"tokens": prompt + response, "response_length": len(response), "loss_mask": mask}
    file.write(json.dumps(sample) + "\n")


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
            write_sample(file, prompt, response, loss_mask(response))
    with open(arguments.output / "eval.jsonl", "w") as file:
        for _ in range(arguments.eval):
            prompt, response = draw(rng, min(1000, arguments.longest))
            mask = [0] * len(response)
            mask[-4] = mask[-2] = 1  # the last sum and the answer
            write_sample(file, prompt, response, mask)
    (arguments.output / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    main()
