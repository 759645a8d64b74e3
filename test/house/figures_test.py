#!/usr/bin/python3
"""docs/figures.md is what bench/figures.py makes of bench/results, and figures.py refuses what it cannot read."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FIGURES = pathlib.Path(__file__).parents[2] / "bench" / "figures.py"
ROW = {"group": "products", "work": "a < b", "unit": "ms", "weft": 2, "peer": "peer 1", "of_peer": 3, "machine": "cpu",
       "date": "2026-01-02", "revision": "abc"}
failures = []


def expect(what, holds):
    if not holds:
        failures.append(what)


def run(*arguments):
    return subprocess.run([sys.executable, FIGURES, *arguments], capture_output=True, text=True)


def made_from(rows, folder):
    results, docs = folder / "results", folder / "docs"
    results.mkdir(exist_ok=True), docs.mkdir(exist_ok=True)
    (results / "a.jsonl").write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return run("--results", results, "--docs", docs), docs


with tempfile.TemporaryDirectory() as name:
    readme = pathlib.Path(name) / "README.md"
    text = (FIGURES.parents[1] / "README.md").read_text()
    readme.write_text(text.replace("(NumPy 1.24.2) |", "(NumPy 1.24.2) | 9"))
    stale = run("--check", "--readme", readme)
    expect("a figure that was typed into the README is found", stale.returncode == 1 and "README.md" in stale.stderr)
    readme.write_text("no place for a table\n")
    expect("a README without the place", "lacks the lines" in run("--check", "--readme", readme).stderr)
    _, docs = made_from([ROW], pathlib.Path(name))
    readme.write_text(text)
    expect("a row without a figure", "no figure is recorded for the README's row" in
           run("--results", pathlib.Path(name) / "results", "--docs", docs, "--readme", readme).stderr)
    # A figure without a peer gives way to one with a peer that is as new, and no older one with a peer hides a new one.
    alone = {k: v for k, v in ROW.items() if k not in ("peer", "of_peer")}
    _, docs = made_from([dict(alone, weft=7), ROW], pathlib.Path(name))
    expect("a figure beside a peer", "7 ms" not in (docs / "figures.md").read_text())
    _, docs = made_from([dict(alone, weft=7, date="2026-01-03"), ROW], pathlib.Path(name))
    expect("a newer figure without a peer", "7 ms" in (docs / "figures.md").read_text())

there = run("--check")
expect(f"the tree's own page: {there.stderr}", there.returncode == 0)

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    older = dict(ROW, date="2026-01-01", weft=9)
    rate = dict(ROW, work="rate", unit="GFLOP/s")
    alone = {k: v for k, v in ROW.items() if k not in ("peer", "of_peer")}
    result, docs = made_from([ROW, older, rate, dict(ROW, work="third"), dict(alone, group="alone")], folder)
    page = (docs / "figures.md").read_text()
    expect("the newest figure counts", "| a < b | 2 ms | 3 ms (peer 1) | 1.50 |" in page and "9 ms" not in page)
    expect("rates are better when larger", "| rate | 2 GFLOP/s | 3 GFLOP/s (peer 1) | 0.67 |" in page)
    expect("a table without peers", "| work | Weft |" in page)
    charts = os.listdir(docs / "figures")
    expect("a chart of three comparisons, and none without a peer", charts == ["cpu-products.svg"])
    expect("names are escaped", "a &lt; b" in (docs / "figures" / charts[0]).read_text())
    expect("what was made is accepted", run("--check", "--results", folder / "results", "--docs", docs).returncode == 0)
    (docs / "figures.md").write_text(page.replace("1.50", "1.60"))
    stale = run("--check", "--results", folder / "results", "--docs", docs)
    expect("a figure that was typed is found", stale.returncode == 1 and "figures.md" in stale.stderr)
    made_from([alone], folder)
    expect("charts that have no figures any more go", os.listdir(docs / "figures") == [])

for what, row, message in (("text that is not JSON", "{", "a.jsonl:1"),
                           ("a missing field", {k: v for k, v in ROW.items() if k != "unit"}, "'unit' is missing"),
                           ("a number as text", dict(ROW, weft="2"), "'weft' is missing or has another type"),
                           ("a peer without a figure", {k: v for k, v in ROW.items() if k != "of_peer"}, "'of_peer'"),
                           ("a figure of nothing", dict(ROW, weft=0), "above 0")):
    with tempfile.TemporaryDirectory() as name:
        result, _ = made_from([row], pathlib.Path(name))
        expect(f"{what}: {result.stderr}", result.returncode != 0 and message in result.stderr)

for failure in failures:
    print(f"FAILED: {failure}")
print(f"{len(failures)} failures")
sys.exit(bool(failures))
