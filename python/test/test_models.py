"""Files, training on text, language models."""
import json
import os
import tempfile
import unittest

import numpy as np

import weft


class Files(unittest.TestCase):
    def test_files_of_numpy(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.npy")
            a = np.arange(6, dtype="f4").reshape(2, 3)
            np.save(path, a)
            np.testing.assert_array_equal(weft.io.load_npy(path).numpy(), a)
            weft.io.save_npy(path, weft.tensor(a) * 2)
            np.testing.assert_array_equal(np.load(path), a * 2)
            path = os.path.join(folder, "a.npz")
            weft.io.save(path, {"a": weft.tensor(a), "b": a[0]})
            with np.load(path) as file:
                np.testing.assert_array_equal(file["b"], a[0])
            self.assertEqual(sorted(weft.io.load(path)), ["a", "b"])

    def test_safetensors_and_gguf(self):
        with tempfile.TemporaryDirectory() as folder:
            for end in ("safetensors", "gguf"):
                path = os.path.join(folder, "x." + end)
                weft.io.save(path, {"w": weft.ones(2, 2, dtype="bf16")}, {"made.by": "a test"})
                tensors, metadata = weft.io.load_with_metadata(path)
                self.assertEqual((tensors["w"].dtype, metadata["made.by"]), ("bf16", "a test"))
            with self.assertRaises(OSError):
                weft.io.load(os.path.join(folder, "missing.npz"))
            with open(os.path.join(folder, "bad.safetensors"), "wb") as file:
                file.write(b"\xff" * 100)
            with self.assertRaises(weft.FileError):
                weft.io.load(os.path.join(folder, "bad.safetensors"))
            with self.assertRaises(ValueError):
                weft.io.load("model.pt")


class Training(unittest.TestCase):
    def test_text(self):
        self.assertIn("tiny", weft.train.presets())
        with tempfile.TemporaryDirectory() as folder:
            data, out = os.path.join(folder, "boat.txt"), os.path.join(folder, "run")
            with open(data, "w", encoding="utf-8") as file:
                file.write("row, row, row your boat, gently down the stream\n" * 200)
            events = []
            run = weft.train.text(data, out, preset="tiny", steps=30, device="cpu", log_every=5, observer=events.append)
            self.assertEqual(run.steps, 30)
            self.assertLess(run.curve.series["training"][-1][1], run.curve.series["training"][0][1])
            self.assertIn("<svg", run._repr_html_())
            self.assertIn("step", {event["event"] for event in events})
            writer = weft.train.load(out)
            written = writer.generate("row, ", 20)
            self.assertEqual(len(written), 20)
            self.assertEqual(written, writer.generate("row, ", 20))
            self.assertLess(len(writer.generate("row, ", 200, sink=lambda piece: False)), 10)
            more = weft.train.text(None, out, resume=True, steps=40, device="cpu")
            self.assertEqual(more.steps, 40)
            with self.assertRaises(ValueError):
                weft.train.text(data, out, preset="tiny", steps=5, device="cpu")  # a run is there
            with self.assertRaisesRegex(TypeError, "stepps"):
                weft.train.text(data, out, stepps=5)

            def stop(event):
                if event["event"] == "step":
                    raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                weft.train.text(None, out, resume=True, steps=80, device="cpu", log_every=1, observer=stop)
            self.assertGreaterEqual(weft.train.load(out).step, 30)


class Onnx(unittest.TestCase):
    def test_there_and_back(self):
        weft.manual_seed(3)
        net = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.tanh, weft.nn.Linear(4, 2))
        x = weft.tensor([[1.0, -2.0, 0.5]])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.onnx")
            weft.onnx.save(path, net, x, inputs=["x"], outputs=["y"])
            model = weft.onnx.load(path)
            self.assertEqual([(p.name, p.dtype, p.shape) for p in model.inputs], [("x", "f32", (1, 3))])
            np.testing.assert_allclose(model(x).numpy(), net(x).numpy(), rtol=1e-6)
            np.testing.assert_allclose(model.run({"x": x.numpy()})["y"].numpy(), net(x).numpy(), rtol=1e-6)
            self.assertLessEqual({name for name, _ in net.named_parameters()}, {name for name, _ in model.named_parameters()})
            optimizer = weft.optim.SGD(model.parameters(), 0.1)
            before = (model(x) ** 2).sum().item()

            @weft.compile
            def step(x):
                loss = (model(x) ** 2).sum()
                optimizer.step(weft.grad(loss, optimizer.parameters))
                return loss

            for _ in range(5):
                after = step(x).item()
            self.assertLess(after, before)
            self.assertIn("Gemm" if "Gemm" in repr(model) else "MatMul", repr(model))
            weft.onnx.save(path, net, x, inputs=["x"], dynamic_axes={"x": {0: "batch"}})
            batches = weft.onnx.load(path)
            self.assertEqual([p.shape for p in batches.inputs + batches.outputs], [("batch", 3), ("batch", 2)])
            many = weft.randn(5, 3)
            np.testing.assert_allclose(batches(many).numpy(), net(many).numpy(), rtol=1e-5, atol=1e-6)
            with self.assertRaisesRegex(ValueError, 'the input "z", and the inputs are x0'):
                weft.onnx.save(path, net, x, dynamic_axes={"z": {0: "batch"}})
            two = os.path.join(folder, "two.onnx")
            weft.onnx.save(two, lambda a, b: (a + b, a * b), x, x)
            total, product = weft.onnx.load(two)(x, x)
            self.assertEqual((total.tolist(), product.tolist()), ((x + x).tolist(), (x * x).tolist()))
            with self.assertRaises(ValueError):
                weft.onnx.load(two)(x)
            with self.assertRaisesRegex(ValueError, "missing"):
                model.run({"z": x})
            with self.assertRaises(weft.FileError):
                weft.onnx.load(os.path.join(folder, "none.onnx"))
            with open(path, "wb") as file:
                file.write(b"\xff" * 64)
            with self.assertRaises(weft.FileError):
                weft.onnx.load(path)
            with self.assertRaises(ValueError):
                weft.onnx.save(path, lambda a: a + weft.rand(1), x)


