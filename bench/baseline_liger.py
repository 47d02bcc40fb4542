#!/usr/bin/env python3
"""What people train dense models with today, measured like `ringfold bench --update`: Hugging Face transformers with
Liger kernels and cuDNN's scaled-dot-product attention, bf16 weights and fused AdamW in bf16, 8 packs an optimizer step.

Usage: baseline_liger.py CONFIG.json [--pack 1x8192] [--packs 8] [--steps 4] [--sdpa cudnn|flash]
Prints one JSON line. Needs torch, transformers and liger_kernel.
"""
import argparse
import json
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def build(path):
    from liger_kernel.transformers import apply_liger_kernel_to_qwen3
    from transformers import AutoModelForCausalLM, Qwen3Config

    apply_liger_kernel_to_qwen3()
    fields = json.load(open(path))
    fields.pop("torch_dtype", None)
    config = Qwen3Config(**fields, use_cache=False)
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.train(), config


def flops(config, tokens, sum_squared):
    c = config
    layer = c.hidden_size * c.head_dim * (2 * c.num_attention_heads + 2 * c.num_key_value_heads)
    layer += 3 * c.hidden_size * c.intermediate_size
    matrices = c.num_hidden_layers * layer + c.vocab_size * c.hidden_size
    return 6 * matrices * tokens + 6 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * sum_squared


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("--pack", default="1x8192")
    parser.add_argument("--packs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--sdpa", default="cudnn", choices=["cudnn", "flash"])
    args = parser.parse_args()
    rows, length = (int(part) for part in args.pack.split("x"))
    torch.manual_seed(0)
    model, config = build(args.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    backend = SDPBackend.CUDNN_ATTENTION if args.sdpa == "cudnn" else SDPBackend.FLASH_ATTENTION
    ids = [torch.randint(config.vocab_size, (rows, length), device="cuda") for _ in range(args.packs)]

    def step():
        for pack in ids:
            with sdpa_kernel([backend]):
                loss = model(input_ids=pack, labels=pack).loss / args.packs
                loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    median = sorted(times)[len(times) // 2]
    tokens = args.packs * rows * length
    rate = flops(config, tokens, args.packs * rows * length * length) / median / 1e12
    print(json.dumps({"what": f"transformers + Liger + SDPA {args.sdpa}", "pack": args.pack, "median_ms": 1e3 * median,
                      "tokens_per_s": tokens / median, "tflops": rate, "mfu": rate / 989,
                      "peak_memory_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
