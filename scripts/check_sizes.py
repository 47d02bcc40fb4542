#!/usr/bin/env python3
"""Fails on a file of more than 800 lines and on a train/step.cpp of 200 or more; warns about files and functions above
the soft limits (headers 150 lines, sources 400, functions 60).

Usage: check_sizes.py ROOT
"""
import pathlib
import re
import sys

HARD_LINES = 800
SOFT_LINES = {".h": 150, ".cpp": 400, ".cu": 400, ".py": 400, ".sh": 150}
FUNCTION_LINES = 60
STEP_FILE, STEP_LINES = "src/ringfold/train/step.cpp", 200
FOLDERS = ["src", "apps", "tests", "bench", "bindings", "examples", "scripts", "cmake"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake"}


def long_functions(lines):
    """(first line, name, length) of functions above the limit in formatted C++: a line in column 0 that ends in "{" opens
    one, a "}" in column 0 closes it. Members of classes are found by their own indentation of two."""
    found = []
    for indent in ("", "  "):
        start = None
        for number, line in enumerate(lines, 1):
            if start is None and re.match(rf"^{indent}[A-Za-z~].*\)[^;]*\{{$", line):
                start = number, line.strip()
            elif start and line.rstrip() in (f"{indent}}}", f"{indent}}};"):
                length = number - start[0] + 1
                if length > FUNCTION_LINES and not re.match(r"(namespace|class|struct|TEST)", start[1]):
                    found.append((start[0], start[1].split("(")[0].split()[-1], length))
                start = None
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = sorted(p for folder in FOLDERS for p in (root / folder).rglob("*")
                   if p.suffix in SUFFIXES and "__pycache__" not in p.parts)
    if not files:
        print(f"check_sizes: nothing to check under {root}")
        return 1
    errors = warnings = 0
    longest = (0, "")
    for file in files:
        name = file.relative_to(root).as_posix()
        lines = file.read_text(encoding="utf-8").split("\n")
        count = len(lines) - (lines[-1] == "")
        longest = max(longest, (count, name))
        limit = STEP_LINES - 1 if name == STEP_FILE else HARD_LINES
        if count > limit:
            print(f"error: {name}: {count} lines, at most {limit}")
            errors += 1
        elif count > SOFT_LINES.get(file.suffix, HARD_LINES) and not name.startswith("tests/"):
            print(f"warning: {name}: {count} lines, better {SOFT_LINES[file.suffix]}")
            warnings += 1
        if file.suffix in (".h", ".cpp", ".cu") and not name.startswith("tests/"):
            for number, function, length in long_functions(lines):
                print(f"warning: {name}:{number}: {function}: {length} lines, better {FUNCTION_LINES}")
                warnings += 1
    print(f"check_sizes: {len(files)} files, longest {longest[1]} ({longest[0]} lines): {errors} errors, "
          f"{warnings} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
