#!/usr/bin/env python3
"""Rollouts of NeMo Gym, condensed to {source, model, reward, prompt, response} -> token JSONL for GRPO.

Rollouts of one source and prompt form a group.

Example: .venv/bin/python scripts/data/nemo_gym.py nemo_gym_real_rollouts.jsonl.gz grpo.jsonl --tokenizer Qwen3-4B
"""
import qwen_tokens


GROUPS = {}  # (source, prompt) -> number, in the order of the file


def samples_of(record, tokenizer):
    group = GROUPS.setdefault((record["source"], record["prompt"]), len(GROUPS))
    prompt = [{"role": "user", "content": record["prompt"]}]
    yield {**qwen_tokens.chat_sample(tokenizer, prompt, record["response"]),
           "reward": float(record["reward"]), "group": str(group), "meta": {"source": record["source"]}}


if __name__ == "__main__":
    qwen_tokens.convert(__doc__, samples_of)
