"""Makes tests/data/tokenizers: small tokenizers trained on the text below, with the ids that Hugging Face gives.

Usage: .venv/bin/python tests/data/make_tokenizers.py
  qwen/    vocab.json, merges.txt, tokenizer_config.json of Qwen's kind: NFC, one digit a word
  llama3/  tokenizer.json of Llama 3's kind: its pattern, up to three digits, ignore_merges
  gpt2/    tokenizer.json of GPT-2's kind: the pattern of ByteLevel itself, an added token searched for after normalization
Each has golden.jsonl: {"text", "ids"} a line.
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hf_ids
import qwen_tokens
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
TEXT = ["user assistant system tool Hello world, the quick brown fox jumps over the lazy dog.\n\n",
        "I'm sure they're right; we'll see what 1234 and 567 make: don't you?\n", "你好，世界。こんにちは世界。\n",
        "def f(x):\n    return x ** 2\n\n    # naïve émigré\n"] * 4
GOLDEN = ["", "Hello world", "Hello  world \n\n ", "I'm you've THEY'LL don't 'S", "12345 678 ٣٤٥ ½①", "naïve émigré e\u0301 \u212b",
          "\n\n\nhello\n \n world\t\t.", "你好，世界。こんにちは", "a\u0316\u0301 q\u0301\u0316 가\u1100\u1161\u11a8", "\x00\x01\x7f\x85\u180e \u2028x",
          "🙂👩‍👩‍👧‍👦 emoji", "xylophone xylophones a xylophone", " " * 70 + "x", "=" * 100, "thethethethethethethethethethethethe"]


def train(split, normalizer, added, vocab_size=256 + 64):
    core = Tokenizer(models.BPE())
    if normalizer:
        core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]) if split else pre_tokenizers.ByteLevel(
            add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    for token in added:
        (core.add_special_tokens if token.special else core.add_tokens)([token])
    return core


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


def write(folder, name, value, **options):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, **options) + "\n"
    (folder / name).write_text(text, encoding="utf-8")


def golden(folder, core):
    random_ = random.Random(7)
    added = sorted(token.content for token in core.get_added_tokens_decoder().values())
    texts = GOLDEN + [token + " a" + token[:-1] + token * 2 for token in added]
    texts += [hf_ids.random_text(random_, added) for _ in range(40)]
    write(folder, "golden.jsonl",
          "".join(json.dumps({"text": text, "ids": core.encode(text, add_special_tokens=False).ids}) + "\n" for text in texts))


def main():
    root = pathlib.Path(__file__).parent / "tokenizers"
    for name in ("qwen", "llama3", "gpt2"):
        (root / name).mkdir(parents=True, exist_ok=True)
    compact = {"separators": (",", ":")}

    core = train(qwen_tokens.QWEN_SPLIT, normalizers.NFC(), [])
    model = json.loads(core.to_str())["model"]
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
    config = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "added_tokens_decoder": {
        str(len(model["vocab"]) + i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                                       "single_word": False, "special": name.endswith("|>")}
        for i, name in enumerate(names)}}
    write(root / "qwen", "vocab.json", model["vocab"], **compact)
    write(root / "qwen", "merges.txt", "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]))
    write(root / "qwen", "tokenizer_config.json", config, indent=1)
    golden(root / "qwen", qwen_tokens.QwenTokenizer(root / "qwen").core)

    core = train(LLAMA3_SPLIT, None, [])
    state = json.loads(core.to_str())
    # A token that no merge makes: only ignore_merges finds it.
    state["model"]["vocab"]["\u0120xylophone"] = len(state["model"]["vocab"])
    state["model"]["ignore_merges"] = True
    state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    core = Tokenizer.from_str(json.dumps(state))
    core.add_special_tokens([special(name) for name in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")])
    core.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", core.token_to_id("<|begin_of_text|>"))])
    write(root / "llama3", "tokenizer.json", json.loads(core.to_str()), **compact)
    golden(root / "llama3", Tokenizer.from_file(str(root / "llama3" / "tokenizer.json")))

    core = train(None, None, [AddedToken("<|endoftext|>", special=True, normalized=True), AddedToken("hello world", normalized=True),
                              AddedToken("<|endoftext|>2", special=True, normalized=True)])
    write(root / "gpt2", "tokenizer.json", json.loads(core.to_str()), **compact)
    golden(root / "gpt2", Tokenizer.from_file(str(root / "gpt2" / "tokenizer.json")))


if __name__ == "__main__":
    main()
