"""Training that is interrupted and goes on from a checkpoint."""
import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, extra=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 1)
        if extra:
            self.extra = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def save_checkpoint(state, is_best, filename):
    torch.save(state, filename)
    if is_best:
        torch.save(state['state_dict'], filename + ".best")


def main():
    draw = np.random.default_rng(11)
    x = torch.from_numpy(draw.normal(size=(16, 4))).float()
    y = x.sum(dim=1)
    criterion = nn.MSELoss()

    def steps(model, optimizer, scheduler, n):
        found = []
        for _ in range(n):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            found.append(loss.item())
        return found

    def fresh():
        model = Net()
        settle(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    model, optimizer, scheduler = fresh()
    whole = steps(model, optimizer, scheduler, 8)
    model, optimizer, scheduler = fresh()
    losses = steps(model, optimizer, scheduler, 4)
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "checkpoint.pth.tar")
    best = copy.deepcopy(model.state_dict())
    save_checkpoint({'epoch': 4, 'arch': 'net', 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict(),
                     'scheduler': scheduler.state_dict(), 'best_loss': min(losses)}, True, path)
    model, optimizer, scheduler = fresh()
    checkpoint = torch.load(path, map_location=torch.device('cpu'))
    model.load_state_dict(checkpoint['state_dict'])
    optimizer.load_state_dict(checkpoint['optimizer'])
    scheduler.load_state_dict(checkpoint['scheduler'])
    assert checkpoint['epoch'] == 4 and checkpoint['arch'] == 'net'
    losses += steps(model, optimizer, scheduler, 4)
    assert np.allclose(losses, whole, rtol=1e-5), (losses, whole)
    model.load_state_dict(best)
    losses.append(criterion(model(x), y).item())
    larger = Net(extra=True)
    state = torch.load(path + ".best", map_location="cpu")
    result = larger.load_state_dict(state, strict=False)
    assert sorted(result.missing_keys) == ['extra.bias', 'extra.weight'] and result.unexpected_keys == []
    missing, unexpected = larger.load_state_dict({k: v for k, v in state.items() if not k.startswith('head')}, strict=False)
    assert 'head.weight' in missing
    state = {k.replace('module.', ''): v for k, v in state.items()}
    try:
        larger.load_state_dict(state)
    except RuntimeError as error:
        assert 'extra.weight' in str(error)
    else:
        raise AssertionError
    own = larger.state_dict()
    pretrained = {k: v for k, v in state.items() if k in own and v.size() == own[k].size()}
    own.update(pretrained)
    larger.load_state_dict(own)
    torch.save(model, os.path.join(folder, "model.pt"))
    again = torch.load(os.path.join(folder, "model.pt"), weights_only=False) if 'weights_only' in torch.load.__code__.co_varnames else torch.load(os.path.join(folder, "model.pt"))
    losses.append(criterion(again(x), y).item())
    torch.save([torch.arange(3), {"a": torch.ones(2)}], os.path.join(folder, "list.pt"))
    items = torch.load(os.path.join(folder, "list.pt"))
    losses += items[0].tolist() + items[1]["a"].tolist()
    twin = copy.deepcopy(model)
    for ema, p in zip(twin.parameters(), model.parameters()):
        ema.data.mul_(0.99).add_(p.data, alpha=0.01)
    torch.testing.assert_close(twin.head.weight, model.head.weight)
    losses.append(twin.head.bias.item())
    return losses
