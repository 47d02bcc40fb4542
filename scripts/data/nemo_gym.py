#!/usr/bin/env python3
"""Rollouts of NeMo Gym, condensed to {source, model, reward, prompt, response} -> token JSONL for GRPO.

Rollouts of one source and prompt form a group.

Example: .venv/bin/python scripts/data/nemo_gym.py nemo_gym_real_rollouts.jsonl.gz grpo.jsonl --tokenizer Qwen3-4B
"""
import argparse

import qwen_tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    qwen_tokens.add_common_arguments(parser)
    args = parser.parse_args()
    tokenizer = qwen_tokens.QwenTokenizer(args.tokenizer)
    writer = qwen_tokens.Writer(args.output, args.max_tokens)
    groups = {}
    for count, (number, record) in enumerate(qwen_tokens.read_jsonl(args.input)):
        if args.limit and count == args.limit:
            break
        try:
            group = groups.setdefault((record["source"], record["prompt"]), len(groups))
            prompt = [{"role": "user", "content": record["prompt"]}]
            writer.write({**qwen_tokens.chat_sample(tokenizer, prompt, record["response"]),
                          "reward": float(record["reward"]), "group": str(group), "meta": {"source": record["source"]}})
        except (KeyError, ValueError) as error:
            qwen_tokens.fail(f"{args.input}:{number}: {error}")
    writer.close()


if __name__ == "__main__":
    main()
