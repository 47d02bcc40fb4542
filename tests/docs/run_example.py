#!/usr/bin/env python3
"""Runs an example and compares the end of what it prints with the lines that its head states.

Usage: run_example.py RUN.sh [ARGUMENT ...]
"""
import pathlib
import subprocess
import sys


def expected_lines(script):
    lines, found = script.read_text().split("\n"), []
    for line in lines[lines.index("# Expected last lines:") + 1:]:
        if not line.startswith("#   "):
            break
        found.append(line[4:])
    return found


def main():
    script = pathlib.Path(sys.argv[1])
    expected = expected_lines(script)
    ran = subprocess.run([script] + sys.argv[2:], stdout=subprocess.PIPE, text=True, timeout=120)
    print(ran.stdout)
    last = ran.stdout.rstrip("\n").split("\n")[-len(expected):]
    if ran.returncode != 0 or not expected or last != expected:
        print("run_example: exit code", ran.returncode, "\nexpected last lines:", *expected, sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
