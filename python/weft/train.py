"""Training of a GPT on a text, and text that a trained model writes."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _weft
from .io import Path

Observer = Callable[[dict[str, Any]], None]


@dataclass
class Curve:
    """Lines over the steps of a run; a picture in notebooks."""

    title: str = "loss"
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, step: float, value: float) -> None:
        self.series.setdefault(name, []).append((float(step), float(value)))

    def svg(self) -> str:
        return str(_weft._svg_chart(self.title, "step", "", self.series))

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()


@dataclass
class Run:
    """A run that has ended."""

    folder: str
    steps: int
    validation_loss: float
    seconds: float
    interrupted: bool
    curve: Curve
    samples: list[str]

    def _repr_html_(self) -> str:
        text = f"<pre>{html.escape(self.samples[-1])}</pre>" if self.samples else ""
        return f"{self.curve.svg()}<p>{self.steps} steps, loss {self.validation_loss:.4f}, {self.seconds:.1f} s</p>{text}"


_OPTIONS = {"resume", "device", "preset", "data", "vocabulary", "steps", "seconds", "seed", "batch", "context", "layers", "heads",
            "width", "dropout", "learning_rate", "optimizer", "optimizer_options", "weight_decay", "precision", "exchange", "divide", "accumulate", "log_every", "eval_every",
            "sample_every", "sample_tokens"}


def presets() -> dict[str, str]:
    """Named starting points and what they are for."""
    return dict(_weft._presets())


def text(data: Path | None, out: Path, *, observer: Observer | None = None, **options: Any) -> Run:
    """Trains a GPT on a UTF-8 text. The folder `out` gets checkpoints, metrics, samples and the curve; with resume=True a run goes
    on. Options: preset, steps, seconds, seed, batch, context, layers, heads, width, dropout, learning_rate, optimizer
    (a name as "lion"), optimizer_options (a dictionary), weight_decay, precision, exchange, divide, accumulate, vocabulary, device, log_every, eval_every, sample_every, sample_tokens. Ctrl-C ends the run with
    KeyboardInterrupt; its last checkpoint stays. `observer` gets each event as a dictionary."""
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"train.text: unknown option {sorted(unknown)[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    options["optimizer_options"] = [f"{name}={str(value).lower()}" for name, value in (options.get("optimizer_options") or {}).items()]
    if data is not None:
        options["data"] = os.fspath(data)
    curve, samples = Curve(f"{os.fspath(out)}"), []

    def observe(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            curve.add("training", event["step"], event["loss"])
            if event["val_loss"] is not None:
                curve.add("validation", event["step"], event["val_loss"])
        elif event["event"] == "sample":
            samples.append(event["text"])
        if observer is not None:
            observer(event)

    done = _weft._train_text(out, options, observe)
    return Run(os.fspath(out), done["steps"], done["validation_loss"], done["seconds"], done["interrupted"], curve, samples)


class Writer:
    """A trained model that writes."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def generate(self, prompt: str, tokens: int = 200, *, temperature: float = 0.8, top_k: int = 0, top_p: float = 1,
                 seed: int = 1, sink: Callable[[str], Any] | None = None) -> str:
        """Text after the prompt. `sink` gets each piece, and ends the generation by returning False."""
        pieces: list[str] = []

        def take(piece: str) -> bool:
            pieces.append(piece)
            return sink is None or sink(piece) is not False

        self._native.generate(prompt, tokens, temperature, top_k, top_p, seed, take)
        return "".join(pieces)

    @property
    def step(self) -> int:
        return int(self._native.step)

    def __repr__(self) -> str:
        return str(self._native.describe())


def load(run_or_file: Path) -> Writer:
    """The best model of a run's folder, or of a checkpoint."""
    return Writer(_weft._load_run(run_or_file))
