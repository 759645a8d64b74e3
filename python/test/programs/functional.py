"""Transforms of functions: gradients of single examples, jvp, Jacobians and Hessians, ensembles."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap


def main():
    draw = np.random.default_rng(19)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    settle(model)
    x = torch.tensor(draw.normal(size=(5, 4)), dtype=torch.float32)
    y = torch.tensor(draw.integers(0, 3, 5))
    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    def compute_loss(params, buffers, sample, target):
        predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return F.cross_entropy(predictions, target.unsqueeze(0))

    ft_compute_grad = grad(compute_loss)
    single = ft_compute_grad(params, buffers, x[0], y[0])
    per_sample = vmap(ft_compute_grad, in_dims=(None, None, 0, 0))(params, buffers, x, y)
    losses = [per_sample[k][0].sub(single[k]).abs().max().item() + 1.0 for k in sorted(single)]
    losses += [per_sample[k].norm().item() for k in sorted(per_sample)]
    g, value = grad_and_value(lambda p: functional_call(model, p, (x,)).pow(2).mean())(params)
    losses += [value.item(), g["0.weight"].sum().item()]
    f = lambda v: torch.sin(v) @ v
    point = torch.tensor([0.5, -1.0, 2.0])
    losses += grad(f)(point).tolist()
    out, tangent = jvp(f, (point,), (torch.ones(3),))
    losses += [out.item(), tangent.item()]
    out, pull = vjp(torch.sin, point)
    losses += pull(torch.ones(3))[0].tolist()
    losses += hessian(f)(point).flatten().tolist()
    losses += jacrev(lambda v: v ** 2 * v.sum())(point).flatten().tolist()
    losses += jacfwd(torch.exp)(point).diagonal().tolist()
    losses += torch.autograd.functional.jacobian(lambda v: v ** 3, point).sum(0).tolist()
    losses += torch.autograd.functional.hessian(lambda v: (v ** 3).sum(), point).sum(0).tolist()
    losses += vmap(torch.dot)(x[:, :3], x[:, 1:]).tolist()
    losses += vmap(lambda a, b: a * b, in_dims=(0, None), out_dims=1)(x, point[0]).sum(0).tolist()
    # The derivatives of a network by its input, as physics-informed networks use them.
    t = torch.linspace(0, 1, 6).unsqueeze(1).requires_grad_(True)
    u_net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    settle(u_net)
    u = u_net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    ddu = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
    residual = ((ddu + u) ** 2).mean()
    residual.backward()
    losses += [residual.item(), u_net[0].weight.grad.sum().item(), t.grad.sum().item()]
    return losses
