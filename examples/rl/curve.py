#!/usr/bin/env python3
"""Says how the mean reward of runs of `ringfold rl` rose, and draws it. Fails when one rose by less than --rise.

Usage: curve.py ROLLOUTS.jsonl ... [--window 20] [--rise 0.2] [--svg FILE]
"""

import argparse
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 300, 44, 40, 12, 36
STYLE = (":root{color-scheme:light dark;--page:#fbfbfa;--ink:#1c1e21;--soft:#62676e;--line:#d9dbde;--a:#2b6cb0;--b:#c05621;"
         "--c:#2f855a}\n@media (prefers-color-scheme:dark){:root{--page:#15171a;--ink:#e7e9ec;--soft:#9aa1aa;--line:#353a41;"
         "--a:#7db4f0;--b:#f0a35e;--c:#7fd0a3}}\nsvg text{fill:var(--soft);font:11px system-ui,sans-serif}"
         "svg .name{fill:var(--ink);font-size:13px}polyline{fill:none}.grid{stroke:var(--line)}")


def rewards_of(path):
    return [json.loads(line)["reward_mean"] for line in open(path)]


def mean(values):
    return sum(values) / len(values)


def smooth(values, reach=2):
    """Means over up to 2 reach + 1 rollouts."""
    return [mean(values[max(0, i - reach):i + reach + 1]) for i in range(len(values))]


def drawing(runs):
    longest = max(len(run) for run in runs)

    def x(rollout):
        return LEFT + (WIDTH - LEFT - RIGHT) * (rollout - 1) / max(1, longest - 1)

    def y(reward):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * reward

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><style>{STYLE}</style>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="var(--page)"/>',
             f'<text class="name" x="{LEFT}" y="22">Mean reward by rollout: each run, and means over five rollouts</text>']
    for tick in range(0, 101, 25):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick / 100):.1f}H{WIDTH - RIGHT}"/>'
                     f'<text x="{LEFT - 8}" y="{y(tick / 100) + 4:.1f}" text-anchor="end">{tick / 100:g}</text>')
    for rollout in range(20, longest + 1, 20):
        parts.append(f'<text x="{x(rollout):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{rollout}</text>')
    for number, run in enumerate(runs):
        for values, width, opacity in ((run, 1, 0.35), (smooth(run), 2, 1)):
            points = " ".join(f"{x(i + 1):.1f},{y(value):.1f}" for i, value in enumerate(values))
            parts.append(f'<polyline points="{points}" stroke="var(--{"abc"[number % 3]})" stroke-width="{width}" '
                         f'opacity="{opacity}"/>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="ROLLOUTS.jsonl")
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--rise", type=float, default=0.0)
    parser.add_argument("--svg")
    arguments = parser.parse_args()
    if arguments.window < 1:
        parser.error(f"--window: got {arguments.window}, expected at least 1")
    runs = [rewards_of(path) for path in arguments.runs]
    low = []
    for path, run in zip(arguments.runs, runs):
        if len(run) < 2 * arguments.window:
            sys.exit(f"{path}: {len(run)} rollouts, fewer than two windows of {arguments.window}")
        first, last = mean(run[:arguments.window]), mean(run[-arguments.window:])
        print(f"{path}: rollout 1 {run[0]:.2f}, first {arguments.window} {first:.2f}, last {arguments.window} {last:.2f}")
        if last - first < arguments.rise:
            low.append(path)
    if arguments.svg:
        with open(arguments.svg, "w") as file:
            file.write(drawing(runs))
    if low:
        sys.exit(f"a rise below {arguments.rise:g}: {', '.join(low)}")
    print(f"the last {arguments.window} rollouts earn at least {arguments.rise:g} more than the first {arguments.window}, "
          f"each of {len(runs)} run{'s' if len(runs) > 1 else ''}")


if __name__ == "__main__":
    main()
