#!/usr/bin/env python3
"""Fails on an error or warning that docs/guide/troubleshooting.md does not explain.

Of every message in src and apps - what is thrown, what `fail`, `refuse` and `infeasible` are given, what is logged as a
warning, any text that begins with "[component] " - the stem must stand on the page: the longest part of the first text
before "Hint:" that holds no value. `{}: got {} tokens, expected at most {} (--limit)` has the stem "tokens, expected at
most".

Usage: check_messages.py ROOT [--list]   check; print every stem with its place
       check_messages.py --self-test      check the checker
"""
import pathlib
import re
import sys

PAGE = "docs/guide/troubleshooting.md"
LITERAL = re.compile(r'R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"', re.S)
CHARACTER = re.compile(r"'(?:[^'\\]|\\.)+'")
COMMENT = re.compile(r"//[^\n]*")
CALL = re.compile(r"\b(?:throw\s+\w*(?:Error|BadSample)\s*\(|(?:fail\w*|refuse|infeasible|warning)\s*\()")
# Texts that only pass on the message of another place.
FORWARDED = {"rank"}


def arguments(text, start):
    """The texts of a call, adjacent literals joined, from its opening parenthesis to the closing one."""
    depth, at, joined, touching = 0, start, [], False
    while at < len(text):
        if skip := CHARACTER.match(text, at) or COMMENT.match(text, at):
            at = skip.end()
        elif literal := LITERAL.match(text, at):
            words = literal.group(2) if literal.group(2) is not None else literal.group(3).replace('\\"', '"')
            if touching:
                joined[-1] += words
            else:
                joined.append(words)
            touching, at = True, literal.end()
        else:
            touching = touching and text[at].isspace()
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
    return joined


def stem_of(message):
    message = re.sub(r"^(ringfold: error: )?\[[a-z_]+\] ?", "", message.split("Hint:")[0]).replace("{{", "{").replace("}}", "}")
    parts = [part.strip(" .,:;'\"`()[]\\") for part in re.split(r"\{[\w:.]*\}", message)]
    best = max(parts, key=len)
    return best if re.search(r"[A-Za-z]{2}", best) else ""


def stems(text):
    """(line, stem) of every message in a source file."""
    found = []
    for call in CALL.finditer(text):
        for words in arguments(text, call.end() - 1):
            if stem := stem_of(words):
                found.append((text.count("\n", 0, call.start()) + 1, stem))
                break
    for literal in re.finditer(r'"((?:ringfold: error: )?\[[a-z_]+\] (?:[^"\\\n]|\\.)*)"', text):
        rest = arguments("(" + text[literal.start():literal.start() + 2000], 0)
        if rest and stem_of(rest[0]):
            found.append((text.count("\n", 0, literal.start()) + 1, stem_of(rest[0])))
    return sorted(set(found))


def self_test():
    source = r"""
  throw DataError(fmt::format("[data] {}: got {} tokens, "
                              "expected at most {}. Hint: raise it", file, count, limit));
  if (bad) fail("mask length", fmt::format("response of {}", n));
  return cold ? "" : fmt::format("[mesh] rank {} said \"no\"", rank);
  log::warning(fmt::format("step {}: nothing to learn", step));
  // throw DataError("in a comment it would be found: harmless");
"""
    expected = {"tokens, expected at most", "mask length", 'said "no', "nothing to learn"}
    found = {stem for _, stem in stems(source)}
    if not expected <= found:
        print(f"check_messages: self-test failed: {expected - found} not among {found}")
        return 1
    return 0


def main():
    if "--self-test" in sys.argv:
        return self_test()
    if self_test() != 0:
        return 1
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    page = " ".join((root / PAGE).read_text(encoding="utf-8").split())
    total, missing = 0, []
    for folder in ("src", "apps"):
        for file in sorted((root / folder).rglob("*.cpp")):
            for line, stem in stems(file.read_text(encoding="utf-8")):
                total += 1
                if "--list" in sys.argv:
                    print(f"{file.relative_to(root)}:{line}: {stem}")
                if stem not in FORWARDED and " ".join(stem.split()) not in page:
                    missing.append(f"{file.relative_to(root)}:{line}: not in {PAGE}: {stem}")
    print("\n".join(missing) if missing else f"check_messages: {total} messages, all in {PAGE}")
    if total < 100:
        print("check_messages: too few messages found: does the script still know how they are written?")
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
