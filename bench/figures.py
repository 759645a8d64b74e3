#!/usr/bin/env python3
"""Makes docs/figures.md and its charts from recorded figures.

usage: figures.py [--check] [--results FOLDER] [--docs FOLDER]

A line of FOLDER/*.jsonl (bench/results) is one figure: group, work, unit, weft, perhaps peer and of_peer, machine, date,
revision. Benchmarks append them when WEFT_BENCH_RECORD names a file (script/bench --record). The newest figure of the same
work on the same machine counts. --check changes nothing and exits with 1 if the docs are not what would be made.
"""
import argparse
import collections
import datetime
import json
import math
import os
import re
import sys
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = {"group": str, "work": str, "unit": str, "weft": (int, float), "machine": str, "date": str, "revision": str}
PEER = {"peer": str, "of_peer": (int, float)}


def keep(**figure):
    """Appends a figure to the file that WEFT_BENCH_RECORD names, as bench/figure.hpp does. Does nothing without it."""
    path = os.environ.get("WEFT_BENCH_RECORD")
    if not path:
        return
    figure.setdefault("machine", processor())
    figure["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    figure["revision"] = os.environ.get("WEFT_BENCH_REVISION", "unknown")
    with open(path, "a") as file:
        file.write(json.dumps(checked(figure, path)) + "\n")


def processor():
    with open("/proc/cpuinfo") as file:
        name = re.search(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    return f"{name[1] if name else 'unknown processor'}, {os.cpu_count()} threads"


def checked(figure, where):
    wanted = dict(FIELDS, **(PEER if "peer" in figure or "of_peer" in figure else {}))
    for field, kind in wanted.items():
        if not isinstance(figure.get(field), kind) or isinstance(figure.get(field), bool):
            sys.exit(f"{where}: '{field}' is missing or has another type: {json.dumps(figure)}")
    if figure["weft"] <= 0 or figure.get("of_peer", 1) <= 0:
        sys.exit(f"{where}: a figure is a number above 0: {json.dumps(figure)}")
    return figure


def read(folder):
    newest = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jsonl"):
            continue
        with open(os.path.join(folder, name)) as file:
            for number, line in enumerate(file, 1):
                where = f"{name}:{number}"
                try:
                    figure = checked(json.loads(line), where)
                except ValueError as error:
                    sys.exit(f"{where}: {error}")
                key = tuple(figure.get(k) for k in ("group", "work", "unit", "machine", "peer"))
                if key not in newest or newest[key]["date"] <= figure["date"]:
                    newest.pop(key, None)  # the order of the newest run
                    newest[key] = figure
    return list(newest.values())


def ratio(figure):
    """Above 1 where Weft is faster or smaller."""
    if "of_peer" not in figure:
        return None
    quotient = figure["weft"] / figure["of_peer"]
    return quotient if figure["unit"].endswith("/s") else 1 / quotient


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(figures):
    with_peer = any("peer" in f for f in figures)
    lines = ["| work | Weft | peer | ratio |", "|---|---|---|---|"] if with_peer else ["| work | Weft |", "|---|---|"]
    for f in figures:
        cells = [f["work"], f"{number(f['weft'])} {f['unit']}"]
        if with_peer:
            cells += [f"{number(f['of_peer'])} {f['unit']} ({f['peer']})", f"{ratio(f):.2f}"] if "peer" in f else ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def chart(title, figures):
    """Ratios as bars on a scale by doublings; the line at 1 is the peer."""
    left, width, row, top = 420, 360, 22, 44
    peers = sorted({f["peer"] for f in figures})
    names = [f["work"] + (f", {f['peer']}" if len(peers) > 1 else "") for f in figures]
    ratios = [ratio(f) for f in figures]
    low, high = min(0.5, *ratios), max(2, *ratios)
    span = math.log2(high / low)
    at = lambda value: left + width * math.log2(value / low) / span
    height = top + row * len(figures) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" font-family="sans-serif"'
           ' font-size="12">',
           f'<rect width="100%" height="100%" fill="white"/><text x="10" y="20" font-weight="bold">{escape(title)}: '
           f'times {escape(peers[0] if len(peers) == 1 else "each peer")}, longer is better</text>']
    for i, (name, value) in enumerate(zip(names, ratios)):
        y, start, end = top + row * i, min(at(1), at(value)), max(at(1), at(value))
        colour = "#2a7f62" if value >= 1 else "#c26a3d"
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
                   f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="15" fill="{colour}"/>'
                   f'<text x="{end + 4:.1f}" y="{y + 12}">{value:.2f}</text>')
    out.append(f'<line x1="{at(1):.1f}" x2="{at(1):.1f}" y1="{top - 8}" y2="{height - 8}" stroke="#444"/></svg>')
    return "\n".join(out) + "\n"


def pages(figures):
    """The files of the docs folder: name -> text."""
    by_place = collections.OrderedDict()
    for f in figures:
        by_place.setdefault(f["machine"], collections.OrderedDict()).setdefault(f["group"], []).append(f)
    lines = ["# Figures", "",
             "Measured by the programs in `bench/` and made into this page by `bench/figures.py`; nothing here is typed. Each",
             "figure is the best of several interleaved runs, beside a peer that did the same work in the same run. A ratio above",
             "1 means that Weft is faster or needs less. `script/bench --record` measures on your machine.", ""]
    files = {}
    for place, groups in by_place.items():
        lines += [f"## {place}", ""]
        for group, rows in groups.items():
            dates = sorted({f["date"] for f in rows})
            revisions = sorted({f["revision"] for f in rows})
            lines += [f"### {group}", "", f"{' and '.join(dates)}, at {', '.join(revisions)}.", "", *table(rows), ""]
            compared = [f for f in rows if "peer" in f]
            if len(compared) > 2:
                name = "figures/" + re.sub(r"[^a-z0-9]+", "-", f"{place} {group}".lower()).strip("-") + ".svg"
                files[name] = chart(group, compared)
                lines += [f"![{group}]({name})", ""]
    files["figures.md"] = "\n".join(lines).rstrip() + "\n"
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", default=f"{HERE}/results")
    parser.add_argument("--docs", default=f"{HERE}/../docs")
    options = parser.parse_args()
    made = pages(read(options.results))
    charts = os.path.join(options.docs, "figures")
    there = {f"figures/{name}" for name in (os.listdir(charts) if os.path.isdir(charts) else [])}
    stale = sorted(there - set(made))
    for name, text in made.items():
        path = os.path.join(options.docs, name)
        if not os.path.exists(path) or open(path).read() != text:
            stale.append(name)
            if not options.check:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
    if not options.check:
        for name in there - set(made):
            os.remove(os.path.join(options.docs, name))
    elif stale:
        sys.exit(f"docs differ from bench/results: {', '.join(stale)}; run bench/figures.py")


if __name__ == "__main__":
    main()
