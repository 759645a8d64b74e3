"""What the transformers library makes of tiny random vision models: make.py [--check] [NAME...].

Writes a file a model: cases/*.json for models that embed or classify images, and ../llm/images/*.json for models that talk about
them. Each has the model's files but the weights, which the tests make by name as `random_values` does, and what the library
computes in f64. With --check the files are compared with what the library gives now, and stay as they are.
Made with transformers 5.23.0, torch 2.15.0 and Pillow 12.2.0. (Pillow 13 resizes some images with other roundings.)
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import Gemma3ImageProcessorPil, PixtralImageProcessorPil, Qwen2VLImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "llm" / "transformers"))
from make import philox  # noqa: E402

VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=28, patch_size=7)
TEXT = dict(vocab_size=12, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=10, bos_token_id=0, eos_token_id=11, pad_token_id=1)
TEXTS = ["a photo of cat", "dog", "a dog and a cat"]


def random_values(name, shape):
    """As vision_cases.hpp makes them."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    if name.endswith("bias"):
        scale, offset = 0.3, 0.0
    elif len(shape) < 2:
        scale, offset = 0.3, 1.0
    else:
        scale, offset = 1.7 / np.sqrt(np.float64(np.prod(shape[1:]))), 0.0
    units = (philox(stream, int(np.prod(shape))) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (offset + scale * (2.0 * units - 1)).astype(np.float32).reshape(shape)


def photo(height, width, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / (2 + c) + seed) * np.cos(y / (3 + c)) for c in range(3)]
    return np.clip(np.stack(planes, -1) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)


def image_json(image):
    return {"height": image.shape[0], "width": image.shape[1], "pixels": image.tobytes().hex()}


