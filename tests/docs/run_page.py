#!/usr/bin/env python3
"""Runs the ```bash blocks of a page as one script, from the root of the repository: a page that readers copy must work.
Blocks of other kinds (```console) are for show.

Usage: run_page.py PAGE.md      (in the root; the page says which variables it takes)
"""
import re
import subprocess
import sys


def main():
    blocks = re.findall(r"^```bash\n(.*?)^```$", open(sys.argv[1]).read(), re.S | re.M)
    if not blocks:
        print(f"run_page: no ```bash block in {sys.argv[1]}")
        return 1
    ran = subprocess.run(["bash", "-euxo", "pipefail", "-c", "\n".join(blocks)], timeout=200)
    print(f"run_page: {len(blocks)} blocks, exit code {ran.returncode}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
