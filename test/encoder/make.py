"""What transformers and sentence-transformers make of tiny random text encoders: make.py [FOLDER] [--check] [--only=NAME...].

Writes a file a model: the files of its folder, texts, and what the libraries give for them in f64. encoder_test.cpp compares Weft
with that. With --check the files are compared with what the libraries give now, and stay as they are. Made with transformers
5.24.0, sentence-transformers 6.2.0, and torch 2.15.0.
"""
import importlib.util
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer, SparseEncoder
from tokenizers import Tokenizer, models, pre_tokenizers, processors

HERE = pathlib.Path(__file__).parent
WORDS = 48
BASE = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64, pad_token_id=0)
TEXTS = ["w9 w14 w15 w9 w22 w6 w5", "w11 w8", " ".join(f"w{5 + (i * 29 + 7 * (i % 3)) % 43}" for i in range(40)), "w12 w7 w11 w8 w12 w8 w47 w30 w31 w6",
         "w33"]
PAIRS = [(TEXTS[1], TEXTS[2]), (TEXTS[0], TEXTS[4]), (TEXTS[3], TEXTS[0])]
LABELS = {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
MEAN = [("Pooling", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})]


def pooling(*modes):
    return [("Pooling", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, **{f"pooling_mode_{mode}": True for mode in modes}})]


