"""A program that mypy and pyright check against the stubs. It is not run."""
from typing import Any

import weft
from weft import nn, optim


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        y: weft.Tensor = self.first(x)
        return y.relu().softmax(axis=-1)


def main() -> None:
    x: weft.Tensor = weft.tensor([[1.0, 2.0]])
    y: weft.Tensor = (x * 2 + 1 - x / 3) @ x.T
    shape: tuple[int, ...] = y.shape
    total: weft.Tensor = weft.sum(y, axes=0, keepdims=True)
    values, places = x.sort(axis=1, descending=True)[:2]
    net = Net()
    optimizer = optim.AdamW(net, 1e-3)

    @weft.compile
    def step(inputs: weft.Tensor, rate: float) -> weft.Tensor:
        loss: weft.Tensor = net(inputs).sum()
        optimizer.step(weft.grad(loss, net.parameters()), rate)
        return loss

    loss: weft.Tensor = step(x, 0.1)
    slope: weft.Tensor = weft.grad(loss, x)
    slopes: list[weft.Tensor] = weft.grad(loss, [x, x])
    array: Any = slope.numpy()
    with weft.no_grad():
        v = weft.Variable(x)
        v.assign([[0.0, 0.0]])
    kind: weft.dtype = x.dtype
    print(shape, total, values, places, slopes, array, kind, float(loss), x[0, :, None].shape, weft.float32 == kind)


main()
