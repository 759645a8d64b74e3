"""Functions with a gradient of their own."""
import numpy as np
import torch
from torch.autograd import Function, Variable


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input ** 3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input ** 2 - 1)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, w, factor):
        ctx.save_for_backward(x, w)
        ctx.factor = factor
        return x * w * factor

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return (grad * w * ctx.factor if ctx.needs_input_grad[0] else None), (grad * x * ctx.factor).sum(0), None


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def main():
    losses = []
    x = torch.linspace(-3.14, 3.14, 200)
    y = torch.sin(x)
    a = torch.full((), 0.0, requires_grad=True)
    b = torch.full((), -1.0, requires_grad=True)
    c = torch.full((), 0.0, requires_grad=True)
    d = torch.full((), 0.3, requires_grad=True)
    learning_rate = 5e-6
    for t in range(20):
        P3 = LegendrePolynomial3.apply
        y_pred = a + b * P3(c + d * x)
        loss = (y_pred - y).pow(2).sum()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            a -= learning_rate * a.grad
            b -= learning_rate * b.grad
            c -= learning_rate * c.grad
            d -= learning_rate * d.grad
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None
    print(f'Result: y = {a.item()} + {b.item()} * P3({c.item()} + {d.item()} x)')
    data = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    w = torch.ones(3, requires_grad=True)
    v = Scaled.apply(data, w, 3.0).sum()
    v.backward()
    losses += w.grad.tolist()
    r = torch.tensor([0.2, 0.7, -1.4], requires_grad=True)
    (RoundSTE.apply(r) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    losses += r.grad.tolist()
    w.grad.zero_()
    losses.append(w.grad.sum().item())
    z = torch.tensor([1.0, 2.0], requires_grad=True)
    first, = torch.autograd.grad((z ** 3).sum(), z, create_graph=True)
    second, = torch.autograd.grad(first.sum(), [z])
    losses += second.tolist()
    assert torch.autograd.gradcheck(lambda t: (t ** 2).sum(), (torch.tensor([0.3, 0.5], dtype=torch.double, requires_grad=True),))
    h = z.register_hook(lambda g: g * 2)
    z.sum().backward()
    losses += z.grad.tolist()
    h.remove()
    return losses