def tiny_llama(folder):
    """A Llama of random weights with a tokenizer of single bytes."""
    width, hidden, heads, layers, vocabulary = 32, 64, 4, 2, 256
    bytes_of = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 else None for b in range(256)]
    extra = iter(range(256, 512))
    pieces = [c if c is not None else chr(next(extra)) for c in bytes_of]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": hidden,
              "num_attention_heads": heads, "num_key_value_heads": heads, "num_hidden_layers": layers, "vocab_size": vocabulary,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "float32"}
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    rng = np.random.default_rng(1)
    w = lambda *shape: (rng.normal(size=shape) * 0.3).astype("f4")
    tensors = {"model.embed_tokens.weight": w(vocabulary, width), "model.norm.weight": np.ones(width, "f4"), "lm_head.weight": w(vocabulary, width)}
    for i in range(layers):
        p = f"model.layers.{i}."
        tensors |= {p + "input_layernorm.weight": np.ones(width, "f4"), p + "post_attention_layernorm.weight": np.ones(width, "f4"),
                    p + "mlp.gate_proj.weight": w(hidden, width), p + "mlp.up_proj.weight": w(hidden, width), p + "mlp.down_proj.weight": w(width, hidden)}
        tensors |= {p + f"self_attn.{n}_proj.weight": w(width, width) for n in "qkvo"}
    weft.io.save(os.path.join(folder, "model.safetensors"), tensors, {"format": "pt"})
    for name, content in (("config.json", config), ("tokenizer.json", tokenizer), ("tokenizer_config.json", {"chat_template": template})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


class LanguageModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        tiny_llama(cls.folder.name)
        cls.model = weft.llm.load(cls.folder.name, device="cpu", sequences=2)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_generation(self):
        model = self.model
        result = model.generate("hello", max_tokens=12, temperature=0).result()
        self.assertEqual((len(result.tokens), result.finish, result.prompt_tokens), (12, "length", 5))
        pieces = list(model.generate("hello", max_tokens=12, temperature=0))
        self.assertEqual("".join(pieces), result.text)
        stop = result.text[3:5]
        stopped = model.generate("hello", max_tokens=12, temperature=0, stop=["never", stop]).result()
        self.assertEqual((stopped.text, stopped.finish, stopped.stop_text, result.stop_text), (result.text[:result.text.index(stop)], "stop text", stop, ""))
        self.assertEqual(str(model.generate("hello", max_tokens=4, seed=3)), str(model.generate("hello", max_tokens=4, seed=3)))
        self.assertEqual(len(model.generate_batch(["a", "b", "c"], max_tokens=3, temperature=0)), 3)
        with self.assertRaisesRegex(TypeError, "max_token"):
            model.generate("x", max_token=3)
        with self.assertRaises(ValueError):
            model.generate("x", temperature=-1).result()
        stream = model.generate("abandoned", max_tokens=50)
        next(stream)
        del stream
        self.assertEqual(len(model.generate("again", max_tokens=2, temperature=0).result().tokens), 2)

    def test_adapters(self):
        with tempfile.TemporaryDirectory() as folder:
            data, out, events = os.path.join(folder, "data.jsonl"), os.path.join(folder, "run"), []
            with open(data, "w", encoding="utf-8") as file:
                for i in range(30):
                    file.write(json.dumps({"prompt": f"{i}: say it ", "completion": "please"}) + "\n")
            run = weft.tune.run(self.folder.name, data, out, rank=4, context=32, steps=40, learning_rate=2e-2, device="cpu", observer=events.append)
            self.assertEqual((run.steps, run.folder, events[-1]["step"]), (40, out, 40))
            self.assertLess(run.last_validation, run.first_validation / 2)
            tuned = weft.llm.load(self.folder.name, device="cpu", adapters=[run.folder])
            self.assertEqual(tuned.generate("7: say it ", max_tokens=6, temperature=0).result().text, "please")
            off = weft.llm.load(self.folder.name, device="cpu", adapters=[(run.folder, 0)])
            np.testing.assert_array_equal(off.forward([1, 2, 3]).numpy(), self.model.forward([1, 2, 3]).numpy())
            need = weft.tune.need(self.folder.name, data, rank=4, context=32, steps=40, device="cpu")
            self.assertEqual((need.steps, need.examples, need.fits), (40, 30, True))
            self.assertEqual(need.total, need.weights + need.trained + need.step + need.validation)
            lion = {"rank": 4, "context": 32, "steps": 40, "device": "cpu", "optimizer": "lion", "optimizer_options": {"beta_2": 0.98}}
            self.assertEqual(weft.tune.need(self.folder.name, data, **lion).trained * 3, need.trained * 2)  # one moment of two
            by_lion = weft.tune.run(self.folder.name, data, os.path.join(folder, "lion"), learning_rate=2e-3, **lion)
            self.assertLess(by_lion.last_validation, by_lion.first_validation)
            with self.assertRaisesRegex(ValueError, "momentum"):
                weft.tune.need(self.folder.name, data, **{**lion, "optimizer_options": {"momentum": 0.9}})
            with open(data, "w", encoding="utf-8") as file:
                for i in range(30):
                    file.write(json.dumps({"prompt": f"{i}: say it ", "chosen": "please", "rejected": "now"}) + "\n")
            preferred = weft.tune.run(self.folder.name, data, os.path.join(folder, "preferred"), rank=4, context=32, steps=20, learning_rate=2e-2,
                                      device="cpu", beta=0.3, dora=True, observer=events.append)
            self.assertEqual(preferred.last_accuracy, 1)
            self.assertGreater(events[-1]["margin"], 0)
            with self.assertRaisesRegex(TypeError, "unknown option 'ranks'"):
                weft.tune.run(self.folder.name, data, out, ranks=4)
            with self.assertRaisesRegex(ValueError, "the folder has a run"):
                weft.tune.run(self.folder.name, data, out, device="cpu")
            with self.assertRaises(weft.FileError):
                weft.llm.load(self.folder.name, device="cpu", adapters=[self.folder.name])

    def test_options(self):
        model = self.model
        tokens = model.generate("hello", max_tokens=3, temperature=0).result().tokens
        self.assertEqual(model.generate(model.encode("hello"), max_tokens=3, temperature=0).result().tokens, tokens)
        biased = model.generate("hello", max_tokens=2, temperature=0, logit_bias={65: 1000.0}).result()
        self.assertEqual(biased.text, "AA"[:len(biased.text)])
        result = model.generate("hello", max_tokens=2, temperature=0, log_probabilities=True, top_log_probabilities=3).result()
        self.assertEqual([len(top) for top in result.top], [3, 3])
        self.assertEqual(result.top[0][0][0], result.tokens[0])
        self.assertAlmostEqual(result.top[0][0][1], result.log_probabilities[0], places=5)
        progress = []
        again = weft.llm.load(self.folder.name, context=32, progress=lambda done, total: progress.append((done, total)))
        self.assertEqual((again.context, again.trained_context, again.width), (32, 128, 32))
        self.assertEqual(progress[-1][0], progress[-1][1])
        with self.assertRaisesRegex(ValueError, "bytes"):
            weft.llm.load(self.folder.name, device_memory=10)
        with self.assertRaises(ValueError):
            weft.llm.load(self.folder.name, cache="f8")

    def test_several_devices(self):
        whole = self.model
        wanted = whole.generate("hello", max_tokens=6, temperature=0, log_probabilities=True).result()
        layers = sum(part.layers for part in whole.parts)
        self.assertEqual(len(whole.parts), 1)
        divided = weft.llm.load(self.folder.name, device=["cpu", "cpu"], layers=[1])
        self.assertEqual([(str(part.device), part.first_layer, part.layers) for part in divided.parts],
                         [("cpu", 0, 1), ("cpu", 1, layers - 1)])
        got = divided.generate("hello", max_tokens=6, temperature=0, log_probabilities=True).result()
        self.assertEqual((got.tokens, got.log_probabilities), (wanted.tokens, wanted.log_probabilities))
        self.assertEqual(len(weft.llm.load(self.folder.name, device=("cpu", "cpu"), split=[1, 1]).parts), 2)
        with self.assertRaisesRegex(ValueError, "there is one device"):
            weft.llm.load(self.folder.name, device="cpu", split=[1])
        with self.assertRaisesRegex(ValueError, "3 shares for 2 devices"):
            weft.llm.load(self.folder.name, device=["cpu", "cpu"], split=[1, 1, 1])

    def test_embeddings(self):
        model = self.model
        texts = ["hello", "a much longer text", "x"]
        rows = model.embed(texts)
        self.assertEqual((rows.shape, rows.dtype), ((3, model.width), "f32"))
        np.testing.assert_allclose((rows * rows).sum(1).numpy(), np.ones(3), rtol=1e-5)
        for text, row in zip(texts, rows):
            np.testing.assert_allclose(model.embed(text).numpy(), row.numpy(), atol=1e-5)
        head = weft.io.load(os.path.join(self.folder.name, "model.safetensors"))["lm_head.weight"]
        last = model.embed("hello", pooling="last", normalize=False)
        np.testing.assert_allclose((head @ last).numpy(), model.forward(model.encode("hello"))[-1].numpy(), atol=1e-3)
        for wrong in (lambda: model.embed([""]), lambda: model.embed("x" * 500), lambda: model.embed("x", pooling="max")):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaises(TypeError):
            model.embed([3])

    def test_chat_and_logits(self):
        model = self.model
        self.assertTrue(model.has_template)
        self.assertEqual(model.render([{"role": "user", "content": "hi"}]), "<user>hi<assistant>")
        self.assertEqual(len(model.chat("hi", max_tokens=3, temperature=0).result().tokens), 3)
        ids = model.encode("hello")
        self.assertEqual(model.decode(ids), "hello")
        logits = model.forward(ids)
        self.assertEqual(logits.shape, (5, 256))
        self.assertEqual(logits[-1].argmax().item(), model.generate("hello", max_tokens=1, temperature=0).result().tokens[0])
        self.assertGreater(model.perplexity("some text that is long enough", window=16), 1)
        self.assertIn("llama", repr(model).lower())
        self.assertEqual(model.chat_tokens("hi"), model.encode("<user>hi<assistant>"))
        self.assertEqual(model.end_tokens, [1])
        self.assertEqual(model.render([("user", "a"), {"role": "tool", "content": "b", "name": "f", "tool_call_id": "1"}]), "<user>a<tool>b<assistant>")
        for wrong in ([{"role": "user"}], [{"role": "user", "content": "a", "contents": "b"}]):
            with self.assertRaisesRegex(TypeError, "role and content"):
                model.render(wrong)
        self.assertEqual(model.tokenizer().encode("abc"), model.encode("abc"))
        tokenizer = weft.llm.Tokenizer.load(os.path.join(self.folder.name, "tokenizer.json"))
        self.assertEqual(tokenizer.decode(tokenizer.encode("abc")), "abc")
        self.assertEqual(len(tokenizer), 256)


if __name__ == "__main__":
    unittest.main()
