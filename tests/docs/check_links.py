#!/usr/bin/env python3
"""Fails on a link to a file that does not exist, in any page. Usage: check_links.py ROOT"""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    pages = sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))
    links, broken = 0, []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(root)}: no {target}")
    print("\n".join(broken) if broken else f"check_links: {len(pages)} pages, {links} links")
    return 1 if broken or not links else 0


if __name__ == "__main__":
    sys.exit(main())
