#!/usr/bin/env python3
"""Doxygen's filter for pages: prints FILE with a label on each heading, links to headings that Doxygen follows, and without the
notes that the tests of code blocks read.

usage: page.py FILE
"""
import collections
import pathlib
import re
import sys

LANGUAGES = {"wgsl", "text", "json", "sh", "cmake"}  # Doxygen has no colours for these


def slug(heading):
    """As code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def label(page, heading):
    return f"{page}-{heading}".lower()


path = pathlib.Path(sys.argv[1])
inside = False
times = collections.Counter()
for line in path.read_text().splitlines():
    fence = re.match(r"```(\w*)", line)
    if fence:
        inside = not inside
        if fence[1] in LANGUAGES:
            line = "```"
    elif not inside:
        if re.match(r"<!-- test: .*-->$", line):
            continue
        heading = re.match(r"(##+) (.*)$", line)
        if heading:
            name = slug(heading[2])
            again = f"-{times[name]}" if times[name] else ""  # as code hosts number equal headings
            times[name] += 1
            line = f"{heading[1]} {heading[2]} {{#{label(path.stem, name + again)}}}"
        line = re.sub(r"\]\((?:[\w./-]*?([\w-]+)\.md)?#([\w-]+)\)", lambda m: f"](#{label(m[1] or path.stem, m[2])})", line)
        line = line.replace("](../examples/", "](examples/")  # script/site copies them beside the pages
        line = line.replace('`"""`', "<code>&quot;&quot;&quot;</code>")  # Doxygen takes it for the begin of a quotation
        line = re.sub(r"(?<!`)`([^`]*'[^`]*)`(?!`)", r"``\1``", line)  # an apostrophe would end the code
    print(line)
