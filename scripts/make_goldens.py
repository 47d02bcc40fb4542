#!/usr/bin/env python3
"""Makes tests/golden: tiny random models with the numbers that transformers computes for them.

  python3 -m venv /tmp/golden && /tmp/golden/bin/pip install -r scripts/golden_requirements.txt
  /tmp/golden/bin/python scripts/make_goldens.py tests/golden

One folder a case: config.json and model.safetensors as save_pretrained writes them (bf16, to be small; the numbers are
those of the same weights in fp32), expected.safetensors, and inputs.json. The same versions give the same files.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

LENGTHS = [1, 3, 4, 63, 64, 65, 150]
VOCABULARY = 320
PROJECTIONS = 16
FULL_GRADIENT_NUMEL = 128  # larger gradients are kept as their norm and PROJECTIONS random projections

COMMON = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, rms_norm_eps=1e-6,
              max_position_embeddings=1024, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32,  # not hidden / heads, on purpose
              use_cache=False, attn_implementation="eager")
QWEN3 = dict(COMMON, num_hidden_layers=3, attention_bias=False,
             rope_parameters={"rope_type": "default", "rope_theta": 1e6})
# A context of 64 puts frequencies into all three ranges of the scaling.
LLAMA = dict(COMMON, num_hidden_layers=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
             rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
CASES = {
    "qwen3_tied": (Qwen3ForCausalLM, lambda: Qwen3Config(**QWEN3, tie_word_embeddings=True)),
    "qwen3_untied": (Qwen3ForCausalLM, lambda: Qwen3Config(**QWEN3, tie_word_embeddings=False)),
    "llama3_bias": (LlamaForCausalLM, lambda: LlamaConfig(**LLAMA)),
}


def redraw(model, generator):
    """Every parameter, as defaults (norms 1, biases 0) would hide mistakes; rounded to bf16, which the file holds."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm, is_bias = name.endswith("norm.weight"), name.endswith(".bias")
            value = 1 + 0.1 * noise if is_norm else 0.1 * noise if is_bias else 0.05 * noise
            parameter.copy_(value.to(torch.bfloat16))


def signs(count, projection):
    """Entries +1 and -1 from a 64-bit mix of index and projection number; written alike in golden_test.cpp."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) * np.uint64(PROJECTIONS) + np.uint64(projection + 1)
        x *= np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
    return np.where(x >> np.uint64(63), 1.0, -1.0)


def gradient_summary(gradient):
    flat = gradient.double().flatten().numpy()
    if flat.size <= FULL_GRADIENT_NUMEL:
        return torch.from_numpy(flat)
    sums = [float(np.dot(flat, signs(flat.size, j))) for j in range(PROJECTIONS)]
    return torch.tensor([float(np.linalg.norm(flat))] + sums, dtype=torch.float64)


def make_case(name, folder):
    model_class, make_config = CASES[name]
    generator = torch.Generator().manual_seed(1234 + list(CASES).index(name))
    model = model_class(make_config()).float().eval()
    redraw(model, generator)

    sequences = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    masks = [torch.rand(length, generator=generator) < 0.7 for length in LENGTHS]
    expected, log_probs, loss = {}, [], torch.zeros((), dtype=torch.float64)
    for i, (ids, mask) in enumerate(zip(sequences, masks)):
        mask[0] = False  # mask[k]: token k, predicted from the tokens before it, counts
        logits = model(input_ids=ids[None]).logits[0]
        rows = sorted({0, len(ids) // 2, len(ids) - 1})
        expected[f"logits.{i}"] = logits[rows].detach().contiguous()
        scores = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]
        log_probs.append(scores.detach())
        loss = loss - scores[mask[1:]].double().sum()
    loss.backward()
    expected["log_probs"] = torch.cat(log_probs)
    expected["loss"] = loss.detach().reshape(1)
    for parameter_name, parameter in model.named_parameters():
        expected["gradient." + parameter_name] = gradient_summary(parameter.grad)

    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(expected, folder / "expected.safetensors")
    inputs = {"sequences": [ids.tolist() for ids in sequences], "masks": [mask.int().tolist() for mask in masks]}
    (folder / "inputs.json").write_text(json.dumps(inputs, separators=(",", ":")) + "\n")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in CASES:
        make_case(name, pathlib.Path(sys.argv[1]) / name)
        print("made", name)


if __name__ == "__main__":
    main()
