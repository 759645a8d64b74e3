#!/usr/bin/python3
"""weft serve with a model that sees: images_test.py WEFT [unittest arguments]. Images come as data: URLs."""
import base64
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
from command_server import CommandServer, ask  # noqa: E402
from vision_model import png_of, put_vision_model, text_of  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()


def url_of(data, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(data).decode()


def image(url):
    return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}


class Images(unittest.TestCase):
    model = "llava"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        cls.case = put_vision_model(cls.model, path / cls.model)
        cls.urls = [url_of(png_of(i)) for i in cls.case["images"]]
        cls.server = CommandServer([WEFT, "serve", path / cls.model, "--port", "0", "--device", "cpu", "--quiet"], path / "log",
                                   rf"serving {cls.model} on http://127\.0\.0\.1:(\d+)/v1")
        cls.port = int(cls.server.found[1])

    @classmethod
    def tearDownClass(cls):
        code, text = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, (code, text[-2000:])

    def ask(self, content, **fields):
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 12, **fields}
        status, _, answer = ask(self.port, "POST", "/v1/chat/completions", body)
        return status, answer

    def refused(self, content, fact, param):
        status, answer = self.ask(content)
        self.assertEqual(status, 400, answer)
        self.assertIn(fact, answer["error"]["message"])
        self.assertEqual(answer["error"]["param"], param)

    def test_answers_are_those_of_transformers(self):
        wanted = {c["name"]: c for c in self.case["chats"]}
        status, answer = self.ask([image(self.urls[0]), {"type": "text", "text": "What is this?"}])
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["message"]["content"], text_of(self.case, wanted["one"]["greedy"]))
        self.assertEqual(answer["usage"]["prompt_tokens"], len(wanted["one"]["tokens"]))
        # The same image again, which the cache has; and two images.
        status, answer = self.ask([image(self.urls[0]), {"type": "text", "text": "What is this?"}])
        self.assertEqual(answer["choices"][0]["message"]["content"], text_of(self.case, wanted["one"]["greedy"]))
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], len(wanted["one"]["tokens"]) - 1)
        status, answer = self.ask([image(self.urls[0]), {"type": "text", "text": "x"}, {"type": "image_url", "image_url": self.urls[1]}])
        self.assertEqual(answer["choices"][0]["message"]["content"], text_of(self.case, wanted["two"]["greedy"]))
        status, answer = self.ask([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}])
        self.assertEqual(answer["choices"][0]["message"]["content"], text_of(self.case, wanted["none"]["greedy"]))

    def test_what_is_no_image_is_refused(self):
        place = "messages[0].content[0].image_url"
        for url, fact in (("https://example.org/cat.png", "nothing is fetched from elsewhere"),
                          ("file:///etc/passwd", "nothing is fetched from elsewhere"),
                          ("data:image/png,abc", "is not a data: URL in base64"),
                          ("data:image/png;base64,***", "is not base64"),
                          (url_of(b"no image"), "not a PNG, JPEG"),
                          (url_of(base64.b64decode(self.urls[0].split(",")[1])[:200]), "damaged PNG"),
                          (url_of(b"\0" * (21 << 20)), "at most 20971520 are read")):
            self.refused([image(url)], fact, place)
        # A header that promises a thousand million pixels.
        huge = bytearray(base64.b64decode(self.urls[0].split(",")[1]))
        huge[16:24] = (30000).to_bytes(4, "big") * 2
        self.refused([image(url_of(bytes(huge)))], "image", place)
        self.refused([{"type": "image_url"}], "has no url that is a string", place)
        self.refused([image(self.urls[0])] * 33, "more than 32 images", "messages[0].content[32].image_url")
        self.refused([{"type": "input_audio"}], "this model reads text and image_url", "messages[0].content")
        self.assertEqual(self.ask([image(self.urls[0])] * 20)[0], 400)  # longer than the context


class ImagesInTheirProportions(Images):
    model = "qwen3-vl"
    test_what_is_no_image_is_refused = None


if __name__ == "__main__":
    unittest.main()
