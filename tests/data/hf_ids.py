"""Strings and the ids that Hugging Face's `tokenizers` gives them, for tokenizer_test.cpp.

Usage: hf_ids.py TOKENIZER_DIR OUT.jsonl COUNT [TEXT_FILE ...]
Writes {"text", "ids"} a line: COUNT seeded random strings, then each text of the files (.jsonl[.gz], .json[.gz]) once.
"""
import gzip
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts" / "data"))
import qwen_tokens

# First and last code points of what is written with them.
SCRIPTS = {
    "ascii": (0x20, 0x7E), "latin": (0xA1, 0x24F), "marks": (0x300, 0x36F), "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x4FF), "hebrew": (0x591, 0x5F4), "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F),
    "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA), "kannada": (0xC80, 0xCF2), "thai": (0xE01, 0xE5B),
    "tibetan": (0xF00, 0xFDA), "georgian": (0x10A0, 0x10FF), "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x139F),
    "vietnamese": (0x1EA0, 0x1EF9), "greek extended": (0x1F00, 0x1FFE), "punctuation": (0x2000, 0x206F),
    "currency": (0x20A0, 0x20BF), "letterlike": (0x2100, 0x214F), "numbers": (0x2150, 0x218B), "arrows": (0x2190, 0x22FF),
    "enclosed": (0x2460, 0x24FF), "dingbats": (0x2700, 0x27BF), "kana": (0x3041, 0x30FF), "cjk": (0x4E00, 0x9FFF),
    "hangul": (0xAC00, 0xD7A3), "compatibility": (0xF900, 0xFAD9), "fullwidth": (0xFF01, 0xFFEE),
    "musical": (0x1D100, 0x1D1E8), "math": (0x1D400, 0x1D7FF), "emoji": (0x1F300, 0x1FAFF), "rare cjk": (0x20000, 0x2A6DF),
    "compatibility 2": (0x2F800, 0x2FA1D), "controls": (0x00, 0x1F), "more controls": (0x7F, 0xA0),
}
SPACES = " \t\n\r\v\f\x85\xa0\u1680\u180e\u2000\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
WORDS = ("the of and to in I'm you're they'LL don't we'Ve he'D It'S 'ſ naïve émigré Ångström über 12345 3.14159 -42 x**2 "
         "def return while (i<=n); {\"key\": [1, 2]} //comment #include <vector> \\boxed{\\frac{1}{2}} $x^2$ http://a.b/c?d=e "
         "你好 世界 こんにちは 안녕하세요 สวัสดี नमस्ते مرحبا שלום Привет γειά 👩‍👩‍👧‍👦 🙂 🇩🇪 👍🏽 ½ ① Ⅷ ٣ ４２ ﬁ İ ŉ …—“”").split()
CODE = ["def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
        "SELECT * FROM t WHERE a>=10 AND b!='x';\r\n", "<div class=\"a\">\n  <p>text</p>\n</div>\n", "\\begin{align}\n a &= b\\\\\n"]


def random_text(random_, specials):
    parts = []
    for _ in range(random_.randint(1, 12)):
        kind = random_.random()
        if kind < 0.35:
            parts.append(random_.choice(WORDS) + random_.choice(["", " ", " ", "  ", "\n", ", "]))
        elif kind < 0.6:
            low, high = random_.choice(list(SCRIPTS.values()))
            parts.append("".join(chr(random_.randint(low, high)) for _ in range(random_.randint(1, 8))))
        elif kind < 0.75:
            parts.append("".join(random_.choice(SPACES) for _ in range(random_.randint(1, 6))))
        elif kind < 0.8:
            parts.append(random_.choice(" \n\t-=a1.") * random_.randint(1, 80))
        elif kind < 0.85:
            parts.append("".join(random_.choice("0123456789") for _ in range(random_.randint(1, 30))))
        elif kind < 0.9:
            parts.append(random_.choice(CODE))
        elif kind < 0.95:
            # A letter under a heap of marks in any order.
            parts.append(random_.choice("aeiouAEOçșΑ가") + "".join(chr(random_.randint(0x300, 0x345)) for _ in range(4)))
        elif specials:
            token = random_.choice(specials)
            parts.append(token if random_.random() < 0.8 else token[:random_.randint(1, len(token))])
    return "".join(parts)


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)


def texts_of(file):
    with (gzip.open if file.endswith(".gz") else open)(file, "rt", encoding="utf-8") as stream:
        if ".jsonl" in file:
            for line in stream:
                yield from strings_in(json.loads(line))
        else:
            yield from strings_in(json.load(stream))


def main():
    folder, out, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    core = qwen_tokens.QwenTokenizer(folder, allow_special=True).core
    specials = sorted(token.content for token in core.get_added_tokens_decoder().values())
    random_ = random.Random(20240607)
    texts = {}
    while len(texts) < count:
        texts[random_text(random_, specials)] = None
    for file in sys.argv[4:]:
        texts.update(dict.fromkeys(texts_of(file)))
    texts = list(texts)
    with open(out, "w", encoding="utf-8") as stream:
        for start in range(0, len(texts), 1000):
            batch = texts[start:start + 1000]
            for text, encoding in zip(batch, core.encode_batch(batch, add_special_tokens=False)):
                stream.write(json.dumps({"text": text, "ids": encoding.ids}) + "\n")
    print(f"{len(texts)} strings")


if __name__ == "__main__":
    main()
