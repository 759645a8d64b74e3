"""The examples of the gallery learn, at small settings and on small data made here: gallery_test.py WEFT"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

GALLERY = pathlib.Path(__file__).resolve().parents[2] / "examples/gallery"
WEFT = ""
GLYPHS = ("01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110", "01110 10001 00001 00010 00100 01000 11111",
          "11111 00010 00100 00010 00001 10001 01110", "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
          "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000", "01110 10001 10001 01110 10001 10001 01110",
          "01110 10001 10001 01111 00001 00010 01100")


def put_digits(folder, count=40):
    """Digits of 28 x 28 in the form of the package mnist: printed ones, moved and made uneven."""
    draw = random.Random(1)
    folder.mkdir()
    for digit, glyph in enumerate(GLYPHS):
        rows, data = glyph.split(), []
        for _ in range(count):
            left, top = draw.randint(4, 8), draw.randint(2, 5)
            image = [0.0] * 784
            for y in range(21):
                for x in range(15):
                    if rows[y // 3][x // 3] == "1":
                        image[28 * (top + y) + left + x] = round(draw.uniform(0.6, 1), 2)
            data += image
        (folder / f"{digit}.json").write_text(json.dumps({"data": data}))


class Gallery(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        put_digits(cls.root / "digits")
        syllables = ["ka", "lo", "mi", "ra", "tun", "bel"]
        draw = random.Random(2)
        words = ["".join(draw.choices(syllables, k=draw.randint(2, 4))) for _ in range(300)]
        (cls.root / "moby-dick.txt").write_text(" ".join(f"and {word.capitalize()} saw {word}" for word in words))

    def run_example(self, name, **settings):
        (self.root / "settings.json").write_text(json.dumps(settings))
        done = subprocess.run([WEFT, "run", GALLERY / f"{name}.js", "--allow-read", ".", "--device", "cpu"], cwd=self.root, capture_output=True,
                              text=True, timeout=120, env={**os.environ, "WEFT_DEVICE": "cpu"}, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        last = done.stdout.splitlines()[-1]
        return last, [float(number) for number in re.findall(r"-?\d+\.?\d*", last)]

    def test_all_are_here(self):
        self.assertEqual(sorted(path.stem for path in GALLERY.iterdir()), ["cartpole", "diffusion", "digits", "field", "makemore", "vae"])

    def test_digits(self):
        last, (accuracy, count) = self.run_example("digits", epochs=6, batch=32)
        self.assertEqual(count, 40)
        self.assertGreater(accuracy, 80, last)

    def test_makemore(self):
        last, numbers = self.run_example("makemore", steps=60, batch=32, width=32, made=10)
        self.assertLess(numbers[0], 2.2, last)  # ln 27 = 3.3 for guesses

    def test_vae(self):
        last, (bound, code) = self.run_example("vae", steps=120, batch=32, hidden=64, code=8)
        self.assertLess(bound, 250, last)  # 543 for a guess, 784 ln 2
        self.assertGreater(code, 0.5, last)

    def test_field(self):
        last, (view, black) = self.run_example("field", steps=120, rays=128, samples=16, size=16, views=8, width=32)
        self.assertGreater(view, black + 3, last)

    def test_cartpole(self):
        last, (steps, most) = self.run_example("cartpole", rounds=25, carts=16, stepsMax=100)
        self.assertEqual(most, 100)
        self.assertGreater(steps, 60, last)  # a policy of chance falls after 20

    def test_diffusion(self):
        last, (drawn, real) = self.run_example("diffusion", steps=250, batch=64, width=96, drawSteps=15, drawn=3)
        self.assertGreater(drawn, 50, last)
        self.assertGreater(real, 80, last)


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    unittest.main()