def filled(model):
    """The model with the weights that tests give it, in f64; its config as saved, and the shapes of its tensors."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        tensors = {key: random_values(key, value.shape) for key, value in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        loaded = type(model).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).double().eval()
    return loaded, config, {key: list(value.shape) for key, value in sorted(tensors.items())}


def saved(thing, file):
    with tempfile.TemporaryDirectory() as folder:
        thing.save_pretrained(folder)
        return json.loads((pathlib.Path(folder) / file).read_text())


def numbers(tensor):
    return [float(f"{x:.6f}") for x in tensor.flatten().tolist()]


def words_tokenizer():
    words = ["<s>", "<pad>", "<unk>", "a", "photo", "of", "cat", "dog", "and", "x", "y", "</s>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 11)])
    return tokenizer


def encoder_case(kind, processor, config):
    model, config, tensors = filled(getattr(transformers, kind + "Model")(config))
    images = [photo(31, 44, 1), photo(60, 40, 2), photo(28, 28, 3)]
    pixels = torch.from_numpy(np.stack(processor([Image.fromarray(i) for i in images])["pixel_values"])).double()
    tokenizer = words_tokenizer()
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    fill = config["text_config"].get("pad_token_id", 1)
    padded = torch.tensor([i + [fill] * (TEXT["max_position_embeddings"] - len(i)) for i in ids])
    with torch.no_grad():
        out = model(input_ids=padded, pixel_values=pixels)
    return {"config": config, "processor": saved(processor, "preprocessor_config.json"),
            "tokenizer": json.loads(tokenizer.to_str()), "tensors": tensors, "images": [image_json(i) for i in images],
            "texts": TEXTS, "pixels": numbers(pixels[0, :, ::5, ::3]), "image_rows": [numbers(r) for r in out.image_embeds],
            "text_rows": [numbers(r) for r in out.text_embeds], "scores": [numbers(r) for r in out.logits_per_image]}


def classifier_case():
    model, config, tensors = filled(transformers.ViTForImageClassification(transformers.ViTConfig(
        **VISION, id2label={i: name for i, name in enumerate(["cat", "dog", "bird", "fish", "tree"])})))
    processor = ViTImageProcessorPil(size={"height": 28, "width": 28})
    images = [photo(31, 44, 1), photo(60, 40, 2)]
    pixels = torch.from_numpy(np.stack(processor([Image.fromarray(i) for i in images])["pixel_values"])).double()
    with torch.no_grad():
        logits = model(pixel_values=pixels).logits
    return {"config": config, "processor": saved(processor, "preprocessor_config.json"), "tensors": tensors,
            "images": [image_json(i) for i in images], "pixels": numbers(pixels[0, :, ::5, ::3]),
            "logits": [numbers(r) for r in logits]}


# ---- Models that talk about images --------------------------------------------------------------------------------------

SPECIAL = ["<|end|>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<row_1_col_1>",
           "<row_1_col_2>", "<row_2_col_1>", "<row_2_col_2>"]
CHAT = ("{% for m in messages %}{{ m['role'] + ':' }}{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>"
        "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}")
LANGUAGE = dict(vocab_size=256 + len(SPECIAL), hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=256,
                pad_token_id=None)
NEW = 12


def bytes_tokenizer(special):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def text(value):
    return {"type": "text", "text": value}


IMAGE = {"type": "image"}
CHATS = {
    "one": [{"role": "user", "content": [IMAGE, text("What is this?")]}],
    "middle": [{"role": "system", "content": [text("Be brief.")]},
               {"role": "user", "content": [text("Look: "), IMAGE, text(" and say.")]},
               {"role": "assistant", "content": [text("A cat.")]}, {"role": "user", "content": [text("Sure?")]}],
    "two": [{"role": "user", "content": [IMAGE, text("x"), IMAGE]}],
    "none": [{"role": "user", "content": [text("Hello")]}],
}


def talking_case(model, processor, chats=CHATS, template=CHAT, kinds_of_tokens=None, settings={}):
    """`kinds_of_tokens`: the name under which the model is told which tokens are rows of images, where it must be told."""
    model, config, tensors = filled(model)
    images = [photo(31, 44, 5), photo(60, 40, 6)]
    out = []
    for name, messages in chats.items():
        count = sum(part == IMAGE for m in messages for part in m["content"])
        prompt = processor.apply_chat_template(messages, add_generation_prompt=True, chat_template=template, tokenize=False)
        given = {"images": [[Image.fromarray(i) for i in images[:count]]]} if count else {}
        if count and type(processor).__name__ != "Idefics3Processor" and type(processor).__name__ != "SmolVLMProcessor":
            given = {"images": given["images"][0]}
        inputs = processor(text=[prompt], return_tensors="pt", **given, **(settings if count else {}))
        inputs = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
        for name_of_kinds in ("token_type_ids", "mm_token_type_ids"):
            if name_of_kinds != kinds_of_tokens:
                inputs.pop(name_of_kinds, None)
        with torch.no_grad():
            logits = model(**inputs).logits[0]
            greedy = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)[0, inputs["input_ids"].shape[1]:]
        rows = [len(logits) // 2, len(logits) - 1]
        out.append({"name": name, "messages": messages, "images": count, "prompt": prompt,
                    "tokens": inputs["input_ids"][0].tolist(), "rows": rows, "logits": [numbers(logits[r]) for r in rows],
                    "greedy": [t for t in greedy.tolist() if t != model.config.get_text_config().eos_token_id]})
    row = next(config[key] for key in ("image_token_index", "image_token_id") if config.get(key) is not None)
    return {"config": config, "processor": saved(processor.image_processor, "preprocessor_config.json"),
            "tokenizer": json.loads(processor.tokenizer.backend_tokenizer.to_str()), "chat_template": template, "row_token": row,
            "tensors": tensors, "images": [image_json(i) for i in images], "chats": out}


def with_sizes(case, processor, around):
    """The case with the rows of images of many sizes: [height, width, rows]."""
    sizes = [(h, w) for h in (9, 28, 31, 45, 56, 61, 100, 333) for w in (9, 28, 31, 45, 56, 61, 100, 333)]
    rows = processor._get_num_multimodal_tokens(image_sizes=sizes)["num_image_tokens"]
    return {**case, "sizes": [[*size, count - around] for size, count in zip(sizes, rows)]}


def fast_tokenizer(special=SPECIAL, **tokens):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_tokenizer(special), eos_token=special[0])
    for name, token in tokens.items():
        setattr(tokenizer, name, token)
    return tokenizer


def llava(processor=None, **changes):
    vision = transformers.CLIPVisionConfig(**VISION)
    config = transformers.LlavaConfig(vision_config=vision, text_config=transformers.LlamaConfig(**LANGUAGE),
                                      image_token_index=257, **changes)
    processor = transformers.LlavaProcessor(
        processor or CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        fast_tokenizer(), patch_size=7, vision_feature_select_strategy=config.vision_feature_select_strategy,
        num_additional_image_tokens=1)
    return talking_case(transformers.LlavaForConditionalGeneration(config), processor)


def llava_next(tower, text, **changes):
    kinds = {"clip": transformers.CLIPVisionConfig, "siglip": transformers.SiglipVisionConfig}
    language = {**LANGUAGE, "model_type": text, **({"sliding_window": None, "head_dim": 8} if text == "mistral" else {})}
    if tower == "siglip":
        changes["vision_feature_select_strategy"] = "full"
    sizes = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
    config = transformers.LlavaNextConfig(vision_config=kinds[tower](**VISION), text_config=language, image_token_index=257,
                                          image_grid_pinpoints=sizes, **changes)
    processor = transformers.LlavaNextProcessor(
        LlavaNextImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=sizes),
        fast_tokenizer(image_token="<image>"), patch_size=7, vision_feature_select_strategy=config.vision_feature_select_strategy,
        num_additional_image_tokens=1 if tower == "clip" else 0)
    return with_sizes(talking_case(transformers.LlavaNextForConditionalGeneration(config), processor), processor, 0)


INTERN_SPECIAL = ["<|end|>", "<IMG_CONTEXT>", "<img>", "</img>", "<video>", "<end_of_utterance>"]
INTERN_CHAT = CHAT.replace("<image>", "<IMG_CONTEXT>\n")


def internvl(text, parts=6, tied=False, **vision):
    language = {**LANGUAGE, "vocab_size": 256 + len(INTERN_SPECIAL), "model_type": text, "tie_word_embeddings": tied}
    config = transformers.InternVLConfig(vision_config={**VISION, "model_type": "internvl_vision", **vision}, text_config=language,
                                         image_token_id=257, tie_word_embeddings=tied)
    ids = dict(start_image_token_id=258, end_image_token_id=259, context_image_token_id=257)
    tokenizer = fast_tokenizer(INTERN_SPECIAL, start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>",
                               video_token="<video>", **ids)
    processor = transformers.InternVLProcessor(
        GotOcr2ImageProcessorPil(size={"height": 28, "width": 28}, max_patches=parts, image_mean=[0.485, 0.456, 0.406],
                                 image_std=[0.229, 0.224, 0.225]),
        tokenizer, transformers.InternVLVideoProcessor(), image_seq_length=4, chat_template=INTERN_CHAT)
    case = talking_case(transformers.InternVLForConditionalGeneration(config), processor, template=INTERN_CHAT)
    return with_sizes(case, processor, 2)


def idefics3(kind, image_processor, processor, size=28, split=True):
    vision = {**VISION, "image_size": size}
    config = getattr(transformers, kind + "Config")(vision_config=vision, text_config=transformers.LlamaConfig(**LANGUAGE),
                                                    image_token_id=257, scale_factor=2)
    image_processor = image_processor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28}, do_image_splitting=split)
    others = [transformers.SmolVLMVideoProcessor()] if kind == "SmolVLM" else []
    return talking_case(getattr(transformers, kind + "ForConditionalGeneration")(config),
                        processor(image_processor, fast_tokenizer(), *others, image_seq_len=4, chat_template=CHAT))


QWEN_SPECIAL = ["<|end|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<end_of_utterance>"]
QWEN_CHAT = CHAT.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
QWEN_LANGUAGE = {**LANGUAGE, "vocab_size": 256 + len(QWEN_SPECIAL)}


def qwen(kind, vision, section, is_flat=False, interleaved=False, **language):
    scaling = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section}
    if interleaved:
        scaling["mrope_interleaved"] = True
    config = getattr(transformers, kind + "Config")(
        text_config={**QWEN_LANGUAGE, "rope_parameters": scaling, **language}, vision_config={"patch_size": 7, "depth": 3, "num_heads": 4, **vision},
        image_token_id=257, video_token_id=258, vision_start_token_id=259, vision_end_token_id=260)
    processor = getattr(transformers, kind + "Processor")(
        Qwen2VLImageProcessorPil(size={"shortest_edge": 14 * 14 * 5, "longest_edge": 14 * 14 * 14}, patch_size=7, merge_size=2),
        fast_tokenizer(QWEN_SPECIAL), transformers.Qwen2VLVideoProcessor() if kind != "Qwen3VL" else transformers.Qwen3VLVideoProcessor(),
        chat_template=QWEN_CHAT)
    case = talking_case(getattr(transformers, kind + "ForConditionalGeneration")(config), processor, template=QWEN_CHAT,
                        kinds_of_tokens="mm_token_type_ids")
    if is_flat:  # as the models are published: the keys of the language model beside the others, and other names of tensors
        inner, config = case["config"].pop("text_config"), case["config"]
        inner.pop("model_type")
        inner["rope_theta"] = inner.pop("rope_parameters")["rope_theta"]
        inner["rope_scaling"] = {"type": "mrope", "mrope_section": section}
        config.update({key: value for key, value in inner.items() if key not in config})
    return case


GEMMA_SPECIAL = ["<|end|>", "<image_soft_token>", "<start_of_image>", "<end_of_image>", "<end_of_utterance>"]
GEMMA_CHAT = CHAT.replace("<image>", "<start_of_image>")


def gemma3(pan_and_scan=False, window=5):
    language = {**LANGUAGE, "vocab_size": 256 + len(GEMMA_SPECIAL), "head_dim": 8, "sliding_window": window, "query_pre_attn_scalar": 12,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rms_norm_eps": 1e-6}
    config = transformers.Gemma3Config(text_config=language, vision_config={**VISION, "vision_use_head": False}, mm_tokens_per_image=4,
                                       image_token_index=257, boi_token_index=258, eoi_token_index=259)
    crops = dict(do_pan_and_scan=True, pan_and_scan_min_crop_size=14, pan_and_scan_max_num_crops=3,
                 pan_and_scan_min_ratio_to_activate=1.2) if pan_and_scan else {}
    tokenizer = fast_tokenizer(GEMMA_SPECIAL, boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>",
                               boi_token_id=258, eoi_token_id=259, image_token_id=257)
    processor = transformers.Gemma3Processor(Gemma3ImageProcessorPil(size={"height": 28, "width": 28}, **crops), tokenizer,
                                             chat_template=GEMMA_CHAT, image_seq_length=4)
    return talking_case(transformers.Gemma3ForConditionalGeneration(config), processor, template=GEMMA_CHAT, kinds_of_tokens="token_type_ids", settings=crops)


PIXTRAL_SPECIAL = ["<|end|>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<end_of_utterance>"]
PIXTRAL_CHAT = CHAT.replace("<image>", "[IMG]")


def pixtral(kind):
    merge = 2 if kind == "Mistral3" else 1
    vision = transformers.PixtralVisionConfig(**{**VISION, "patch_size": 7, "image_size": 56})
    language = {**LANGUAGE, "vocab_size": 256 + len(PIXTRAL_SPECIAL), "model_type": "mistral", "sliding_window": None, "head_dim": 8}
    own = dict(spatial_merge_size=2) if merge == 2 else dict(vision_feature_select_strategy="full")
    config = getattr(transformers, kind + "Config")(vision_config=vision, text_config=language, image_token_index=257,
                                                    vision_feature_layer=-1, **own)
    processor = transformers.PixtralProcessor(
        PixtralImageProcessorPil(size={"longest_edge": 56 if merge == 2 else 42}, patch_size={"height": 7, "width": 7}),
        fast_tokenizer(PIXTRAL_SPECIAL), patch_size=7, spatial_merge_size=merge, chat_template=PIXTRAL_CHAT)
    return talking_case(getattr(transformers, kind + "ForConditionalGeneration")(config), processor, template=PIXTRAL_CHAT)


def clip_config(**changes):
    return transformers.CLIPConfig(text_config={**TEXT, **changes}, vision_config=VISION, projection_dim=20)


CASES = {
    HERE / "cases": {
        "clip": lambda: encoder_case("CLIP", CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
                                     clip_config()),
        # The end token of old configurations, and another activation.
        "clip-old": lambda: encoder_case("CLIP", CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size={"height": 28, "width": 28}, resample=2),
                                         clip_config(eos_token_id=2, hidden_act="gelu")),
        "siglip": lambda: encoder_case("Siglip", SiglipImageProcessorPil(size={"height": 28, "width": 28}),
                                       transformers.SiglipConfig(text_config={**TEXT, "hidden_size": 36, "projection_size": 32}, vision_config=VISION)),
        "vit": classifier_case,
    },
    HERE.parent / "llm" / "images": {
        "llava": llava,
        "llava-layers": lambda: llava(vision_feature_layer=[-2, 1], vision_feature_select_strategy="full",
                                      multimodal_projector_bias=False, projector_hidden_act="gelu"),
        "idefics3": lambda: idefics3("Idefics3", Idefics3ImageProcessorPil, transformers.Idefics3Processor),
        "llava-next": lambda: llava_next("clip", "mistral"),
        "llava-next-siglip": lambda: llava_next("siglip", "llama", vision_feature_layer=[-1, -2]),
        "internvl": lambda: internvl("qwen2", tied=True),
        # As the large ones: other norms, also of queries and keys; and one part an image.
        "internvl-rms": lambda: internvl("llama", norm_type="rms_norm", use_qk_norm=True, attention_bias=True, use_mean_pooling=False),
        "internvl-whole": lambda: internvl("qwen3", parts=1),
        # Tiles of another size than the positions were trained for.
        "idefics3-spread": lambda: idefics3("Idefics3", Idefics3ImageProcessorPil, transformers.Idefics3Processor, size=42),
        "qwen2-vl": lambda: qwen("Qwen2VL", dict(embed_dim=32, hidden_size=32, mlp_ratio=2), [1, 1, 2]),
        "qwen2-5-vl": lambda: qwen("Qwen2_5_VL", dict(hidden_size=32, out_hidden_size=32, intermediate_size=44, window_size=28,
                                                      fullatt_block_indexes=[1]), [2, 1, 1]),
        "qwen2-5-vl-flat": lambda: qwen("Qwen2_5_VL", dict(hidden_size=48, out_hidden_size=32, intermediate_size=44, window_size=14,
                                                           fullatt_block_indexes=[2]), [1, 2, 1], is_flat=True, tie_word_embeddings=True),
        "qwen3-vl": lambda: qwen("Qwen3VL", dict(hidden_size=32, out_hidden_size=32, intermediate_size=44, num_position_embeddings=25,
                                                 deepstack_visual_indexes=[0, 2]), [4, 2, 2], interleaved=True, head_dim=16),
        "gemma3-images": gemma3,
        "gemma3-crops": lambda: gemma3(True, 3),
        "pixtral": lambda: pixtral("Llava"),
        "mistral3": lambda: pixtral("Mistral3"),
        "smolvlm-whole": lambda: idefics3("SmolVLM", SmolVLMImageProcessorPil, transformers.SmolVLMProcessor, split=False),
    },
}


def difference(kept, new):
    """The largest difference of floats; infinite where anything else differs."""
    if isinstance(kept, float) or isinstance(new, float):
        return abs(kept - new)
    if isinstance(kept, dict) and isinstance(new, dict) and kept.keys() == new.keys():
        return max((difference(kept[key], new[key]) for key in kept), default=0)
    if isinstance(kept, list) and isinstance(new, list) and len(kept) == len(new):
        return max((difference(a, b) for a, b in zip(kept, new)), default=0)
    return 0 if kept == new else float("inf")


def main(*arguments):
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    wanted = [a for a in arguments if not a.startswith("--")]
    for folder, cases in CASES.items():
        for name, make in cases.items():
            if wanted and name not in wanted:
                continue
            path, result = folder / f"{name}.json", make()
            if "--check" in arguments:
                apart = difference(json.loads(path.read_text()), json.loads(json.dumps(result)))
                failures += not apart < 3e-6
                print(f"{name}: differs by {apart:.1e}")
                continue
            path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
            print(f"{name}: {path.stat().st_size} bytes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
