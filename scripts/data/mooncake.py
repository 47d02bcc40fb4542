#!/usr/bin/env python3
"""Length trace of a CSV with a header -> lengths file for `ringfold plan --lengths-file` and `ringfold bench`.

The default columns are those of the Mooncake trace; a length is their sum (prompt + answer). For Azure's traces:
--columns ContextTokens,GeneratedTokens.

Example: python3 scripts/data/mooncake.py mooncake_conversation_lengths.csv lengths.txt --max-tokens 32768 --limit 512
"""
import argparse
import csv
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="CSV with a header")
    parser.add_argument("output", help="lengths file, one a line")
    parser.add_argument("--columns", default="input_length,output_length", metavar="A,B,...", help="columns to add up")
    parser.add_argument("--max-tokens", type=int, default=0, metavar="N", help="leave longer ones out, and count them")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="stop after N lengths")
    args = parser.parse_args()
    columns = args.columns.split(",")
    written = too_long = 0
    with open(args.input, encoding="utf-8", newline="") as source, open(args.output, "w", encoding="utf-8") as out:
        rows = csv.DictReader(source)
        missing = [column for column in columns if column not in (rows.fieldnames or [])]
        if missing:
            print(f"error: {args.input}: no column {', '.join(missing)}; it has {', '.join(rows.fieldnames or [])}",
                  file=sys.stderr)
            sys.exit(2)
        for row in rows:
            length = sum(int(row[column]) for column in columns)
            if args.max_tokens and length > args.max_tokens:
                too_long += 1
                continue
            if args.limit and written == args.limit:
                break
            if length >= 1:
                out.write(f"{length}\n")
                written += 1
    print(f"{args.output}: {written} lengths, {too_long} longer left out", file=sys.stderr)


if __name__ == "__main__":
    main()
