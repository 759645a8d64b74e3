#!/usr/bin/python3
"""weft describe, chat --image and embed from end to end: vision_test.py WEFT [unittest arguments].

With the tiny models that the transformers library was asked about, so what they say is known.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiny_model import put_model
from vision_model import png_of, put_vision_model, text_of

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE = 0, 2, 3
NEW = ["--temperature", "0", "--max-tokens", "12"]


def weft(*arguments, text=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, *map(str, arguments), "--device", "cpu"], input=text, capture_output=True, text=True,
                          errors="surrogateescape", timeout=300, env={**environment, "WEFT_THREADS": "1"})


TALKING = ("llava", "idefics3", "qwen2-5-vl", "gemma3-images", "mistral3")


class VisionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-vision-"))
        cls.cases = {name: put_vision_model(name, cls.folder / name) for name in (*TALKING, "clip")}
        cls.images = []
        for i, image in enumerate(cls.cases["llava"]["images"]):
            cls.images.append(cls.folder / f"{i}.png")
            cls.images[-1].write_bytes(png_of(image))
        cls.plain = put_model(cls.folder / "plain")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def said(self, name, chat):
        case = self.cases[name]
        return text_of(case, next(c for c in case["chats"] if c["name"] == chat)["greedy"])

    def test_describe_says_what_transformers_says(self):
        for name in TALKING:
            done = weft("describe", self.folder / name, self.images[0], "What is this?", *NEW)
            self.assertEqual((done.returncode, done.stderr), (OK, ""))
            self.assertEqual(done.stdout, self.said(name, "one") + "\n")

    def test_chat_sees_images(self):
        model = self.folder / "llava"
        done = weft("chat", model, "What is this?", "--image", self.images[0], *NEW)
        self.assertEqual((done.returncode, done.stdout), (OK, self.said("llava", "one") + "\n"))
        # An image waits for its question; the conversation goes to a file and comes back with it.
        kept = self.folder / "kept.json"
        done = weft("chat", model, *NEW, text=f"/image {self.images[0]}\nWhat is this?\n/save {kept}\n/history\n")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn(self.said("llava", "one"), done.stdout)
        self.assertIn("user: [image] What is this?", done.stdout)
        url = json.loads(kept.read_text())[0]["content"][0]["image_url"]["url"]
        self.assertTrue(url.startswith("data:image/png;base64,"))
        again = weft("chat", model, *NEW, text=f"/load {kept}\n/again\n")
        self.assertEqual((again.returncode, again.stdout), (OK, self.said("llava", "one") + "\n"))

    def test_gguf_files_see_by_a_file_beside_them(self):
        for name in TALKING:
            if name.startswith("gemma3"):
                continue  # its windows are not those of GGUF files
            model, tower = self.folder / f"{name}.gguf", self.folder / f"mmproj-{name}.gguf"
            done = subprocess.run([WEFT, "convert", self.folder / name, model], capture_output=True, text=True)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertIn(f"is in {tower}", done.stderr)
        name = "qwen2-5-vl"
        for command in (["describe", self.folder / f"{name}.gguf", self.images[0], "What is this?"],
                        ["chat", self.folder / f"{name}.gguf", "What is this?", "--image", self.images[0]]):
            done = weft(*command, *NEW)
            self.assertEqual((done.returncode, done.stdout), (OK, self.said(name, "one") + "\n"), done.stderr)
            # Of the files of four models, the one that fits.
            self.assertIn(f'images are read by "mmproj-{name}.gguf", which lies beside the model', done.stderr)
            named = weft(*command, "--mmproj", self.folder / f"mmproj-{name}.gguf", *NEW)
            self.assertEqual((named.returncode, named.stdout, named.stderr), (OK, self.said(name, "one") + "\n", ""))
            blind = weft(*command, "--mmproj", "none", *NEW)
            self.assertNotEqual(blind.returncode, OK)
            self.assertIn("the model reads no images", blind.stderr)
            wrong = weft(*command, "--mmproj", self.folder / "mmproj-mistral3.gguf", *NEW)
            self.assertNotEqual(wrong.returncode, OK)
            self.assertIn("is of another model than", wrong.stderr)
        # Towers in blocks are read, too.
        small = self.folder / "small-mmproj.gguf"
        done = subprocess.run([WEFT, "quantize", self.folder / f"mmproj-{name}.gguf", small, "--type", "Q8_0"], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        done = weft("describe", self.folder / f"{name}.gguf", self.images[0], "What is this?", "--mmproj", small, *NEW)
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        self.assertEqual(done.stdout[:1], self.said(name, "one")[:1])
        # And back to a folder, which sees as the files do.
        back = self.folder / "back"
        named = ["--mmproj", self.folder / f"mmproj-{name}.gguf"]
        done = subprocess.run([WEFT, "convert", self.folder / f"{name}.gguf", back, *named], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(json.loads((back / "config.json").read_text())["model_type"], "qwen2_5_vl")
        done = weft("describe", back, self.images[0], "What is this?", *NEW)
        self.assertEqual((done.returncode, done.stdout), (OK, self.said(name, "one") + "\n"), done.stderr)
        done = subprocess.run([WEFT, "convert", back, self.folder / "more.gguf", *named], capture_output=True, text=True)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertIn("--mmproj is for the way from a GGUF file to a folder", done.stderr)
        # A command that shows no images loads no tower.
        done = weft("generate", self.folder / f"{name}.gguf", "--prompt", "Hello", "--max-tokens", "2")
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        done = subprocess.run([WEFT, "inspect", self.folder / f"mmproj-{name}.gguf"], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("qwen2.5vl_merger", done.stdout)

    def test_wrong_images_are_refused(self):
        model = self.folder / "llava"
        text = self.folder / "text.png"
        text.write_text("no image")
        for image, fact in ((text, "not a PNG, JPEG"), (self.folder / "none.png", "none.png")):
            done = weft("describe", model, image)
            self.assertEqual(done.returncode, FILE)
            self.assertIn(fact, done.stderr)
        done = weft("describe", self.plain, self.images[0])
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("the model reads no images", done.stderr)
        done = weft("chat", self.plain, "hello", "--image", self.images[0])
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("the model reads no images", done.stderr)
        broken = self.folder / "broken.json"
        broken.write_text(json.dumps([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}]))
        done = weft("chat", model, *NEW, text=f"/load {broken}\n")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("is not a data: URL", done.stderr)

    def test_embed_compares_images_with_texts(self):
        case = self.cases["clip"]
        images = []
        for i, image in enumerate(case["images"]):
            images += ["--image", self.folder / f"clip-{i}.png"]
            images[-1].write_bytes(png_of(image))
        texts = [part for text in case["texts"] for part in ("--text", text)]
        done = weft("embed", self.folder / "clip", *images, *texts, "--json")
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        result = json.loads(done.stdout)
        for kind, rows in (("images", case["image_rows"]), ("texts", case["text_rows"])):
            for entry, row in zip(result[kind], rows, strict=True):
                self.assertLess(max(abs(a - b) for a, b in zip(entry["embedding"], row, strict=True)), 5e-6)
        shown = weft("embed", self.folder / "clip", *images, *texts).stdout.splitlines()
        self.assertEqual(len(shown), 3 * 4)
        for i, entry in enumerate(result["images"]):
            best = max(range(3), key=lambda t: entry["probabilities"][t])
            self.assertEqual(best, max(range(3), key=lambda t: case["scores"][i][t]))
            self.assertIn(case["texts"][best], shown[4 * i + 1])
        self.assertEqual(weft("embed", self.folder / "clip", *images).returncode, USAGE)
        self.assertEqual(weft("embed", self.folder / "llava", *images, *texts).returncode, FILE)


if __name__ == "__main__":
    unittest.main()
