"""Mixed precision with PyTorch's names."""

from __future__ import annotations

from typing import Any

from . import _weft
from ._transforms import autocast as autocast
from ._weft import LossScale, Tensor

__all__ = ["GradScaler", "autocast"]


class GradScaler:
    """Scales a loss so that small gradients survive f16: scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update(). A step
    whose gradients are not finite is left out, and the scale becomes smaller. weft.optim.LossScale does the same inside a compiled
    step."""

    def __init__(self, device: str = "cpu", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        self._scale, self._growth, self._backoff, self._interval, self._enabled = float(init_scale), growth_factor, backoff_factor, growth_interval, enabled
        LossScale(init_scale, growth_factor, backoff_factor, growth_interval)  # checks the numbers
        self._good_steps = 0
        self._unscaled: dict[int, bool] = {}  # by optimiser: whether its gradients were finite

    def scale(self, outputs: Any) -> Any:
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs.to("f32") * self._scale if outputs.dtype in ("f16", "bf16") else outputs * self._scale
        return type(outputs)(self.scale(each) for each in outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimiser's parameters, for instance before they are clipped."""
        if not self._enabled or id(optimizer) in self._unscaled:
            return
        gradients = [(variable, variable.grad) for variable in optimizer.parameters if variable.grad is not None]
        for variable, gradient in gradients:
            variable.grad = gradient / self._scale
        finite = [_weft.op("isfinite")(gradient).all() for _, gradient in gradients]
        self._unscaled[id(optimizer)] = all(bool(each) for each in finite)

    def step(self, optimizer: Any, *arguments: Any) -> Any:
        """optimizer.step(), unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*arguments)
        self.unscale_(optimizer)
        return optimizer.step(*arguments) if self._unscaled[id(optimizer)] else None

    def update(self, new_scale: float | None = None) -> None:
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not all(self._unscaled.values()):
            self._scale, self._good_steps = self._scale * self._backoff, 0
        else:
            self._good_steps += 1
            if self._good_steps == self._interval:
                self._scale, self._good_steps = self._scale * self._growth, 0
        self._unscaled.clear()

    def get_scale(self) -> float:
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self._scale, "growth_factor": self._growth, "backoff_factor": self._backoff, "growth_interval": self._interval,
                "_growth_tracker": self._good_steps} if self._enabled else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._enabled:
            self._scale, self._growth, self._backoff = float(state["scale"]), state["growth_factor"], state["backoff_factor"]
            self._interval, self._good_steps = state["growth_interval"], state["_growth_tracker"]
