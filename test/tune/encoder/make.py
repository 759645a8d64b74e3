"""What transformers and sentence-transformers make of training text encoders: make.py [FOLDER] [--check] [--only=NAME...].

Writes a file a case: examples, the losses of some steps of AdamW on all weights without dropout, and a tensor and scores behind them, in
f64. encoder_tune_test.cpp compares Weft with them. With --check the files are compared with what the libraries give now, and stay as they
are. The models are those of test/encoder/models. Made with transformers 5.24.0, sentence-transformers 6.2.0 and torch 2.15.0.
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
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parents[1] / "encoder" / "models"
spec = importlib.util.spec_from_file_location("encoder_make", HERE.parents[1] / "encoder" / "make.py")
encoders = importlib.util.module_from_spec(spec)
spec.loader.exec_module(encoders)

STEPS, RATE, DECAY = 4, 1e-3, 0.1
TEXTS = encoders.TEXTS
TRIPLETS = [{"anchor": TEXTS[0], "positive": TEXTS[3]}, {"anchor": TEXTS[1], "positive": TEXTS[4]}, {"anchor": TEXTS[2], "positive": "w11 w13 w8"}]
SCORED = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in
          ((TEXTS[0], TEXTS[3], 0.9), (TEXTS[1], TEXTS[4], 0.2), (TEXTS[2], "w11 w13 w8", 0.5), ("w40 w41", "w40", 0.2))]
LABELS = [{"text": text, "label": i} for text, i in zip(TEXTS, (2, 0, 1, 1, 0))]
PAIRS = [{"sentence1": a, "sentence2": b, "label": i} for (a, b), i in zip(encoders.PAIRS, (0, 2, 1))]
WORDS = [{"tokens": "w9 w14 w15 w22 w6".split(), "labels": [0, 1, 2, 0, 1]}, {"tokens": "w11 w8".split(), "labels": [-100, 2]}]
# Of one length, because rows of padding with windows are NaN in the libraries.
EVEN = [" ".join(f"w{5 + (i * 29 + 11 * row) % 43}" for i in range(12)) for row in range(6)]
# name: model, objective, examples
CASES = {
    "bert-single": ("bert-classes", "single-label", LABELS),
    "bert-pairs": ("bert-classes", "single-label", PAIRS),
    "bert-multi": ("bert-classes", "multi-label", [{"text": t, "labels": l} for t, l in zip(TEXTS, ([0, 2], [], [1], [0, 1, 2], [2]))]),
    "roberta-values": ("roberta-classes", "regression", [{"text": t, "label": v} for t, v in zip(TEXTS, (0.5, -1.25, 2.0, 0.0, 1.5))]),
    "roberta-cross": ("xlm-roberta-classes", "cross-encoder", SCORED),
    "electra-single": ("electra-classes", "single-label", LABELS),
    "albert-single": ("albert-classes", "single-label", LABELS),
    "distilbert-single": ("distilbert-classes", "single-label", LABELS),
    "deberta-single": ("deberta-v3-classes", "single-label", PAIRS),
    "gte-single": ("gte-classes", "single-label", LABELS),
    "modernbert-single": ("modernbert-classes", "single-label", [{"text": t, "label": i} for t, i in zip(EVEN, (2, 0, 1))]),
    "eurobert-single": ("eurobert-classes", "single-label", LABELS),
    "bert-words": ("bert-tokens", "tokens", WORDS),
    "deberta-words": ("deberta-v2-tokens", "tokens", WORDS),
    "modernbert-words": ("modernbert-tokens", "tokens", WORDS),
    "bert-ranking": ("bert-mean", "ranking", TRIPLETS),
    "mpnet-ranking": ("mpnet", "ranking", [{**t, "negative": n} for t, n in zip(TRIPLETS, ("w9 w9", "w8 w8 w30", "w33 w12"))]),
    "nomic-cosine": ("nomic", "cosine", SCORED),
    "t5-cosent": ("t5", "cosent", SCORED),
    "gemma-ranking": ("embeddinggemma", "ranking", [{"anchor": EVEN[0], "positive": EVEN[1], "negative": [EVEN[2], EVEN[3]]},
                                                   {"anchor": EVEN[4], "positive": EVEN[5], "negative": [EVEN[1], EVEN[2]]}]),
}


def put(case, folder):
    """The folder of a model of test/encoder, without dropout."""
    for path, contents in case["files"].items():
        if path == "config.json":
            contents = {key: 0.0 if "drop" in key and value else value for key, value in contents.items()}
            # The embedding of padding does not train; here it would be that of a text's first token.
            contents["pad_token_id"] = 1 if "<pad>" in json.dumps(case["files"]["tokenizer.json"]) else 0
        encoders.write(folder / path, contents)
    unit_norms = case["files"]["config.json"]["model_type"] != "gemma3_text"
    values = encoders.llm_make.random_values
    save_file({key: values(key, tuple(shape), unit_norms) for key, shape in case["tensors"].items()}, folder / "model.safetensors", {"format": "pt"})
    for path, parts in case["dense"].items():
        save_file({key.split(".", 1)[1]: values(key, tuple(shape), True) for key, shape in parts.items()}, folder / path, {"format": "pt"})


def features(tokenizer, firsts, seconds=None, types=True):
    encoded = [tokenizer.encode(*([a] if seconds is None else [a, seconds[i]])) for i, a in enumerate(firsts)]
    most = max(len(e.ids) for e in encoded)
    row = lambda values, fill: values + [fill] * (most - len(values))  # noqa: E731
    made = {"input_ids": torch.tensor([row(e.ids, 0) for e in encoded]), "attention_mask": torch.tensor([row([1] * len(e.ids), 0) for e in encoded])}
    if types:
        made["token_type_ids"] = torch.tensor([row(e.type_ids, 0) for e in encoded])
    return made


def result_of(name):
    model_name, objective, examples = CASES[name]
    case = json.loads((MODELS / f"{model_name}.json").read_text())
    config = case["files"]["config.json"]
    kind = config["model_type"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        put(case, folder)
        tokenizer = encoders.Tokenizer.from_file(str(folder / "tokenizer.json"))
        has_types = kind in ("bert", "electra", "albert", "deberta-v2", "nomic_bert")
        values = torch.tensor([e.get("score", e.get("label", 0)) if not isinstance(e.get("label"), list) else 0 for e in examples], dtype=torch.float64)
        if "modules.json" in case["files"]:
            whole = SentenceTransformer(str(folder), device="cpu", model_kwargs={"attn_implementation": "eager", "dtype": torch.float32})
            trained = whole.double().train()
            loss_class = {"ranking": lambda: losses.MultipleNegativesRankingLoss(whole), "cosine": lambda: losses.CosineSimilarityLoss(whole),
                          "cosent": lambda: losses.CoSENTLoss(whole)}[objective]()
            if objective == "ranking":
                columns = [[e[key] for e in examples] for key in ("anchor", "positive")]
                negatives = [e.get("negative", []) for e in examples]
                negatives = [[n] if isinstance(n, str) else n for n in negatives]
                columns += [list(column) for column in zip(*negatives)]
            else:
                columns = [[e[key] for e in examples] for key in ("sentence1", "sentence2")]
            inputs = [features(tokenizer, column, types=has_types) for column in columns]

            def step():
                return loss_class([dict(column) for column in inputs], values)

            def last():
                return whole(dict(inputs[0]))["sentence_embedding"]
        else:
            head = "ForTokenClassification" if objective == "tokens" else "ForSequenceClassification"
            trained = getattr(transformers, "AutoModel" + head).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).double().train()
            if objective == "tokens":
                inputs = features(tokenizer, [" ".join(e["tokens"]) for e in examples], types=has_types)
                labels = torch.full(inputs["input_ids"].shape, -100)
                for row, e in zip(labels, examples):
                    row[1:1 + len(e["labels"])] = torch.tensor(e["labels"])  # a word is a token
            else:
                second = "sentence2" in examples[0]
                inputs = features(tokenizer, [e["sentence1" if second else "text"] for e in examples], [e["sentence2"] for e in examples] if second else None, has_types)
                labels = values if objective in ("regression", "cross-encoder") else values.long()
                if objective == "multi-label":
                    labels = torch.tensor([[float(c in e["labels"]) for c in range(3)] for e in examples], dtype=torch.float64)
            trained.config.problem_type = {"regression": "regression", "multi-label": "multi_label_classification", "single-label": "single_label_classification"}.get(objective)

            def step():
                if objective == "cross-encoder":  # as sentence-transformers has it for models of one class
                    return torch.nn.functional.binary_cross_entropy_with_logits(trained(**inputs).logits.view(-1), labels)
                return trained(**inputs, labels=labels).loss

            def last():
                logits = trained(**inputs).logits
                return logits[:, 1] if objective == "tokens" else logits
        parameters = [p for p in trained.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
                                       {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}], lr=RATE)
        made = []
        for _ in range(STEPS):
            loss = step()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            made.append(loss.item())
        with torch.no_grad():
            scores = last().numpy()
        key = sorted(k for k in case["tensors"] if "layer" in k and len(case["tensors"][k]) == 2)[0]
        trained.float()
        out = folder / "out"
        (trained if not hasattr(trained, "tokenizer") or "modules.json" not in case["files"] else trained[0].auto_model).save_pretrained(out)
        saved = load_file(out / "model.safetensors")
        after = saved[key].flatten()
    number = lambda x: float(f"{x:.6f}")  # noqa: E731
    return {"model": model_name, "objective": objective, "examples": examples, "rate": RATE, "decay": DECAY, "losses": [float(f"{x:.7f}") for x in made],
            "after_key": key, "after": [number(x) for x in after[:64]], "scores": encoders.rounded(scores)}


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), HERE))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    wanted = [a.removeprefix("--only=") for a in arguments if a.startswith("--only=")]
    failures = 0
    for name in CASES:
        if wanted and name not in wanted:
            continue
        result, path = result_of(name), folder / f"{name}.json"
        if not check:
            path.write_text(encoders.text_of(result))
            print(f"{name}: {path.stat().st_size} bytes, losses {result['losses']}")
            continue
        kept = json.loads(path.read_text())
        difference = max(np.abs(np.subtract(kept[key], result[key])).max() for key in ("losses", "after", "scores"))
        print(f"{name}: {difference:.1e}")
        failures += difference > 2e-6
    return failures > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