def dense(rows, columns, activation):
    return ("Dense", {"in_features": columns, "out_features": rows, "bias": True, "activation_function": f"torch.nn.modules.{activation}"})


ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
# name, configuration, head, what differs from BASE, tokenizer, modules of sentence-transformers
CASES = [
    ("bert", "Bert", "Model", {}, "bert", pooling("cls_token") + [("Normalize", {})]),
    ("bert-mean", "Bert", "Model", {"hidden_act": "gelu_new"}, "bert", pooling("mean_tokens", "max_tokens") + [dense(24, 64, "activation.Tanh")]),
    ("bert-classes", "Bert", "ForSequenceClassification", LABELS, "bert", None),
    ("bert-splade", "Bert", "ForMaskedLM", {}, "bert", [("SpladePooling", {"pooling_strategy": "max", "activation_function": "relu", "embedding_dimension": WORDS})]),
    ("distilbert-splade", "DistilBert", "ForMaskedLM", {}, "bert", [("SpladePooling", {"pooling_strategy": "sum", "activation_function": "log1p_relu", "embedding_dimension": WORDS})]),
    ("bert-tokens", "Bert", "ForTokenClassification", LABELS, "bert", None),
    ("bert-masks", "Bert", "ForMaskedLM", {}, "bert", None),
    ("bert-answers", "Bert", "ForQuestionAnswering", {}, "bert", None),
    ("roberta-answers", "Roberta", "ForQuestionAnswering", {"pad_token_id": 1, "type_vocab_size": 1}, "roberta", None),
    ("modernbert-answers", "ModernBert", "ForQuestionAnswering", {"local_attention": 12}, "bert", None),
    ("roberta", "Roberta", "Model", {"pad_token_id": 1, "type_vocab_size": 1}, "roberta", MEAN),
    ("roberta-classes", "Roberta", "ForSequenceClassification", {"pad_token_id": 1, "type_vocab_size": 1, "num_labels": 1}, "roberta", None),
    ("roberta-masks", "Roberta", "ForMaskedLM", {"pad_token_id": 1, "type_vocab_size": 1}, "roberta", None),
    ("xlm-roberta-classes", "XLMRoberta", "ForSequenceClassification", {"pad_token_id": 1, "type_vocab_size": 1, "num_labels": 1}, "roberta", None),
    ("electra-classes", "Electra", "ForSequenceClassification", {"embedding_size": 24, **LABELS}, "bert", None),
    ("electra-masks", "Electra", "ForMaskedLM", {"embedding_size": 24}, "bert", None),
    ("albert-classes", "Albert", "ForSequenceClassification", {"embedding_size": 24, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2, **LABELS}, "bert", None),
    ("albert-masks", "Albert", "ForMaskedLM", {"embedding_size": 24}, "bert", None),
    ("distilbert", "DistilBert", "Model", {}, "bert", pooling("lasttoken")),
    ("distilbert-classes", "DistilBert", "ForSequenceClassification", LABELS, "bert", None),
    ("distilbert-masks", "DistilBert", "ForMaskedLM", {}, "bert", None),
    ("mpnet", "MPNet", "Model", {"pad_token_id": 1}, "roberta", MEAN + [("Normalize", {})]),
    ("mpnet-masks", "MPNet", "ForMaskedLM", {"pad_token_id": 1}, "roberta", None),
    ("t5", "T5", "EncoderModel", {"feed_forward_proj": "relu"}, "t5", MEAN + [dense(20, 32, "linear.Identity"), ("Normalize", {})]),
    ("t5-gated", "T5", "EncoderModel", {"feed_forward_proj": "gated-gelu", "d_kv": 12, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}, "t5", pooling("weightedmean_tokens")),
    ("deberta-v3-classes", "DebertaV2", "ForSequenceClassification", {"relative_attention": True, "position_buckets": 8, "max_relative_positions": -1, "share_att_key": True,
     "norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0, **LABELS}, "bert", None),
    ("deberta-v2-tokens", "DebertaV2", "ForTokenClassification", {"relative_attention": True, "max_relative_positions": 16, "share_att_key": False, "pos_att_type": ["c2p"], "type_vocab_size": 2,
     **LABELS}, "bert", None),
    ("nomic", "NomicBert", "Model", ROTARY, "bert", MEAN),
    ("gte-classes", "Gte", "ForSequenceClassification", {**ROTARY, "type_vocab_size": 1, **LABELS}, "roberta", None),
    ("modernbert", "ModernBert", "Model", {"local_attention": 10, "norm_bias": True}, "bert", pooling("cls_token")),
    ("modernbert-classes", "ModernBert", "ForSequenceClassification", {"local_attention": 12, "classifier_pooling": "mean", "num_hidden_layers": 5, **LABELS}, "bert", None),
    ("modernbert-tokens", "ModernBert", "ForTokenClassification", {"local_attention": 12, **LABELS}, "bert", None),
    ("modernbert-masks", "ModernBert", "ForMaskedLM", {"attention_bias": True, "mlp_bias": True}, "bert", None),
    ("eurobert-classes", "EuroBert", "ForSequenceClassification", {"num_key_value_heads": 2, **ROTARY, **LABELS}, "bert", None),
    ("eurobert-first", "EuroBert", "ForSequenceClassification", {"classifier_pooling": "bos", "head_dim": 12, **LABELS}, "bert", None),
    ("embeddinggemma", "Gemma3Text", "Model", {"num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 7, "sliding_window": 10, "use_bidirectional_attention": True, "query_pre_attn_scalar": 24},
     "t5", MEAN + [dense(48, 32, "linear.Identity"), dense(32, 48, "linear.Identity"), ("Normalize", {})]),
]
PROMPTS = {"prompts": {"query": "w20 w21 ", "document": ""}, "default_prompt_name": None}

spec = importlib.util.spec_from_file_location("llm_make", HERE.parent / "llm" / "transformers" / "make.py")
llm_make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(llm_make)


def tokenizer_of(kind):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if kind == "roberta" else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(len(special), WORDS)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=special[3] if kind == "roberta" else special[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    begin, end = (special[0], special[2]) if kind == "roberta" else (special[2], special[3])
    if kind == "bert":
        single, pair = f"{begin}:0 $A:0 {end}:0", f"{begin}:0 $A:0 {end}:0 $B:1 {end}:1"
    elif kind == "roberta":
        single, pair = f"{begin} $A {end}", f"{begin} $A {end} {end} $B {end}"
    else:
        single, pair = f"$A {end}", f"$A {end} $B {end}"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(begin, words.index(begin)), (end, words.index(end))])
    named = {"pad_token": special[1] if kind == "roberta" else special[0], "mask_token": special[4], "tokenizer_class": "PreTrainedTokenizerFast"}
    return tokenizer, named


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def rounded(values):
    return [[float(f"{x:.6f}") for x in row] for row in np.asarray(values, dtype=np.float64)]


def tensors_of(folder, files, prefix=""):
    made = {key: llm_make.random_values(prefix + key, value.shape, "gemma" not in str(files)) for key, value in load_file(folder / "model.safetensors").items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    return {key: list(value.shape) for key, value in sorted(made.items())}


def answers_of(model, tokenizer, has_types):
    """The best spans over windows that overlap, as the question-answering pipeline of transformers 4 finds them."""
    question, text, longest, window, stride = TEXTS[0], TEXTS[2], 4, 28, 6
    tokenizer.enable_truncation(window, stride=stride, strategy="only_second")
    whole = tokenizer.encode(question, text)
    found, none = {}, 1.0
    for part in [whole, *whole.overflowing]:
        more = {"token_type_ids": torch.tensor([part.type_ids])} if has_types else {}
        with torch.no_grad():
            out = model(input_ids=torch.tensor([part.ids]), attention_mask=torch.ones(1, len(part.ids), dtype=torch.long), **more)
        own = [i for i, sequence in enumerate(part.sequence_ids) if sequence == 1]
        first, last = (torch.softmax(logits[0, [0, *own]], 0).numpy() for logits in (out.start_logits, out.end_logits))
        none = min(none, float(first[0] * last[0]))
        for i in range(len(own)):
            for j in range(i, min(len(own), i + longest)):
                place = (part.offsets[own[i]][0], part.offsets[own[j]][1])
                found[place] = max(found.get(place, 0), float(first[i + 1] * last[j + 1]))
    best = sorted(found.items(), key=lambda each: -each[1])[:5]
    return {"question": question, "text": text, "longest": longest, "window": window, "stride": stride, "none": none, "windows": 1 + len(whole.overflowing),
            "best": [{"text": text[a:b], "begin": a, "end": b, "probability": p} for (a, b), p in best]}


def result_of(name, kind, head, changes, tokenizer_kind, modules):
    base = dict(BASE)
    if kind == "T5":
        base = dict(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=40, num_layers=3, num_heads=4, n_positions=64, pad_token_id=0)
    if kind == "DistilBert":
        base = dict(vocab_size=WORDS, dim=32, hidden_dim=40, n_layers=3, n_heads=4, max_position_embeddings=64, pad_token_id=0)
    config = getattr(transformers, kind + "Config")(**{**base, **changes})
    written = config.to_dict()
    if "sliding_window" in changes:
        written["sliding_window"] = changes["sliding_window"]  # the class changes it each time that it reads it
    config._attn_implementation = "eager"
    model_class = getattr(transformers, kind.removesuffix("Text") + ("TextModel" if kind.endswith("Text") else head))
    tokenizer, named = tokenizer_of(tokenizer_kind)
    is_sparse = bool(modules) and modules[0][0] == "SpladePooling"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model_class(config).save_pretrained(folder)
        result = {"tensors": tensors_of(folder, name), "files": {}}
        saved = json.loads((folder / "config.json").read_text())
        if "sliding_window" in changes:
            saved["sliding_window"] = changes["sliding_window"]
        write(folder / "config.json", saved)
        tokenizer.save(str(folder / "tokenizer.json"))
        write(folder / "tokenizer_config.json", named)
        dense_tensors = {}
        if modules is not None:
            listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers." + ("sparse_encoder.models.MLMTransformer" if is_sparse else "models.Transformer")}]
            for i, (module, settings) in enumerate(modules, 1):
                listed.append({"idx": i, "name": str(i), "path": f"{i}_{module}", "type": f"sentence_transformers.{'sparse_encoder.' if is_sparse else ''}models.{module}"})
                (folder / f"{i}_{module}").mkdir()
                if module != "Normalize":
                    write(folder / f"{i}_{module}" / "config.json", settings)
                if module == "Dense":
                    shape = (settings["out_features"], settings["in_features"])
                    part = {key: llm_make.random_values(f"{i}." + key, s, True) for key, s in (("linear.weight", shape), ("linear.bias", shape[:1]))}
                    save_file(part, folder / f"{i}_{module}" / "model.safetensors", {"format": "pt"})
                    dense_tensors[f"{i}_{module}/model.safetensors"] = {f"{i}." + key: list(value.shape) for key, value in part.items()}
            write(folder / "modules.json", listed)
            write(folder / "sentence_bert_config.json", {"max_seq_length": 50, "do_lower_case": False})
            write(folder / "config_sentence_transformers.json", {**PROMPTS, **({"model_type": "SparseEncoder"} if is_sparse else {})})
        for path in sorted(folder.rglob("*.json")):
            result["files"][str(path.relative_to(folder))] = json.loads(path.read_text())
        result["dense"] = dense_tensors
        result["texts"] = TEXTS
        encoded = [tokenizer.encode(text) for text in TEXTS]
        result["ids"] = [e.ids for e in encoded]
        if modules is not None:
            sentence = (SparseEncoder if is_sparse else SentenceTransformer)(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager", "dtype": torch.float32}).double()
            how = {"convert_to_sparse_tensor": False} if is_sparse else {}
            result["embeddings"] = rounded(sentence.encode(TEXTS, batch_size=1, **how))  # rows of padding with windows are NaN
            result["queries"] = rounded(sentence.encode(TEXTS, prompt_name="query", batch_size=1, **how))
            model = sentence[0].auto_model
        else:
            model = model_class.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
        model = model.double().eval()

        def run(ids, types=None):
            more = {"token_type_ids": torch.tensor([types])} if types is not None and kind in ("Bert", "Electra", "Albert", "DebertaV2", "NomicBert") else {}
            with torch.no_grad():
                out = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **more)
            return (out.logits if hasattr(out, "logits") else out.last_hidden_state)[0].numpy()

        if head == "ForQuestionAnswering":
            result["answers"] = answers_of(model, tokenizer, kind == "Bert")
        elif head == "ForSequenceClassification":
            result["logits"] = rounded([run(e.ids) for e in encoded])
            pairs = [tokenizer.encode(*pair) for pair in PAIRS]
            result["pairs"] = PAIRS
            result["types"] = [e.type_ids for e in pairs]
            result["pair_logits"] = rounded([run(e.ids, e.type_ids) for e in pairs])
        elif head == "ForTokenClassification":
            result["logits"] = rounded(run(encoded[0].ids)[1:-1])
        elif head == "ForMaskedLM":
            result["masked"] = f"w9 {named['mask_token']} w22 w30 {named['mask_token']}"
            ids = tokenizer.encode(result["masked"]).ids
            mask = tokenizer.token_to_id(named["mask_token"])
            result["logits"] = rounded([row for i, row in zip(ids, run(ids)) if i == mask])
        else:
            result["states"] = rounded(run(encoded[0].ids))
    return result


def text_of(result):
    """JSON with a line a key."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()) + "\n}\n"


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), HERE / "models"))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    wanted = [a.removeprefix("--only=") for a in arguments if a.startswith("--only=")]
    failures = 0
    for case in CASES:
        name = case[0]
        if wanted and name not in wanted:
            continue
        result, path = result_of(*case), folder / f"{name}.json"
        compared = [key for key in ("embeddings", "queries", "logits", "pair_logits", "states") if key in result]
        if not check:
            path.write_text(text_of(result))
            print(f"{name}: {path.stat().st_size} bytes", *(f"{key} up to {np.abs(np.concatenate(result[key])).max():.3f}" for key in compared))
            continue
        kept = json.loads(path.read_text())
        difference = max((np.abs(np.subtract(kept[key], result[key])).max() for key in compared), default=0)
        if "answers" in result:
            difference = max(difference, max(abs(a["probability"] - b["probability"]) for a, b in zip(kept["answers"]["best"], result["answers"]["best"])))
        print(f"{name}: {difference:.1e}")
        failures += difference > 2e-6
    return failures > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
