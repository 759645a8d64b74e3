"""What the trl library makes of preferences: make.py [FOLDER] [--check].

Writes a file a loss: texts, and of some steps of DPOTrainer's loss on them the loss, the accuracy and the margin of rewards, and one
matrix behind them. The model and the adapter are those of ../peft/make.py, so the reference is the model with the adapter as it
begins. preference_test.cpp compares Weft with them. With --check the files are compared with what the library gives now, and stay.
Made with trl 1.16.0, peft 0.21.2, transformers 5.24.0 and torch 2.15.0.
"""
import json
import pathlib
import sys
import tempfile

import datasets
import numpy as np
import peft
import tokenizers
import torch
import transformers
import trl
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peft"))
from importlib import util  # noqa: E402

spec = util.spec_from_file_location("peft_make", pathlib.Path(__file__).parents[1] / "peft" / "make.py")
adapters = util.module_from_spec(spec)
spec.loader.exec_module(adapters)

PAIRS = [(4, 12, 9), (6, 5, 14), (3, 8, 8)]  # tokens of the prompt, of the chosen and of the rejected text
STEPS, RATE = 6, 3e-3

# name, adapter of ../peft, settings of the loss. The library smoothes labels in its losses by sorted ratios, which of one preference
# are those of the sigmoid.
CASES = [
    ("sigmoid", "llama", {"beta": 0.1}),
    ("smoothed", "gpt2", {"beta": 0.5, "label_smoothing": 0.2, "loss_type": ["aot"]}),
    ("ipo", "qwen3", {"beta": 0.3, "loss_type": ["ipo"]}),
]


def texts_of():
    """Tokens by a rule: of each preference the prompt with the chosen, and with the rejected text."""
    pairs = []
    for p, (prompt, chosen, rejected) in enumerate(PAIRS):
        token = lambda i, side: (i * 17 + 5 * p + 3 * (i % 4) + (29 * side if i >= prompt else 0)) % adapters.models.VOCABULARY  # noqa: E731, B023
        pairs.append([[token(i, 0) for i in range(prompt + chosen)], [token(i, 1) for i in range(prompt + rejected)]])
    return pairs


def batch_of(pairs):
    texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    width = max(map(len, texts))
    pad = lambda rows: torch.tensor([row + [0] * (width - len(row)) for row in rows])  # noqa: E731
    prompts = [prompt for prompt, _, _ in PAIRS[:len(pairs)]] * 2
    return {"input_ids": pad(texts), "attention_mask": pad([[1] * len(text) for text in texts]),
            "completion_mask": pad([[0] * prompt + [1] * (len(text) - prompt) for prompt, text in zip(prompts, texts)])}


def trainer_of(model, folder, settings):
    """A trainer, of which only the loss is used; it asks for a tokenizer and data."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "<e>": 2}, unk_token="a"))
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", pad_token="<e>")
    data = datasets.Dataset.from_list([{"prompt": "a", "chosen": "a", "rejected": "b"}])
    config = trl.DPOConfig(output_dir=str(folder / "trl"), report_to=[], use_cpu=True, disable_dropout=True, bf16=False,
                           gradient_checkpointing=False, disable_tqdm=True, **settings)
    return trl.DPOTrainer(model, args=config, train_dataset=data, processing_class=words)


def result_of(name, adapter, settings):
    case = json.loads((pathlib.Path(adapters.__file__).parent / f"{adapter}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        plain = adapters.model_of(case["model"], folder)
        (folder / "adapter").mkdir()
        save_file({key: adapters.adapter_values(key, tuple(shape)) for key, shape in case["tensors"].items()},
                  folder / "adapter" / "adapter_model.safetensors", {"format": "pt"})
        (folder / "adapter" / "adapter_config.json").write_text(json.dumps(case["adapter"] | {"base_model_name_or_path": str(folder)}))
        model = peft.PeftModel.from_pretrained(plain, folder / "adapter", is_trainable=True).double()
        trainer = trainer_of(model, folder, settings)
        model = trainer.model.double().eval()
        is_smoothed = "label_smoothing" in settings
        pairs = texts_of()[:1] if is_smoothed else texts_of()
        batch = batch_of(pairs)
        trained = [p for n, p in model.named_parameters() if "lora" in n and ".ref." not in n]
        assert trained and all(p.requires_grad for p in trained)
        optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
        losses, accuracies, margins = [], [], []
        for _ in range(STEPS):
            trainer._metrics["eval"].clear()
            loss = trainer.compute_loss(model, dict(batch))
            losses.append(loss.item())
            accuracies.append(trainer._metrics["eval"]["rewards/accuracies"][-1])
            margins.append(trainer._metrics["eval"]["rewards/margins"][-1])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
        model.save_pretrained(folder / "after", selected_adapters=["default"])
        after = load_file(folder / "after" / "adapter_model.safetensors")
    number = lambda x: float(f"{x:.6f}")  # noqa: E731
    return {"adapter": adapter, "beta": settings["beta"], "label_smoothing": settings.get("label_smoothing", 0.0),
            "loss": "sigmoid" if is_smoothed else settings.get("loss_type", ["sigmoid"])[0], "pairs": pairs, "prompts": [p for p, _, _ in PAIRS], "rate": RATE,
            "losses": [float(f"{x:.7f}") for x in losses], "accuracies": [number(x) for x in accuracies],
            "margins": [number(x) for x in margins], "after_key": case["after_key"],
            "after": [number(x) for x in after[case["after_key"]].flatten()[:64]]}


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), pathlib.Path(__file__).parent))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    failures = 0
    for name, adapter, settings in CASES:
        result, path = result_of(name, adapter, settings), folder / f"{name}.json"
        if not check:
            path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
            print(f"{name}: losses {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}, margins to {result['margins'][-1]:.4f}")
            continue
        kept = json.loads(path.read_text())
        difference = max(np.abs(np.subtract(kept[key], result[key])).max() for key in ("losses", "accuracies", "margins", "after"))
        failures += not difference < 5e-6
        print(f"{name}: differs by {difference:.1e}")
    print(f"{len(CASES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
