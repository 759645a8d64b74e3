"""A tiny language model of random weights, made here: what it says means nothing, but all around it is real."""
import json
import random
import struct

WIDTH, WORDS = 32, 48
TEMPLATE = ("{% for m in messages %}{{ m.role + ' ' + m.content + ' ' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}")


def put_model(folder, template=True):
    """A Llama of two layers as a Hugging Face folder."""
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 96, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": True, "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(config))
    words = ["user", "assistant", "system"] + [f"w{i}" for i in range(WORDS - 3)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "w0"}}))
    if template:
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    shapes = {"model.embed_tokens.weight": [WORDS, WIDTH], "model.norm.weight": [WIDTH]}
    for i in range(2):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": [WIDTH], layer + "post_attention_layernorm.weight": [WIDTH],
                   layer + "self_attn.q_proj.weight": [WIDTH, WIDTH], layer + "self_attn.k_proj.weight": [16, WIDTH],
                   layer + "self_attn.v_proj.weight": [16, WIDTH], layer + "self_attn.o_proj.weight": [WIDTH, WIDTH],
                   layer + "mlp.gate_proj.weight": [64, WIDTH], layer + "mlp.up_proj.weight": [64, WIDTH],
                   layer + "mlp.down_proj.weight": [WIDTH, 64]}
    draw, header, data = random.Random(1), {}, b""
    for name, shape in sorted(shapes.items()):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if len(shape) == 1 else draw.uniform(-0.4, 0.4) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    return folder
