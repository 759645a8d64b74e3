"""Deep Q-learning: replay memory, a target network that follows, Huber loss, gradients clipped by value."""
import math
import random
from collections import deque, namedtuple
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 16)
        self.layer2 = nn.Linear(16, 16)
        self.layer3 = nn.Linear(16, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


def main():
    random.seed(3)
    draw = np.random.default_rng(3)
    device = torch.device("cpu")
    policy_net = DQN(4, 2).to(device)
    settle(policy_net)
    target_net = DQN(4, 2).to(device)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True, weight_decay=0)
    memory = ReplayMemory(1000)
    GAMMA, TAU, BATCH_SIZE = 0.99, 0.05, 8

    def select_action(state, eps):
        if random.random() > eps:
            with torch.no_grad():
                return policy_net(state).max(1)[1].view(1, 1)
        return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)

    losses = []
    state = torch.tensor(draw.normal(size=4), dtype=torch.float32, device=device).unsqueeze(0)
    for t in count():
        action = select_action(state, math.exp(-t / 10))
        reward = torch.tensor([float(action.item()) - 0.3], device=device)
        terminated = t % 7 == 6
        next_state = None if terminated else torch.tensor(draw.normal(size=4), dtype=torch.float32).unsqueeze(0)
        memory.push(state, action, next_state, reward)
        state = next_state if next_state is not None else torch.ones(1, 4)
        if t == 24:
            break
        if len(memory) < BATCH_SIZE:
            continue
        batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
        non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool)
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
        state_action_values = policy_net(state_batch).gather(1, action_batch)
        next_state_values = torch.zeros(BATCH_SIZE, device=device)
        with torch.no_grad():
            next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
        expected = (next_state_values * GAMMA) + reward_batch
        loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
        for key in policy_state:
            target_state[key] = policy_state[key] * TAU + target_state[key] * (1 - TAU)
        target_net.load_state_dict(target_state)
        losses.append(loss.item())
    with torch.no_grad():
        for p, q in zip(policy_net.parameters(), target_net.parameters()):
            q.data.mul_(0.9)
            q.data.add_(0.1 * p.data)
            q.data.copy_(0.5 * p.data + 0.5 * q.data)
            losses.append(q.sum().item())
    return losses
