"""A variational autoencoder, as the textbook has it."""
import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(36, 20)
        self.fc21 = nn.Linear(20, 4)
        self.fc22 = nn.Linear(20, 4)
        self.fc3 = nn.Linear(4, 20)
        self.fc4 = nn.Linear(20, 36)
        self.noise = np.random.default_rng(5)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        assert torch.randn_like(std).shape == std.shape
        eps = torch.from_numpy(self.noise.normal(size=tuple(std.shape)).astype(np.float32)).to(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 36), reduction='sum')
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def main():
    model = VAE()
    settle(model, 0.2)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    images = torch.from_numpy(np.random.default_rng(1).random((16, 1, 6, 6), dtype="float32"))
    losses = []
    train_loss = 0
    for data in images.chunk(4):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        losses.append(loss.item() / len(data))
    with torch.no_grad():
        sample = model.decode(torch.linspace(-1, 1, 8).reshape(2, 4)).cpu()
        grid = sample.view(2, 1, 6, 6).mul(255).add(0.5).clamp(0, 255).permute(0, 2, 3, 1).to('cpu', torch.uint8).numpy()
        losses += grid.reshape(-1)[:5].tolist()
    q = torch.distributions.Normal(torch.zeros(3), torch.ones(3) * 2)
    p = torch.distributions.Normal(torch.ones(3), torch.ones(3))
    losses.append(torch.distributions.kl_divergence(q, p).sum().item())
    losses.append(q.log_prob(torch.tensor([0.5, 1.0, -2.0])).sum().item())
    return losses
