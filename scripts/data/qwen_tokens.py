"""From text to the token JSONL of docs/reference/data.md, with a byte-level BPE tokenizer of the Qwen3 family.

Needs the package `tokenizers` (in .venv). Shared by the scripts beside it.
"""
import argparse
import gzip
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

# Qwen2 and Qwen3: contractions, letters with one leading non-letter, single digits, symbols, blank runs.
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"


def fail(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


class QwenTokenizer:
    """Ids as Hugging Face's Qwen2Tokenizer gives them."""

    def __init__(self, folder, allow_special=False):
        self.allow_special = allow_special
        folder = pathlib.Path(folder)
        if (folder / "tokenizer.json").is_file():
            self.core = Tokenizer.from_file(str(folder / "tokenizer.json"))
        elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            self.core = self._from_vocab(folder)
        else:
            fail(f"{folder}: holds neither tokenizer.json nor vocab.json and merges.txt")
        self.specials = [token.content for token in self.core.get_added_tokens_decoder().values() if token.special]

    @staticmethod
    def _from_vocab(folder):
        core = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        core.normalizer = normalizers.NFC()
        core.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        core.decoder = decoders.ByteLevel()
        config = folder / "tokenizer_config.json"
        added = json.loads(config.read_text(encoding="utf-8")).get("added_tokens_decoder", {}) if config.is_file() else {}
        for wanted, entry in sorted(added.items(), key=lambda item: int(item[0])):
            token = AddedToken(entry["content"], special=entry.get("special", False),
                               normalized=entry.get("normalized", False), lstrip=entry.get("lstrip", False),
                               rstrip=entry.get("rstrip", False), single_word=entry.get("single_word", False))
            (core.add_special_tokens if token.special else core.add_tokens)([token])
            if core.token_to_id(entry["content"]) != int(wanted):
                fail(f"{config}: {entry['content']} has id {wanted} there, but {core.token_to_id(entry['content'])} by "
                     "vocab.json: the files are not of one tokenizer")
        return core

    def encode(self, text):
        return self.core.encode(text, add_special_tokens=False).ids

    def special_in(self, text):
        """The first special token that the text spells out, or None: data must not open or end turns."""
        return next((special for special in self.specials if special in text), None)

    def refuse_special(self, text):
        special = None if self.allow_special else self.special_in(text)
        if special:
            raise ValueError(f"the text spells out the special token {special}")

    def plain(self, text):
        """Ids of text from outside."""
        self.refuse_special(text)
        return self.encode(text)

    def turns(self, messages):
        """ChatML turns -> (tokens, mask): 1 for what the assistant wrote and for the end of its turn."""
        if self.core.token_to_id(TURN_BEGIN) is None or self.core.token_to_id(TURN_END) is None:
            raise ValueError(f"the tokenizer has no {TURN_BEGIN} and {TURN_END}, which chat turns need")
        tokens, mask, given = [], [], ""
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if not isinstance(role, str) or not isinstance(content, str):
                raise ValueError("a message needs \"role\" and \"content\" as strings")
            given += f"{TURN_BEGIN}{role}\n"
            if role != "assistant":
                self.refuse_special(content)
                given += content + f"{TURN_END}\n"
                continue
            # Encoded apart from what was given: a model that generates starts with a token of its own.
            head, body = self.encode(given), self.plain(content) + self.encode(TURN_END)
            tokens += head + body
            mask += [0] * len(head) + [1] * len(body)
            given = "\n"
        rest = self.encode(given)
        return tokens + rest, mask + [0] * len(rest)


def chat_sample(tokenizer, prompt_messages, answer):
    """One sample whose response is the answer with its end of turn."""
    prompt, _ = tokenizer.turns(prompt_messages)
    prompt += tokenizer.encode(f"{TURN_BEGIN}assistant\n")
    response = tokenizer.plain(answer) + tokenizer.encode(TURN_END)
    return {"tokens": prompt + response, "response_length": len(response)}


def open_text(file, mode="r"):
    if file == "-":
        return sys.stdin if mode == "r" else sys.stdout
    try:
        return (gzip.open if str(file).endswith(".gz") else open)(file, mode + "t", encoding="utf-8", newline="\n")
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def read_jsonl(file):
    """(line number, record) of each non-blank line."""
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    fail(f"{file}:{number}: broken JSON: {error}")


class Writer:
    """Writes samples and says at the end what was written."""

    def __init__(self, file, max_tokens=0):
        self.file, self.max_tokens = file, max_tokens
        self.out = open_text(file, "w")
        self.samples = self.tokens = self.longest = self.too_long = 0

    def write(self, sample):
        length = len(sample["tokens"])
        if self.max_tokens and length > self.max_tokens:
            self.too_long += 1
            return
        self.out.write(json.dumps(sample, separators=(",", ":")) + "\n")
        self.samples += 1
        self.tokens += length
        self.longest = max(self.longest, length)

    def close(self):
        self.out.flush()
        if self.out is not sys.stdout:
            self.out.close()
        left_out = f", {self.too_long} longer than {self.max_tokens} left out" if self.max_tokens else ""
        print(f"{self.file}: {self.samples} samples, {self.tokens} tokens, longest {self.longest}{left_out}",
              file=sys.stderr)
        if self.samples == 0:
            fail("no sample written")


def add_common_arguments(parser):
    parser.add_argument("input", help="file to read (- for stdin)")
    parser.add_argument("output", help="token JSONL to write (.gz: compressed; - for stdout)")
    parser.add_argument("--tokenizer", required=True, metavar="DIR",
                        help="folder with tokenizer.json, or vocab.json, merges.txt and tokenizer_config.json")
    parser.add_argument("--max-tokens", type=int, default=0, metavar="N", help="leave longer samples out, and count them")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="stop after N records of the input")


def convert(description, samples_of):
    """Whole adapter: every record of the input -> samples. samples_of(record, tokenizer) yields them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_arguments(parser)
    args = parser.parse_args()
    tokenizer = QwenTokenizer(args.tokenizer)
    writer = Writer(args.output, args.max_tokens)
    for count, (number, record) in enumerate(read_jsonl(args.input)):
        if args.limit and count == args.limit:
            break
        try:
            for sample in samples_of(record, tokenizer):
                writer.write(sample)
        except (KeyError, ValueError) as error:
            fail(f"{args.input}:{number}: {error}")
    writer.close()
