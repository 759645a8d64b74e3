"""Runs the blocks of docs/python.md, one after another, in one place. A comment <!-- python: skip REASON --> before a block leaves
it out."""
import os
import pathlib
import re
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


class Docs(unittest.TestCase):
    def test_blocks(self):
        text = PAGE.read_text("utf-8")
        blocks = re.findall(r"(?:<!-- python: skip ([^>]+) -->\n)?```python\n(.*?)```", text, re.S)
        self.assertGreater(len(blocks), 5)
        place = {"__name__": "__main__"}
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for reason, block in blocks:
                    if not reason:
                        line = text[: text.index(block)].count("\n") + 1
                        exec(compile("\n" * (line - 1) + block, str(PAGE), "exec"), place)
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()
