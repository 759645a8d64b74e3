"""A residual network with batch norm, in training and evaluation; features by hooks; a head that is exchanged and trained alone."""
from collections import OrderedDict
from functools import partial

import numpy as np
import torch
import torch.nn as nn


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=5):
        super().__init__()
        self.inplanes = 4
        self.stem = nn.Sequential(OrderedDict([('conv1', nn.Conv2d(3, 4, 3, padding=1, bias=False)), ('bn1', nn.BatchNorm2d(4, momentum=0.2)),
                                               ('relu', nn.ReLU())]))
        self.layer1 = self._make_layer(block, 4, layers[0])
        self.layer2 = self._make_layer(block, 8, layers[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(nn.Conv2d(self.inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        x = self.layer2(self.layer1(x))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def main():
    model = ResNet(BasicBlock, [2, 2])
    settle(model, 0.3)
    draw = np.random.default_rng(7)
    x = torch.tensor(draw.normal(size=(6, 3, 8, 8)), dtype=torch.float32)
    y = torch.tensor(draw.integers(0, 5, 6))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    losses = []
    for _ in range(4):
        model.train()
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses += [loss.item(), scheduler.get_last_lr()[0]]
        model.eval()
        with torch.inference_mode():
            losses.append(criterion(model(x), y).item())
    losses.append(model.stem.bn1.running_mean.sum().item())
    losses.append(model.stem.bn1.running_var.sum().item())
    # Features.
    features = {}

    def get_features(name):
        def hook(module, inputs, output):
            features[name] = (inputs[0].shape, output.detach())
        return hook
    handles = [model.layer1.register_forward_hook(get_features('layer1')), model.avgpool.register_forward_hook(get_features('pool'))]
    model(x)
    for handle in handles:
        handle.remove()
    assert tuple(features['layer1'][0]) == (6, 4, 8, 8)
    losses.append(features['pool'][1].squeeze().sum().item())
    backbone = nn.Sequential(*list(model.children())[:-1])
    losses.append(backbone(x).flatten(1).sum().item())
    # A new head.
    for param in model.parameters():
        param.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, 2)
    settle(model.fc)
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)
    for _ in range(2):
        loss = criterion(model(x), y % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert model.layer1[0].conv1.weight.grad is None or not model.layer1[0].conv1.weight.requires_grad
    print([n for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)])
    assert len(list(model.named_children())) == 5 and isinstance(model.stem[0], nn.Conv2d) and model.stem.conv1 is model.stem[0]
    losses.append(float(sum(p.numel() for p in model.parameters())))
    return losses
