"""Digits: a convolutional network, batches of a Dataset with augmentations, a scheduler, accuracy on a validation set."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split


class Digits(Dataset):
    def __init__(self, count, transform=None):
        draw = np.random.default_rng(3)
        self.images = draw.random((count, 12, 12), dtype="float32")
        self.labels = draw.integers(0, 4, count)
        for image, label in zip(self.images, self.labels):
            image[label * 3:label * 3 + 3] += 1
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).unsqueeze(0)
        if self.transform:
            image = self.transform(image)
        return image, int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(8 * 2 * 2, 16)
        self.fc2 = nn.Linear(in_features=16, out_features=4)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, loader, optimizer, epoch, losses):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch_idx % 4 == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(loader.dataset), 100. * batch_idx / len(loader), loss.item()))


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction='sum').item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    return test_loss / len(loader.dataset), correct / len(loader.dataset)


def main():
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    normalize = lambda image: (image - 0.7) / 0.5
    flip = lambda image: torch.flip(normalize(image), dims=[2])
    whole = Digits(48, flip)
    train_set, test_set = Subset(whole, range(32)), Subset(whole, list(range(32, 48)))
    parts = random_split(whole, [40, 8], generator=torch.Generator().manual_seed(4))
    assert len(parts[0]) == 40 and sorted(parts[0].indices + parts[1].indices) == list(range(48))
    train_loader = DataLoader(train_set, batch_size=8, shuffle=False, num_workers=2, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=10)
    assert len(train_loader) == 4 and len(test_loader) == 2
    model = Net().to(device)
    settle(model)
    print(model)
    print(sum(p.numel() for p in model.parameters() if p.requires_grad), "parameters")
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for epoch in range(1, 4):
        train(model, device, train_loader, optimizer, epoch, losses)
        losses += test(model, device, test_loader)
        scheduler.step()
        losses.append(optimizer.param_groups[0]['lr'])
    shuffled = DataLoader(TensorDataset(torch.arange(10), torch.arange(10) * 2), batch_size=3, shuffle=True)
    seen = torch.cat([a for a, b in shuffled if (a * 2 == b).all()])
    assert sorted(seen.tolist()) == list(range(10))
    return losses
