"""Runs the Python blocks of the pages in docs/, those of a page one after another, in one place. A comment
<!-- python: skip REASON --> before a block leaves it out."""
import os
import pathlib
import re
import tempfile
import unittest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"(?:<!-- python: skip ([^>]+) -->\n)?```python\n(.*?)```", re.S)


class Docs(unittest.TestCase):
    def test_blocks(self):
        run = 0
        before = os.getcwd()
        for page in sorted(DOCS.glob("*.md")):
            text = page.read_text("utf-8")
            place = {"__name__": "__main__"}
            with self.subTest(page.name), tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    for found in BLOCK.finditer(text):
                        if not found[1]:
                            line = text[: found.start(2)].count("\n") + 1
                            exec(compile("\n" * (line - 1) + found[2], str(page), "exec"), place)
                            run += 1
                finally:
                    os.chdir(before)
        self.assertGreater(run, 15)


if __name__ == "__main__":
    unittest.main()
