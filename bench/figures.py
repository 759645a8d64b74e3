#!/usr/bin/env python3
"""Makes docs/figures.md, its charts and the table of the README from recorded figures.

usage: figures.py [--check] [--results FOLDER] [--docs FOLDER] [--readme FILE]

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

# The rows of the README, good and bad ones: the beginning of a machine's name, group, work, and the beginning of a peer's name.
README_ROWS = [
    ("NVIDIA H100", "training step", "preset gpt2, f32", "PyTorch"),
    ("NVIDIA H100", "training step", "preset gpt2, f16", "PyTorch"),
    ("NVIDIA H100", "training step", "preset char-gpt, f16", "PyTorch"),
    ("NVIDIA H100", "training step", "preset small, f32", "PyTorch"),
    ("NVIDIA H100", "fine-tuning by adapters of rank 16", "smollm2-135m, 8 rows of 512, f16", "PyTorch"),
    ("NVIDIA H100", "fine-tuning by adapters of rank 16", "llama-3.1-8b:Q4_K, 2 rows of 512, f16, layers again", "PyTorch"),
    ("NVIDIA H100", "mixtures of experts", "8192 rows of 1024, 8 of 64 experts of 512, with gradients", "PyTorch"),
    ("NVIDIA H100", "embeddings of texts", "BERT base's shape, f16, 64 texts of 10 to 129 tokens", "PyTorch"),
    ("NVIDIA H100", "recurrent layers", "lstm T 100 N 64 I 256 H 512, with gradients", "PyTorch"),
    ("NVIDIA H100", "llama-3.1-8b in Q4_K, random weights", "decode after 512 tokens, f16 cache", ""),
    ("NVIDIA H100", "smollm2-135m in Q4_1, random weights", "decode after 512 tokens, f16 cache", ""),
    ("AMD EPYC, 2 threads", "training step", "preset small, best", "PyTorch"),
    ("AMD EPYC, 2 threads", "f32 matrix products", "square nn 1024 x 1024 x 1024", "oneDNN"),
    ("AMD EPYC, 2 threads", "convolutions of ResNet-18", "[8, 64, 56, 56] to 64 channels by 3 x 3, stride 1, forward", "oneDNN"),
    ("AMD EPYC, 2 threads", "recurrent layers", "lstm T 64 N 32 I 128 H 256, with gradients", "PyTorch"),
    ("AMD EPYC, 2 threads", "sorting and scans of floats", "sort, 16 M", "NumPy"),
]
BEGIN, END = "<!-- figures: made by bench/figures.py -->\n", "<!-- end of figures -->\n"


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
    # A figure without a peer gives way to one with a peer that is as new.
    place = lambda f: tuple(f[k] for k in ("group", "work", "unit", "machine"))
    compared = {}
    for f in newest.values():
        if "peer" in f:
            compared[place(f)] = max(f["date"], compared.get(place(f), ""))
    return [f for f in newest.values() if "peer" in f or compared.get(place(f), "") < f["date"]]


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


def readme_with(text, figures):
    """The README with its table of some figures."""
    rows = ["| machine | work | Weft | peer | ratio |", "|---|---|---|---|---|"]
    for machine, group, work, peer in README_ROWS:
        found = [f for f in figures if f["machine"].startswith(machine) and (f["group"], f["work"]) == (group, work)
                 and f.get("peer", "").startswith(peer)]
        if not found:
            sys.exit(f"no figure is recorded for the README's row {machine}, {group}, {work}, {peer}")
        f = found[0]
        other = [f"{number(f['of_peer'])} {f['unit']} ({f['peer']})", f"{ratio(f):.2f}"] if "peer" in f else ["", ""]
        rows.append("| " + " | ".join([machine, f"{group}: {work}", f"{number(f['weft'])} {f['unit']}", *other]) + " |")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or not after:
        sys.exit(f"the README lacks the lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + "\n" + "\n".join(rows) + "\n\n" + END + after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", default=f"{HERE}/results")
    parser.add_argument("--docs", default=f"{HERE}/../docs")
    parser.add_argument("--readme", help="the tree's own README for the tree's own results, otherwise none")
    options = parser.parse_args()
    figures = read(options.results)
    made = pages(figures)
    if not options.readme and options.results == parser.get_default("results"):
        options.readme = f"{HERE}/../README.md"
    if options.readme:
        made[os.path.relpath(options.readme, options.docs)] = readme_with(open(options.readme).read(), figures)
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
