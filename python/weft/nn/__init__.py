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
from ._activations import (
    CELU as CELU,
    ELU as ELU,
    GELU as GELU,
    GLU as GLU,
    Hardshrink as Hardshrink,
    Hardsigmoid as Hardsigmoid,
    Hardswish as Hardswish,
    Hardtanh as Hardtanh,
    LeakyReLU as LeakyReLU,
    LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax,
    Mish as Mish,
    PReLU as PReLU,
    RReLU as RReLU,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    SELU as SELU,
    SiLU as SiLU,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Softmax2d as Softmax2d,
    Softmin as Softmin,
    Softplus as Softplus,
    Softshrink as Softshrink,
    Softsign as Softsign,
    Tanh as Tanh,
    Tanhshrink as Tanhshrink,
    Threshold as Threshold,
)
from ._attention import (
    MultiheadAttention as MultiheadAttention,
    Transformer as Transformer,
    TransformerDecoder as TransformerDecoder,
    TransformerDecoderLayer as TransformerDecoderLayer,
    TransformerEncoder as TransformerEncoder,
    TransformerEncoderLayer as TransformerEncoderLayer,
)
from ._losses import (
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    CTCLoss as CTCLoss,
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    CrossEntropyLoss as CrossEntropyLoss,
    GaussianNLLLoss as GaussianNLLLoss,
    HingeEmbeddingLoss as HingeEmbeddingLoss,
    HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss,
    L1Loss as L1Loss,
    MSELoss as MSELoss,
    MarginRankingLoss as MarginRankingLoss,
    MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss,
    MultiMarginLoss as MultiMarginLoss,
    NLLLoss as NLLLoss,
    PoissonNLLLoss as PoissonNLLLoss,
    SmoothL1Loss as SmoothL1Loss,
    SoftMarginLoss as SoftMarginLoss,
    TripletMarginLoss as TripletMarginLoss,
    TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss,
)
from ._shapes import (
    ChannelShuffle as ChannelShuffle,
    CircularPad1d as CircularPad1d,
    CircularPad2d as CircularPad2d,
    CircularPad3d as CircularPad3d,
    ConstantPad1d as ConstantPad1d,
    ConstantPad2d as ConstantPad2d,
    ConstantPad3d as ConstantPad3d,
    CosineSimilarity as CosineSimilarity,
    EmbeddingBag as EmbeddingBag,
    Fold as Fold,
    FractionalMaxPool2d as FractionalMaxPool2d,
    FractionalMaxPool3d as FractionalMaxPool3d,
    LPPool1d as LPPool1d,
    LPPool2d as LPPool2d,
    LocalResponseNorm as LocalResponseNorm,
    MaxUnpool1d as MaxUnpool1d,
    MaxUnpool2d as MaxUnpool2d,
    MaxUnpool3d as MaxUnpool3d,
    PairwiseDistance as PairwiseDistance,
    ParameterDict as ParameterDict,
    ParameterList as ParameterList,
    PixelShuffle as PixelShuffle,
    PixelUnshuffle as PixelUnshuffle,
    ReflectionPad1d as ReflectionPad1d,
    ReflectionPad2d as ReflectionPad2d,
    ReflectionPad3d as ReflectionPad3d,
    ReplicationPad1d as ReplicationPad1d,
    ReplicationPad2d as ReplicationPad2d,
    ReplicationPad3d as ReplicationPad3d,
    Unflatten as Unflatten,
    Unfold as Unfold,
    ZeroPad1d as ZeroPad1d,
    ZeroPad2d as ZeroPad2d,
    ZeroPad3d as ZeroPad3d,
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
    UpsamplingBilinear2d as UpsamplingBilinear2d,
    UpsamplingNearest2d as UpsamplingNearest2d,
)
from ._layers import (
    AlphaDropout as AlphaDropout,
    Bilinear as Bilinear,
    Dropout as Dropout,
    Embedding as Embedding,
    FeatureAlphaDropout as FeatureAlphaDropout,
    Flatten as Flatten,
    Identity as Identity,
    LayerNorm as LayerNorm,
    Linear as Linear,
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    RMSNorm as RMSNorm,
    Sequential as Sequential,
)
from ._module import Init as Init, Module as Module, ModuleHookHandle as ModuleHookHandle, Parameter as Parameter
from ._recurrent import (
    GRU as GRU,
    LSTM as LSTM,
    RNN as RNN,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    RNNCell as RNNCell,
)
from . import functional as functional, init as init, utils as utils  # after what they use

# PyTorch's names of layers that take images of any rank, and the short names of losses.
MaxPool1d = MaxPool2d = MaxPool3d = MaxPool
AvgPool1d = AvgPool2d = AvgPool3d = AvgPool
AdaptiveMaxPool1d = AdaptiveMaxPool2d = AdaptiveMaxPool3d = AdaptiveMaxPool
AdaptiveAvgPool1d = AdaptiveAvgPool2d = AdaptiveAvgPool3d = AdaptiveAvgPool
BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
InstanceNorm1d = InstanceNorm2d = InstanceNorm3d = InstanceNorm
Dropout1d = Dropout2d = Dropout3d = ChannelDropout
mse, l1, huber, smooth_l1, nll, ctc = mse_loss, l1_loss, huber_loss, smooth_l1_loss, nll_loss, ctc_loss
poisson_nll, gaussian_nll, hinge_embedding = poisson_nll_loss, gaussian_nll_loss, hinge_embedding_loss
margin_ranking, soft_margin, multi_margin = margin_ranking_loss, soft_margin_loss, multi_margin_loss
multilabel_margin, multilabel_soft_margin = multilabel_margin_loss, multilabel_soft_margin_loss
cosine_embedding, triplet_margin = cosine_embedding_loss, triplet_margin_loss
