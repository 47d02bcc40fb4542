#!/usr/bin/env python3
"""One SVG from `ringfold bench --timeline FILE`: what every rank did in the last step of each policy, on one time axis; packs
coloured by CP size, the plan's prediction as a line. Light and dark by the reader's setting.

Usage: timeline_picture.py FILE.jsonl PICTURE.svg TITLE [NAME,NAME,.. of the policies]
"""
import html
import json
import sys

WIDTH, LEFT, ROW, GAP = 960, 150, 16, 3
COLOURS = {1: "#2a78d6", 2: "#e0912f", 4: "#3f9b57", 8: "#b25fc4", 16: "#c8453b", 32: "#6b7a8c", 64: "#8a6d3b"}


def main():
    steps = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    end = max(max(step["step_us"], step["plan"]["summary"]["makespan"]) for step in steps)
    scale = (WIDTH - LEFT - 10) / end
    body, y = [], 0

    def text(words, x, at, css="", anchor="start"):
        body.append(f'<text x="{x}" y="{at:.1f}" text-anchor="{anchor}" style="{css}">{html.escape(words)}</text>')

    text(sys.argv[3], 0, y + 14, "font-size:16px;font-weight:600")
    y += 34
    sizes = sorted({group["cp_size"] for step in steps for micro in step["plan"]["micro_steps"] for group in micro["groups"]})
    x = 0
    for size in sizes:
        body.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" rx="2" fill="{COLOURS[size]}"/>')
        text(f"CP {size}", x + 16, y)
        x += 76
    body.append(f'<line x1="{x + 4}" x2="{x + 4}" y1="{y - 12}" y2="{y + 3}" class="plan"/>')
    text("predicted end of the packs; grey: reduction and update", x + 12, y)
    y += 14
    names = sys.argv[4].split(",") if len(sys.argv) > 4 else [step["plan"]["policy"] for step in steps]
    for name, step in zip(names, steps, strict=True):
        plan = step["plan"]
        policy = name + (", free" if plan["mode"] == "free" else "")
        ranks = len(step["measured_us"])
        text(policy, 0, y + 13, "font-weight:600")
        text(f'{step["step_us"] / 1e3:.0f} ms', 0, y + 28, "fill:var(--soft)")
        packs = [[] for _ in range(ranks)]
        for micro in plan["micro_steps"]:
            for group in micro["groups"]:
                for rank in group["ranks"]:
                    packs[rank].append(group)
        for rank in range(ranks):
            top = y + rank * (ROW + GAP)
            text(f"rank {rank}", LEFT - 8, top + 12, "fill:var(--soft)", "end")
            body.append(f'<rect x="{LEFT}" y="{top}" width="{step["step_us"] * scale:.1f}" height="{ROW}" class="rest"/>')
            times = step["measured_us"][rank]
            for i, group in enumerate(packs[rank]):
                begin, done = times[2 * i], times[2 * i + 1]
                body.append(f'<rect x="{LEFT + begin * scale:.1f}" y="{top}" width="{max(0.5, (done - begin) * scale - 0.6):.1f}" '
                            f'height="{ROW}" fill="{COLOURS[group["cp_size"]]}"><title>CP {group["cp_size"]}, '
                            f'{len(group["samples"])} samples, {max(group["real_tokens"])} tokens a rank, '
                            f'{(done - begin) / 1e3:.1f} ms</title></rect>')
        bottom = y + ranks * (ROW + GAP)
        at = LEFT + plan["summary"]["makespan"] * scale
        body.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y - 2}" y2="{bottom}" class="plan"/>')
        y = max(bottom, y + 32) + 12
    style = (":root{--page:#fff;--ink:#1c2530;--soft:#5d6b7a;--rest:#dfe4ea}"
             "@media (prefers-color-scheme: dark){:root{--page:#14181d;--ink:#e6eaf0;--soft:#9aa7b5;--rest:#2b333d}}"
             "text{font:12px system-ui,sans-serif;fill:var(--ink)}.rest{fill:var(--rest)}"
             ".plan{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3}")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-16 -16 {WIDTH + 32} {y + 24:.0f}" role="img">'
                  f'<style>{style}</style>\n<rect x="-16" y="-16" width="{WIDTH + 32}" height="{y + 24:.0f}" rx="6" fill="var(--page)"/>\n'
                  + "\n".join(body) + "\n</svg>\n")


if __name__ == "__main__":
    main()
