"""Compares scripts/data/qwen_tokens.py with strings whose ids are known. Usage: golden_tokens.py TOKENIZER_DIR"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts" / "data"))
import qwen_tokens

folder = pathlib.Path(sys.argv[1])
tokenizer = qwen_tokens.QwenTokenizer(folder)
cases = [json.loads(line) for line in (folder / "golden_tokenization.jsonl").read_text(encoding="utf-8").splitlines()]
wrong = [case["text"] for case in cases if tokenizer.encode(case["text"]) != case["ids"]]
print(f"{len(cases)} strings, {len(wrong)} differ {wrong}")
sys.exit(1 if wrong or len(cases) < 16 else 0)
