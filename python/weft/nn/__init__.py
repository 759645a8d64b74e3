"""Modules: trees of named parameters. Names, shapes and initial values are those of the C++ modules, so that files of weights
fit both. Subclass Module, and give its parameters and children as attributes."""

from .._ops import (
    binary_cross_entropy as binary_cross_entropy,
    cosine_embedding_loss as cosine_embedding_loss,
    cross_entropy as cross_entropy,
    ctc_loss as ctc_loss,
    gaussian_nll_loss as gaussian_nll_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    huber_loss as huber_loss,
    kl_div as kl_div,
    l1_loss as l1_loss,
    margin_ranking_loss as margin_ranking_loss,
    mse_loss as mse_loss,
    multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss,
    nll_loss as nll_loss,
    poisson_nll_loss as poisson_nll_loss,
    smooth_l1_loss as smooth_l1_loss,
    soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
)
from ._choices import (
    KMeans as KMeans,
    Mixture as Mixture,
    MixtureResult as MixtureResult,
    Routing as Routing,
    balance_loss as balance_loss,
    gumbel_softmax as gumbel_softmax,
    route as route,
)
from ._gpt import GPT as GPT, MLP as MLP, Block as Block, CausalSelfAttention as CausalSelfAttention, GPTConfig as GPTConfig
from ._images import (
    AdaptiveAvgPool as AdaptiveAvgPool,
    AdaptiveMaxPool as AdaptiveMaxPool,
    AvgPool as AvgPool,
    BatchNorm as BatchNorm,
    ChannelDropout as ChannelDropout,
    Conv1d as Conv1d,
    Conv2d as Conv2d,
    Conv3d as Conv3d,
    ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d,
    ConvTranspose3d as ConvTranspose3d,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    MaxPool as MaxPool,
    Upsample as Upsample,
)
from ._layers import (
    GELU as GELU,
    AlphaDropout as AlphaDropout,
    Bilinear as Bilinear,
    Dropout as Dropout,
    Embedding as Embedding,
    FeatureAlphaDropout as FeatureAlphaDropout,
    Flatten as Flatten,
    Identity as Identity,
    LayerNorm as LayerNorm,
    Linear as Linear,
    LogSoftmax as LogSoftmax,
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    PReLU as PReLU,
    ReLU as ReLU,
    RMSNorm as RMSNorm,
    Sequential as Sequential,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Tanh as Tanh,
)
from ._module import Init as Init, Module as Module, ModuleHookHandle as ModuleHookHandle, Parameter as Parameter
from ._recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN

# PyTorch's names of layers that take images of any rank, and the short names of losses.
MaxPool1d = MaxPool2d = MaxPool3d = MaxPool
AvgPool1d = AvgPool2d = AvgPool3d = AvgPool
BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
Dropout1d = Dropout2d = Dropout3d = ChannelDropout
mse, l1, huber, smooth_l1, nll, ctc = mse_loss, l1_loss, huber_loss, smooth_l1_loss, nll_loss, ctc_loss
poisson_nll, gaussian_nll, hinge_embedding = poisson_nll_loss, gaussian_nll_loss, hinge_embedding_loss
margin_ranking, soft_margin, multi_margin = margin_ranking_loss, soft_margin_loss, multi_margin_loss
multilabel_margin, multilabel_soft_margin = multilabel_margin_loss, multilabel_soft_margin_loss
cosine_embedding, triplet_margin = cosine_embedding_loss, triplet_margin_loss
