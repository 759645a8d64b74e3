#!/usr/bin/python3
"""Adapters judged by llama.cpp: adapter_judge.py WEFT

weft tune trains an adapter of a tiny random model from a GGUF file and writes it as a GGUF file too. With it, weft serve and
llama.cpp's server (PyPI xllamacpp, script/setup --judges) must give the same log-probabilities, and others than without it.
"""
import http.client
import json
import math
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

import xllamacpp as llama  # noqa: E402
from vision_model import CASES, put_case  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
LAYERS, HIDDEN, WIDE, HEADS, KV, EXPERTS = 2, 64, 96, 4, 2, 4
PROMPT = "a question:"


def case_of(kind):
    """A Llama, a Qwen2 or a Qwen3 with experts, with the byte-level tokenizer of the models that see."""
    case = json.loads(CASES["llava"].read_text())
    tokenizer = case["tokenizer"]
    tokenizer["pre_tokenizer"]["use_regex"] = True
    model = tokenizer["model"]
    model["vocab"]["\u010a\u010a"], model["merges"] = model["vocab"].pop("\u00ff"), [["\u010a", "\u010a"]]
    vocabulary = len(model["vocab"]) + len(tokenizer["added_tokens"])
    tensors = {"model.embed_tokens.weight": [vocabulary, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [vocabulary, HIDDEN]}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        narrow = HIDDEN * KV // HEADS
        mlp = {"mlp.gate_proj": [WIDE, HIDDEN], "mlp.up_proj": [WIDE, HIDDEN], "mlp.down_proj": [HIDDEN, WIDE]}
        if kind == "qwen3_moe":
            mlp = {f"mlp.experts.{e}.{name[4:]}": shape for e in range(EXPERTS) for name, shape in mlp.items()}
            mlp.update({"mlp.gate": [EXPERTS, HIDDEN], "self_attn.q_norm": [HIDDEN // HEADS], "self_attn.k_norm": [HIDDEN // HEADS]})
        for name, shape in {"self_attn.q_proj": [HIDDEN, HIDDEN], "self_attn.k_proj": [narrow, HIDDEN], "self_attn.v_proj": [narrow, HIDDEN],
                            "self_attn.o_proj": [HIDDEN, HIDDEN], **mlp, "input_layernorm": [HIDDEN], "post_attention_layernorm": [HIDDEN]}.items():
            tensors[layer + name + ".weight"] = shape
            if kind == "qwen2" and name[-6:] in ("q_proj", "k_proj", "v_proj"):
                tensors[layer + name + ".bias"] = shape[:1]
    config = {"model_type": kind, "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}[kind]], "vocab_size": vocabulary,
              "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "hidden_act": "silu"}
    if kind == "qwen3_moe":
        config.update(num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=WIDE, norm_topk_prob=True, head_dim=HIDDEN // HEADS,
                      decoder_sparse_step=1, mlp_only_layers=[])
    return {"config": config, "tensors": tensors, "tokenizer": tokenizer, "processor": {}}


def weft_answer(model, *options):
    server = subprocess.Popen([WEFT, "serve", model, "--port", "0", "--device", "cpu", "--quiet", *options], stderr=subprocess.PIPE, text=True)
    lines = []
    while not (found := re.search(r" on http://127\.0\.0\.1:(\d+)/v1", lines[-1] if lines else "")):
        assert server.poll() is None, lines
        lines.append(server.stderr.readline())
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=120)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "temperature": 0, "max_tokens": 1, "logprobs": 5}),
                       {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    server.stderr.close()
    assert "choices" in answer, answer
    return answer["choices"][0]["logprobs"]["top_logprobs"][0]


def llama_answer(model, adapter, letter):
    """`letter`: a token that is written, because half a character has no probabilities here. The bias does not change those."""
    params = llama.CommonParams()
    params.model.path = str(model)
    params.n_ctx = 256
    params.warmup = False
    if adapter:
        info = llama.CommonAdapterLoraInfo()
        info.path, info.scale = str(adapter), 1.0
        params.lora_adapters = [info]
    answer = llama.Server(params).handle_completions({"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 20, "logit_bias": [[letter, 1000]]})
    assert "logprobs" in answer.get("choices", [{}])[0], answer
    return {each["token"]: each["logprob"] for each in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}


def main():
    failures = 0
    for kind in ("llama", "qwen2", "qwen3_moe"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            case = case_of(kind)
            put_case(case, folder / "hf")
            subprocess.run([WEFT, "convert", folder / "hf", folder / "model.gguf"], check=True, capture_output=True)
            (folder / "data.jsonl").write_text("".join(json.dumps({"prompt": f"{i} a question:", "completion": " yes, it is"}) + "\n" for i in range(40)))
            subprocess.run([WEFT, "tune", folder / "model.gguf", "--data", folder / "data.jsonl", "--out", folder / "run", "--gguf", "--steps", "10",
                            "--rank", "4", "--context", "32", "--learning-rate", "0.02", "--device", "cpu", "--quiet", *(["--targets", "attn_q,experts"] if kind == "qwen3_moe" else [])], check=True)
            letter = case["tokenizer"]["model"]["vocab"]["A"]
            plain = weft_answer(folder / "model.gguf")
            for adapter in (folder / "run", folder / "run" / "adapter.gguf"):
                ours = weft_answer(folder / "model.gguf", "--adapter", adapter)
                theirs = llama_answer(folder / "model.gguf", folder / "run" / "adapter.gguf", letter)
                both = {token for token in ours.keys() & theirs.keys() if token and "\ufffd" not in token}  # parts of characters look alike
                apart = max((abs(ours[token] - theirs[token]) for token in both), default=math.inf)
                moved = max(abs(value - plain.get(token, -6)) for token, value in ours.items())
                good = len(both) >= 2 and apart < 0.01 and moved > 0.2
                failures += not good
                print(f"{kind}, {adapter.name}: {len(both)} probabilities compared, {apart:.4f} apart; {moved:.2f} from those without it"
                      f"{'' if good else '  FAILED'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
