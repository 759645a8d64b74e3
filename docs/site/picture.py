#!/usr/bin/env python3
"""Sets the text of a terminal beside a chart: picture.py TEXT CHART.svg OUT.svg

The drawing of the curve in characters is left out, since the chart shows it, and long output is cut in the middle.
"""
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LINE, ROWS, COLUMNS = 760, 15, 46, 108


def shown(lines):
    """The lines to show: none of the drawn curve, the first and the last of what is left."""
    lines = [line.rstrip() for line in lines]
    lines = [line for line in lines if not re.search("[\u2800-\u28ff│└┤]", line)]
    lines = [line for line in lines if not re.fullmatch(r"[\d\s.k]+|\s*step  \(y: .*\)", line) or not line.strip()]
    cut = []
    for line in lines:
        while len(line) > COLUMNS:
            at = line.rfind(" ", 0, COLUMNS)
            at = at if at > 0 else COLUMNS
            cut.append(line[:at])
            line = line[at:].lstrip()
        cut.append(line)
    if len(cut) > ROWS:
        head = ROWS * 3 // 5
        cut = cut[:head] + ["..."] + cut[len(cut) - (ROWS - head - 1):]
    return cut


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    text, chart, out = sys.argv[1:]
    lines = shown(open(text).read().split("\n"))
    drawing = open(chart).read()
    size = re.search(r'<svg[^>]*width="(\d+)" height="(\d+)"', drawing)
    if not size:
        sys.exit(f"{chart}: not a chart of weft train")
    height = LINE * len(lines) + 32
    scale = height / int(size[2]) if int(size[2]) < height else 1
    width = WIDTH + int(int(size[1]) * scale)
    style = re.sub(r"<style>", '<style>.shell { font: 11px ui-monospace, monospace; fill: #d7dae0; white-space: pre; }', drawing, count=1)
    inner = re.sub(r"<svg[^>]*>", f'<svg x="{WIDTH}" y="0" width="{int(int(size[1]) * scale)}" height="{height}" '
                   f'viewBox="0 0 {size[1]} {size[2]}">', style, count=1)
    rows = "".join(f'<text class="shell" x="14" y="{24 + LINE * i}">{escape(line)}</text>\n' for i, line in enumerate(lines))
    with open(out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                   f'role="img">\n<rect width="{WIDTH}" height="{height}" fill="#16181d"/>\n{inner}{rows}</svg>\n')


main()
