#!/usr/bin/env python3
"""Sampled chain-of-thought answers of Qwen2.5-Math's evaluation (math_cot_100.jsonl) -> token JSONL for GRPO.

A record holds one question, its sampled answers ("response") and a right / wrong mark for each ("score"). Every answer
becomes a sample: group is the question's "idx", reward 1 or 0.

Example: .venv/bin/python scripts/data/math_cot.py math_cot_100x8.jsonl grpo.jsonl --tokenizer Qwen3-4B
"""
import qwen_tokens


def samples_of(record, tokenizer):
    prompt = [{"role": "user", "content": record["query"]}]
    if record.get("system"):
        prompt.insert(0, {"role": "system", "content": record["system"]})
    if len(record["response"]) != len(record["score"]):
        raise ValueError(f"{len(record['response'])} answers, {len(record['score'])} marks")
    for answer, right in zip(record["response"], record["score"]):
        yield {**qwen_tokens.chat_sample(tokenizer, prompt, answer), "reward": float(right), "group": str(record["idx"])}


if __name__ == "__main__":
    qwen_tokens.convert(__doc__, samples_of)
