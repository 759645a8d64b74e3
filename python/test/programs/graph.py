"""A graph network: messages by index_add, means and attention by scatters, a sparse adjacency as edges."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GCNLayer(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inp, out))
        self.bias = nn.Parameter(torch.zeros(out))
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1. / self.weight.size(1) ** 0.5
        self.weight.data.uniform_(-stdv, stdv)

    def forward(self, x, edge_index):
        src, dst = edge_index
        n = x.size(0)
        deg = torch.zeros(n).index_add_(0, dst, torch.ones(dst.size(0)))
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float('inf')] = 0
        norm = deg_inv_sqrt[src] * deg_inv_sqrt[dst]
        support = torch.mm(x, self.weight)
        out = torch.zeros(n, support.size(1)).index_add(0, dst, norm.unsqueeze(1) * support[src])
        return out + self.bias


class GATLayer(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.fc = nn.Linear(inp, out, bias=False)
        self.a = nn.Parameter(torch.zeros(size=(2 * out, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(0.2)

    def forward(self, x, edge_index):
        src, dst = edge_index[0], edge_index[1]
        h = self.fc(x)
        e = self.leakyrelu(torch.cat([h[src], h[dst]], dim=-1) @ self.a).squeeze(-1)
        top = torch.full((x.size(0),), -1e9).scatter_reduce(0, dst, e, reduce="amax", include_self=True)
        w = torch.exp(e - top[dst])
        total = torch.zeros(x.size(0)).scatter_add(0, dst, w)
        alpha = w / (total[dst] + 1e-16)
        out = torch.zeros_like(h)
        out = out.scatter_add(0, dst.unsqueeze(-1).expand_as(h[src]), alpha.unsqueeze(-1) * h[src])
        return F.elu(out)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GCNLayer(5, 8), GATLayer(8, 8)])
        self.layers.append(GCNLayer(8, 3))
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])

    def forward(self, x, edge_index):
        for i, layer in enumerate(self.layers[:-1]):
            x = F.relu(layer(x, edge_index)) * self.scale[i]
            x = F.dropout(x, 0.0, training=self.training)
        return self.layers[-1](x, edge_index)


def main():
    draw = np.random.default_rng(17)
    n = 12
    edges = torch.tensor(draw.integers(0, n, (2, 40)), dtype=torch.long)
    loops = torch.arange(n).repeat(2, 1)
    edge_index = torch.cat([edges, loops], dim=1)
    x = torch.tensor(draw.normal(size=(n, 5))).float()
    y = torch.tensor(draw.integers(0, 3, n))
    train_mask = torch.zeros(n, dtype=torch.bool)
    train_mask[:8] = True
    net = Net()
    settle(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for epoch in range(5):
        net.train()
        optimizer.zero_grad()
        out = net(x, edge_index)
        loss = F.cross_entropy(out[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    net.eval()
    pred = net(x, edge_index).argmax(dim=1)
    correct = (pred[~train_mask] == y[~train_mask]).sum()
    losses.append(int(correct) / int((~train_mask).sum()))
    # Pooling of graphs.
    batch = torch.tensor([0] * 5 + [1] * 7)
    pooled = torch.zeros(2, 3).index_add_(0, batch, out.detach()) / torch.bincount(batch).unsqueeze(1)
    losses += pooled.flatten().tolist()
    mean = torch.zeros(2, 3).scatter_reduce(0, batch.view(-1, 1).expand(-1, 3), out.detach(), reduce='mean', include_self=False)
    losses += mean.view(-1).tolist()
    adjacency = torch.zeros(n, n)
    adjacency[edges[0], edges[1]] = 1.0
    losses.append(adjacency.sum().item())
    return losses
