"""A siamese network: triplets, hard negatives by cdist, a collate function, samplers."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, WeightedRandomSampler


class Triplets(Dataset):
    def __init__(self):
        draw = np.random.default_rng(13)
        self.data = torch.tensor(draw.normal(size=(30, 6)), dtype=torch.float)
        self.targets = torch.arange(30) % 3

    def __len__(self):
        return 30

    def __getitem__(self, i):
        label = self.targets[i].item()
        positive = next(j for j in range(i + 1, i + 40) if self.targets[j % 30] == label) % 30
        negative = next(j for j in range(i + 1, i + 40) if self.targets[j % 30] != label) % 30
        return {"anchor": self.data[i], "positive": self.data[positive], "negative": self.data[negative], "label": label, "name": f"item {i}"}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.PReLU(), nn.Linear(12, 4))

    def forward(self, x):
        return F.normalize(self.net(x), p=2, dim=-1)


def collate(batch):
    rows = [torch.stack([item[key] for item in batch]) for key in ("anchor", "positive", "negative")]
    return rows, torch.LongTensor([item["label"] for item in batch])


def main():
    data = Triplets()
    model = Embedder()
    settle(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9)
    triplet = nn.TripletMarginLoss(margin=0.5, p=2)
    losses = []
    loader = DataLoader(data, batch_size=6, collate_fn=collate, sampler=SequentialSampler(data), pin_memory=False)
    for (anchor, positive, negative), label in loader:
        a, p, n = model(anchor), model(positive), model(negative)
        loss = triplet(a, p, n)
        # Batch hard.
        distance = torch.cdist(a, a, p=2)
        same = label.unsqueeze(0) == label.unsqueeze(1)
        hardest_positive, _ = (distance * same.float()).max(dim=1)
        hardest_negative = distance.masked_fill(same, float("inf")).min(dim=1)[0]
        loss = loss + F.relu(hardest_positive - hardest_negative + 0.2).mean()
        similarity = F.cosine_similarity(a, n)
        target = torch.where(label > 0, torch.ones_like(similarity), -torch.ones_like(similarity))
        loss += 0.1 * F.cosine_embedding_loss(a, n, target)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses.append(loss.item())
    standard = next(iter(DataLoader(data, batch_size=4)))
    assert standard["anchor"].shape == (4, 6) and standard["label"].tolist() == [0, 1, 2, 0] and standard["name"][1] == "item 1"
    batches = list(DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 7, drop_last=False)))
    assert [len(b["label"]) for b in batches] == [7, 7, 7, 7, 2]
    weighted = WeightedRandomSampler(torch.tensor([0.0] * 15 + [1.0] * 15), num_samples=20, replacement=True)
    assert len(weighted) == 20 and all(i >= 15 for i in weighted)
    order = list(RandomSampler(data, generator=torch.Generator().manual_seed(0)))
    assert sorted(order) == list(range(30)) and order != list(range(30))
    with torch.no_grad():
        e = model(data.data)
        scores = e @ e.t()
        scores.fill_diagonal_(-1)
        value, index = scores.topk(3, dim=1)
        precision = (data.targets[index] == data.targets[:, None]).float().mean()
    losses += [value.sum().item(), precision.item()]
    return losses
