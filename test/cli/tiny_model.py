"""A tiny language model of random weights, made here: what it says means nothing, but all around it is real."""
import json
import random
import struct

WIDTH, WORDS = 32, 48
TEMPLATE = ("{% for m in messages %}{{ m.role + ' ' + m.content + ' ' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}")


# Writes tools, calls and results as Qwen does.
CHAT_TEMPLATE = """{%- if tools %}{{ '<|start|>system\n' }}{% for t in tools %}{{ t | tojson + '\n' }}{% endfor %}{{ '<|end|>' }}{% endif %}
{%- for m in messages %}{{ '<|start|>' + m.role + '\n' }}{% if m.content %}{{ m.content }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}{% endfor %}{{ '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant\n' + ('<think>\n' if enable_thinking else '') }}{% endif %}"""


PIECES = [bytes([b]) for b in range(256)] + [piece.encode() for piece in (
    '", "', '":', '": ', '{"', '"}', '},', ']]', '["', ', ', 'true', 'null', 'the', ' a', '12', '\n  ', '"a":', '"a"', '\\n', 'name', 'é')] + [b"\xf0\x9f", b"\x98\x80"]
MARKS = ["<|start|>", "<|end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]


def token_of(mark):
    """The token of a mark of `put_byte_model`."""
    return len(PIECES) + MARKS.index(mark)


def byte_alphabet():
    """The characters that stand for the bytes in byte-level vocabularies."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return {byte: chr(byte) if byte in plain else chr(256 + [b for b in range(256) if b not in plain].index(byte)) for byte in range(256)}


def put_byte_model(folder):
    """A Llama that reads and writes all bytes, some pieces of JSON and parts of characters, with a chat template that takes tools."""
    alphabet = byte_alphabet()
    vocabulary = {"".join(alphabet[b] for b in piece): i for i, piece in enumerate(PIECES)}
    added = [{"id": token_of(text), "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": "|" in text}
             for text in MARKS]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    put_model(folder, template=False, words=len(PIECES) + len(MARKS), context=1024)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


def put_model(folder, template=True, words=WORDS, context=96):
    """A Llama of two layers as a Hugging Face folder."""
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": words, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": context, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": True, "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = ["user", "assistant", "system"] + [f"w{i}" for i in range(WORDS - 3)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(vocabulary)}, "unk_token": "w0"}}))
    if template:
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    shapes = {"model.embed_tokens.weight": [words, WIDTH], "model.norm.weight": [WIDTH]}
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
