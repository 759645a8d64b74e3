"""What PyTorch has in torch.utils: data sets and loaders, and checkpoint()."""

from . import checkpoint as checkpoint
from . import data as data
