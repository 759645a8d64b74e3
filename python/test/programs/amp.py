"""Mixed precision with a GradScaler, sums of gradients over several batches, clipping, a warm-up."""
import numpy as np
import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR


def main():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    settle(model)
    use_amp = False
    scaler = GradScaler(enabled=use_amp)
    scaler2 = GradScaler(init_scale=2.0 ** 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6, weight_decay=0)
    scheduler = LambdaLR(optimizer, lr_lambda=lambda step: min(1.0, (step + 1) / 4))
    criterion = nn.CrossEntropyLoss()
    draw = np.random.default_rng(9)
    accumulation_steps = 4
    losses, running = [], 0.0
    optimizer.zero_grad(set_to_none=True)
    for i in range(16):
        inputs = torch.as_tensor(draw.normal(size=(5, 8)), dtype=torch.float32)
        targets = torch.as_tensor(draw.integers(0, 3, 5))
        with torch.autocast(device_type='cpu', dtype=torch.bfloat16, enabled=use_amp):
            outputs = model(inputs)
            loss = criterion(outputs, targets) / accumulation_steps
        scaler.scale(loss).backward()
        running += loss.item()
        if (i + 1) % accumulation_steps == 0:
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            losses += [running, norm.item(), optimizer.param_groups[0]["lr"], scaler.get_scale()]
            running = 0.0
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = model[0](inputs)
    assert out.float().dtype == torch.float32 and out.dtype in (torch.float32, torch.bfloat16)
    two = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    cycle = OneCycleLR(two, max_lr=0.5, total_steps=6)
    for _ in range(5):
        two.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        two.step()
        cycle.step()
        losses += [loss.item(), two.param_groups[0]["lr"], two.param_groups[0]["momentum"]]
    for group in two.param_groups:
        group["lr"] *= 0.5
        group["momentum"] = 0.1
    two.zero_grad()
    criterion(model(inputs), targets).backward()
    two.step()
    losses.append(criterion(model(inputs), targets).item())
    return losses
