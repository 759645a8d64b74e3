#!/usr/bin/python3
"""GGUF files of models that see, judged by llama.cpp: mmproj_judge.py WEFT

Tiny random models, which weft convert makes of folders, answer about images in weft serve and in llama.cpp's server (PyPI xllamacpp,
script/setup --judges): the log-probabilities of the first token after an image must agree. Images have sizes that neither
program changes, because the two resize by other filters; where one does so all the same, the image has one colour.
"""
import base64
import http.client
import json
import math
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.append(str(JUDGES))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

import numpy as np  # noqa: E402
import xllamacpp as llama  # noqa: E402
from vision_model import CASES, png_of, put_case  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
# Of each model the size of an image, whether it has one colour, and what is written around it for llama.cpp, which leaves out what
# transformers writes there.
MODELS = {
    # Of CLIP, llama.cpp puts the class token behind the patches, and then reads positions and patches as if it were in front.
    "llava-siglip": (28, 28, False, ""),
    "idefics3": (56, 56, True, ""),
    "gemma3-images": (28, 28, False, "\n\n"),
    "qwen2-vl": (42, 56, False, ""),
    "qwen2-5-vl": (126, 140, False, ""),
    "qwen3-vl": (42, 56, False, ""),
    "pixtral": (28, 42, False, ""),
    "mistral3": (42, 56, False, ""),
}


def picture(height, width, is_flat):
    if is_flat:
        return np.full((height, width, 3), (200, 90, 30), np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([127 + 120 * np.sin(x / (2 + c)) * np.cos(y / (3 + c)) for c in range(3)], -1).astype(np.uint8)


def change(case, name):
    # llama.cpp has a name for GPT-2's words, and wants merges, and Idefics3's prompts have two line feeds in one token. No prompt has
    # the byte that makes room for it.
    case["tokenizer"]["pre_tokenizer"]["use_regex"] = True
    model = case["tokenizer"]["model"]
    model["vocab"]["\u010a\u010a"], model["merges"] = model["vocab"].pop("\u00ff"), [["\u010a", "\u010a"]]
    config = case["config"]
    if name.startswith("gemma3"):  # the windows and the scale that GGUF files of it have
        text = config["text_config"]
        text.update(query_pre_attn_scalar=text["head_dim"], layer_types=["sliding_attention"] * text["num_hidden_layers"])
    if name == "qwen2-5-vl":  # llama.cpp knows windows of 112 pixels alone; the image is larger
        config["vision_config"]["window_size"] = 112
        case["processor"]["size"]["longest_edge"] = 14 * 14 * 100
    if name == "llava-siglip":
        tower = "vision_tower."
        for end in ("embeddings.class_embedding", "pre_layrnorm.weight", "pre_layrnorm.bias"):
            del case["tensors"][tower + end]
        case["tensors"] |= {tower + "embeddings.position_embedding.weight": [16, 32], tower + "embeddings.patch_embedding.bias": [32]}
        config["vision_config"] |= {"model_type": "siglip_vision_model", "hidden_act": "gelu_pytorch_tanh"}
        config["vision_feature_select_strategy"] = "full"
        case["processor"] = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 28, "width": 28}}


def weft_answer(model, url):
    server = subprocess.Popen([WEFT, "serve", model, "--port", "0", "--device", "cpu", "--quiet"], stderr=subprocess.PIPE, text=True)
    lines = []
    while not (found := re.search(r" on http://127\.0\.0\.1:(\d+)/v1", lines[-1] if lines else "")):
        assert server.poll() is None, lines
        lines.append(server.stderr.readline())
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=120)
    body = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]}],
            "temperature": 0, "max_tokens": 1, "logprobs": True, "top_logprobs": 20}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    server.stderr.close()
    assert any("mmproj-model.gguf" in line for line in lines), lines
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return answer["usage"]["prompt_tokens"], {bytes(each["bytes"]): each["logprob"] for each in top}


def llama_answer(model, mmproj, around, url, letter):
    """`letter`: a token that is written, because half a character has no probabilities here. The bias does not change those."""
    params = llama.CommonParams()
    params.model.path = str(model)
    params.mmproj.path = str(mmproj)
    params.n_ctx = 256
    params.warmup = False
    server = llama.Server(params)
    parts = [{"type": "text", "text": around}, {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": around + "What?"}]
    answer = server.handle_chat_completions({"messages": [{"role": "user", "content": parts if around else parts[1:]}], "max_tokens": 1,
                                             "temperature": 0, "logprobs": True, "top_logprobs": 20, "logit_bias": [[letter, 1000]]})
    assert "logprobs" in answer.get("choices", [{}])[0], answer
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return answer["usage"]["prompt_tokens"], {bytes(each["bytes"]): each["logprob"] for each in top}


def main():
    failures = 0
    for name, (height, width, is_flat, around) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            case = json.loads(CASES["llava" if name == "llava-siglip" else name].read_text())
            change(case, name)
            put_case(case, folder / "hf")
            subprocess.run([WEFT, "convert", folder / "hf", folder / "model.gguf"], check=True, capture_output=True)
            image = {"height": height, "width": width, "pixels": picture(height, width, is_flat).tobytes().hex()}
            url = "data:image/png;base64," + base64.b64encode(png_of(image)).decode()
            count, ours = weft_answer(folder / "model.gguf", url)
            # In a process that has run other models, llama.cpp gives NaN for mistral3 once in some runs: it reads memory that it has not
            # written. A new process has zeros there.
            with multiprocessing.get_context("fork").Pool(1) as process:
                theirs_count, theirs = process.apply(llama_answer, (folder / "model.gguf", folder / "mmproj-model.gguf", around, url,
                                                                    case["tokenizer"]["model"]["vocab"]["A"]))
            both = ours.keys() & theirs.keys()
            apart = max((abs(ours[token] - theirs[token]) for token in both), default=math.inf)
            good = count == theirs_count and len(both) >= 15 and apart < 0.02
            failures += not good
            print(f"{name}: {count} and {theirs_count} tokens of prompt, {len(both)} probabilities compared, {apart:.4f} apart"
                  f"{'' if good else '  FAILED'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
