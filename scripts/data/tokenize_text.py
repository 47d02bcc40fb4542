#!/usr/bin/env python3
"""Text JSONL -> token JSONL for `ringfold train --data`.

A line of the input is one of
  {"text": "..."}                                      every token but the first is a loss token
  {"prompt": "...", "response": "..."}                 the response's tokens are loss tokens (no chat template)
  {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
                                                       ChatML turns; what the assistant wrote is loss, with its <|im_end|>
and may carry reward, group and meta, which are kept.

Example: .venv/bin/python scripts/data/tokenize_text.py chats.jsonl train.jsonl --tokenizer Qwen3-4B
"""
import argparse
import sys

import qwen_tokens

KEPT = ("reward", "group", "meta")


def sample_of(record, tokenizer, eos):
    """Raises ValueError for a record that is none."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    keys = set(record) - set(KEPT)
    end = [eos] if eos is not None else []
    if keys == {"text"}:
        sample = {"tokens": tokenizer.plain(record["text"]) + end}
    elif keys == {"prompt", "response"}:
        prompt, response = tokenizer.plain(record["prompt"]), tokenizer.plain(record["response"]) + end
        if not prompt and response:
            raise ValueError("an empty prompt: the first token of a response needs something before it")
        sample = {"tokens": prompt + response, "response_length": len(response)}
    elif keys == {"messages"}:
        tokens, mask = tokenizer.turns(record["messages"])
        first = mask.index(1) if 1 in mask else len(mask)
        sample = {"tokens": tokens, "response_length": len(mask) - first, "loss_mask": mask[first:]}
    else:
        raise ValueError(f"got the keys {', '.join(sorted(keys)) or 'none'}, expected text, or prompt and response, or "
                         "messages")
    if not sample["tokens"]:
        raise ValueError("no token in it")
    sample.update({key: record[key] for key in KEPT if key in record})
    return sample


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    qwen_tokens.add_common_arguments(parser)
    parser.add_argument("--eos", metavar="TOKEN", help="append this token to every text and response, e.g. <|endoftext|>")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records out and count them, instead of ending")
    parser.add_argument("--allow-special", action="store_true",
                        help="text may spell out special tokens such as <|im_end|>: it is rendered already")
    args = parser.parse_args()
    tokenizer = qwen_tokens.QwenTokenizer(args.tokenizer, args.allow_special)
    eos = None
    if args.eos:
        eos = tokenizer.core.token_to_id(args.eos)
        if eos is None:
            qwen_tokens.fail(f"--eos {args.eos}: not a token of {args.tokenizer}")
    writer = qwen_tokens.Writer(args.output, args.max_tokens)
    skipped = 0
    for count, (number, record) in enumerate(qwen_tokens.read_jsonl(args.input)):
        if args.limit and count == args.limit:
            break
        try:
            writer.write(sample_of(record, tokenizer, eos))
        except (ValueError, TypeError) as error:
            if not args.skip_bad:
                qwen_tokens.fail(f"{args.input}:{number}: {error}. Leave such records out with --skip-bad")
            skipped += 1
    if skipped:
        print(f"{args.input}: {skipped} skipped", file=sys.stderr)
    writer.close()


if __name__ == "__main__":
    main()
