"""A language model of characters: embedding, LSTM over packed sequences, tied weights, truncated back-propagation, sampling."""
import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.0, tie_weights=False):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError('When using the tied flag, nhid must be equal to emsize')
            self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.nhid, self.nlayers, self.ntoken = nhid, nlayers, ntoken

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight.data.uniform_(-initrange, initrange)

    def forward(self, tokens, lengths, hidden):
        emb = self.drop(self.encoder(tokens))
        packed = pack_padded_sequence(emb, lengths, batch_first=True, enforce_sorted=False)
        output, hidden = self.rnn(packed, hidden)
        output, lengths = pad_packed_sequence(output, batch_first=True)
        decoded = self.decoder(self.drop(output))
        return decoded, hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def main():
    text = ["hello there", "a stitch in time", "weft", "warp and weft"]
    chars = sorted(set("".join(text)))
    stoi = {c: i + 1 for i, c in enumerate(chars)}
    sequences = [torch.tensor([stoi[c] for c in line], dtype=torch.long) for line in text]
    lengths = torch.tensor([len(s) - 1 for s in sequences])
    padded = pad_sequence(sequences, batch_first=True, padding_value=0)
    inputs, targets = padded[:, :-1], padded[:, 1:]
    model = RNNModel(len(chars) + 1, 12, 12, 2, tie_weights=True)
    settle(model)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    hidden = model.init_hidden(len(text))
    losses = []
    for step in range(6):
        hidden = repackage_hidden(hidden)
        model.zero_grad()
        output, hidden = model(inputs, lengths, hidden)
        loss = criterion(output.reshape(-1, model.ntoken), targets[:, :output.size(1)].reshape(-1))
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses += [loss.item(), float(norm)]
    model.eval()
    with torch.no_grad():
        hidden = model.init_hidden(1)
        token = torch.tensor([[stoi["w"]]])
        for _ in range(5):
            output, hidden = model(token, torch.tensor([1]), hidden)
            logits = output[0, -1] / 0.8
            probabilities = torch.softmax(logits, dim=-1)
            token = torch.topk(probabilities, 1).indices.view(1, 1)
            losses.append(probabilities.max().item())
            torch.multinomial(probabilities, num_samples=1)
    losses.append(torch.exp(torch.tensor(losses[0])).item())
    return losses
