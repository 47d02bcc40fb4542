#!/usr/bin/env python3
"""One SVG from a page of `ringfold plan --html`: its headline, the plan and static CP; light and dark by the reader's setting.

Usage: plan_picture.py PAGE.html PICTURE.svg
"""
import html
import pathlib
import re
import sys

WIDTH, MARGIN = 960, 16


def main():
    page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    style = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    # Colours and the rules of pictures; what lays out the page stays out.
    rules = [rule for rule in re.findall(r"(?:\s*@media[^{]*\{[^{}]*\{[^}]*\}\}|[^{}]+\{[^}]*\})", style)
             if re.match(r"\s*(:root|@media|svg (text|\.)|\.(lane|tick|limit|pack)\b)", rule)]
    pictures = re.findall(r"<h2>([^<]*)</h2>(?:<p>[^<]*</p>)?\s*(<svg viewBox=\"0 0 \d+ ([\d.]+)\".*?</svg>)", page, re.S)
    timelines = [(title, svg, float(height)) for title, svg, height in pictures if "timeline of the ranks" in svg]
    key = re.findall(r'<span><i style="background:(#\w+)"></i>([^<]*)</span>', page)
    headline = html.unescape(re.search(r"<h1>(.*?)</h1>", page).group(1))
    about = html.unescape(re.search(r"<p>(.*?)</p>", page).group(1))

    body, y = [], MARGIN + 14

    def text(words, size, extra=""):
        body.append(f'<text class="name" x="0" y="{y}" style="font-size:{size}px{extra}">{html.escape(words)}</text>')

    text(headline, 17, ";font-weight:600")
    y += 20
    text(about, 12, ";fill:var(--soft)")
    y += 22
    for i, (colour, name) in enumerate(key):
        body.append(f'<rect x="{76 * i}" y="{y - 10}" width="11" height="11" rx="2" fill="{colour}"/>'
                    f'<text x="{76 * i + 16}" y="{y}" style="font-size:12px">{name}</text>')
    body.append(f'<text x="{76 * len(key)}" y="{y}" style="font-size:12px">┆ physical limit</text>')
    for title, svg, height in timelines:
        y += 30
        text(html.unescape(title), 13, ";font-weight:600")
        y += 10
        svg = re.sub(r"<title>.*?</title>", "", svg, flags=re.S)
        body.append(svg.replace("<svg ", f'<svg x="0" y="{y}" width="{WIDTH}" height="{height:.0f}" ', 1))
        y += height
    full = f"{-MARGIN} 0 {WIDTH + 2 * MARGIN} {y + MARGIN:.0f}"
    picture = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{full}" role="img"><style>{"".join(rules)}</style>\n'
               f'<rect x="{-MARGIN}" width="{WIDTH + 2 * MARGIN}" height="100%" rx="6" fill="var(--page)"/>\n'
               + "\n".join(body) + "\n</svg>\n")
    pathlib.Path(sys.argv[2]).write_text(picture.replace("\n:root", ":root"), encoding="utf-8")


if __name__ == "__main__":
    main()
