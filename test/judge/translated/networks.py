"""PyTorch's layers and losses in Weft's ops."""

from translated.program import KINDS, TABLE, Value, axis_of, ints, need, op


# ---- Networks ----

def softmax_of(weft):
    def translate(w, x, dim, dtype=None):
        axis_of(x, dim)
        made = x if dtype is None else w("cast", x, dtype=KINDS[dtype])
        need(dtype is not None or x.dtype.is_floating_point, "integers")
        return w(weft, made, axis=dim)
    return translate


for name in ("softmax", "softmax|with_dtype", "log_softmax", "log_softmax|dtype", "nn.functional.softmin", "nn.functional.softmin|with_dtype"):
    TABLE[name] = softmax_of("log_softmax" if "log" in name else "softmin" if "softmin" in name else "softmax")


@op("nn.functional.feature_alpha_dropout|without_train")
def feature_alpha_dropout(w, x, p=0.5, training=False):
    return w("positive", x)


@op("nn.functional.layer_norm")
def layer_norm(w, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    need(len(normalized_shape) == 1, "several normalised axes")
    return w("layer_norm", x, weight, bias, eps=eps)


@op("native_layer_norm")
def native_layer_norm(w, x, normalized_shape, weight, bias, eps):
    need(len(normalized_shape) == 1, "several normalised axes")
    return [w("layer_norm", x, weight, bias, eps=eps), None, None]


@op("nn.functional.group_norm")
def group_norm(w, x, groups, weight=None, bias=None, eps=1e-5):
    return w("group_norm", x, weight, bias, groups=groups, eps=eps)


@op("nn.functional.local_response_norm")
def local_response_norm(w, x, size, alpha=1e-4, beta=0.75, k=1.0):
    return w("local_response_norm", x, size=size, alpha=alpha, beta=beta, k=float(k))


@op("nn.functional.instance_norm")
def instance_norm(w, x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    need(use_input_stats, "running statistics")
    return w("instance_norm", x, weight, bias, eps=eps)


@op("nn.functional.batch_norm", "nn.functional.batch_norm|without_cudnn")
def batch_norm(w, x, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    need(x.rank > 1, "no channels")
    return w("batch_norm", x, weight, bias, *([None, None] if training else [mean, variance]), eps=eps)


def conv(weft, transposed, rank):
    def translate(w, x, weight, bias=None, stride=1, padding=0, *args, **kwargs):
        names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
        given = {**dict(zip(names, args)), **kwargs}
        need(x.rank == rank + 2, "no batch")
        attributes = {"stride": ints(stride), "groups": given.get("groups", 1), "dilation": ints(given.get("dilation", 1))}
        if isinstance(padding, str):
            attributes.update({"same": True} if padding == "same" else {})
        else:
            attributes["padding"] = ints(padding)
        if transposed:
            attributes["output_padding"] = ints(given.get("output_padding", 0))
        return w(weft, x, weight, bias, **attributes)
    return translate


for rank in (1, 2, 3):
    TABLE[f"nn.functional.conv{rank}d"] = conv(f"conv{rank}d", False, rank)
    TABLE[f"nn.functional.conv_transpose{rank}d"] = conv(f"conv_transpose{rank}d", True, rank)


def with_batch(w, x, rank, compute):
    """Weft's pools want [N, C, ...]."""
    if x.rank == rank + 2:
        return compute(x)
    need(x.rank == rank + 1, "another rank")
    made = compute(w("unsqueeze", x, axis=0))
    return w("squeeze", made, axis=0)


def max_pool(rank):
    def translate(w, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        sizes = {"kernel": ints(kernel_size), "stride": ints(kernel_size if stride in (None, []) else stride), "padding": ints(padding), "dilation": ints(dilation),
                 "ceil_mode": ceil_mode}
        made = with_batch(w, x, rank, lambda v: w(f"max_pool{rank}d", v, **sizes))
        return [made, with_batch(w, x, rank, lambda v: w(f"max_pool_positions{rank}d", v, **sizes))] if return_indices else made
    return translate


def avg_pool(rank):
    def translate(w, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        need(divisor_override is None, "a divisor")
        sizes = {"kernel": ints(kernel_size), "stride": ints(kernel_size if stride in (None, (), []) else stride), "padding": ints(padding), "ceil_mode": ceil_mode,
                 "count_include_pad": count_include_pad}
        return with_batch(w, x, rank, lambda v: w(f"avg_pool{rank}d", v, **sizes))
    return translate


def adaptive_pool(weft, rank):
    def translate(w, x, size, return_indices=False):
        size = ints(size) if not isinstance(size, (tuple, list)) else [e if s is None else int(s) for s, e in zip(size, x.shape[-rank:])]
        made = with_batch(w, x, rank, lambda v: w(f"{weft}{rank}d", v, size=size * (rank if len(size) == 1 else 1)))
        return [made, None] if return_indices else made
    return translate


for rank in (1, 2, 3):
    TABLE[f"nn.functional.max_pool{rank}d"] = max_pool(rank)
    TABLE[f"nn.functional.avg_pool{rank}d"] = avg_pool(rank)
    TABLE[f"nn.functional.adaptive_avg_pool{rank}d"] = adaptive_pool("adaptive_avg_pool", rank)
    TABLE[f"nn.functional.adaptive_max_pool{rank}d"] = adaptive_pool("adaptive_max_pool", rank)


def max_unpool(rank):
    def translate(w, x, indices, kernel_size, stride=None, padding=0, output_size=None):
        sizes = {"kernel": ints(kernel_size), "stride": None if stride is None else ints(stride), "padding": ints(padding),
                 "size": None if output_size is None else ints(output_size)[-rank:]}
        if x.rank == rank + 2:
            return w(f"max_unpool{rank}d", x, indices, **sizes)
        return w("squeeze", w(f"max_unpool{rank}d", w("unsqueeze", x, axis=0), w("unsqueeze", indices, axis=0), **sizes), axis=0)
    return translate


for rank in (1, 2, 3):
    TABLE[f"nn.functional.max_unpool{rank}d"] = TABLE[f"nn.functional.max_unpool{rank}d|grad"] = max_unpool(rank)


@op(*[f"nn.functional.interpolate|{m}" for m in ("nearest", "linear", "bilinear", "bicubic", "trilinear")])
def interpolate(w, x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    need(not antialias and scale_factor is None, "a factor, or antialiasing")
    size = ints(size) * (x.rank - 2 if isinstance(size, int) else 1)
    kind = {"nearest": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    return w("interpolate", x, size=size, mode=kind, align_corners=bool(align_corners))


TABLE["nn.functional.upsample_nearest"] = lambda w, x, size=None, scale_factor=None: interpolate(w, x, size, scale_factor, "nearest")
TABLE["nn.functional.upsample_bilinear"] = lambda w, x, size=None, scale_factor=None: interpolate(w, x, size, scale_factor, "bilinear", True)


@op("nn.functional.grid_sample")
def grid_sample(w, x, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    return w("grid_sample", x, grid, mode={"nearest": "nearest", "bicubic": "cubic"}.get(mode, "linear"), padding=padding_mode, align_corners=bool(align_corners))


@op("nn.functional.glu")
def glu(w, x, dim=-1):
    return w("glu", x, axis=dim)


@op("nn.functional.embedding")
def embedding(w, indices, table, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    need(padding_idx is None and max_norm is None and not scale_grad_by_freq, "padding, a norm, or a scale")
    return w("embedding", table, indices)


@op("nn.functional._scaled_dot_product_attention")
def attention(w, q, k, v, attn_mask=None, dropout_p=0.0, need_attn_weights=False, is_causal=False):
    need(dropout_p == 0.0 and not need_attn_weights and q.rank == 4, "dropout, weights, or another rank")
    return [w("scaled_dot_product_attention", q, k, v, attn_mask, causal=is_causal), None]

# ---- Losses ----

def reduction_of(reduction, size_average=None, reduce=None):
    need(size_average is None and reduce is None, "old arguments")
    return reduction


for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    def translate(w, x, y, reduction="mean", name=name, **kwargs):
        need(set(kwargs) <= {"beta", "delta"} and x.shape == y.shape, "old arguments, or shapes that broadcast")
        return w(name, x, y, reduction=reduction, **kwargs)
    TABLE[f"nn.functional.{name}"] = translate


@op("nn.functional.binary_cross_entropy_with_logits")
def bce_logits(w, x, y, weight=None, reduction="mean", pos_weight=None):
    need(weight is None and pos_weight is None, "weights")
    return w("binary_cross_entropy", x, y, reduction=reduction)


@op("nn.functional.cross_entropy")
def cross_entropy(w, x, y, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    need(not y.dtype.is_floating_point, "targets that are probabilities")
    need(x.rank >= 2 or weight is None, "one row")
    logits = x if x.rank <= 2 else w("movedim", x, source=[1], destination=[-1])
    return w("cross_entropy", logits, y, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)


@op("nn.functional.nll_loss")
def nll_loss(w, x, y, weight=None, ignore_index=-100, reduction="mean"):
    need(weight is None and ignore_index < 0, "weights, or a class that is ignored")
    return w("nll_loss", x if x.rank <= 2 else w("movedim", x, source=[1], destination=[-1]), y, reduction=reduction)


@op("nn.functional.kl_div")
def kl_div(w, x, y, reduction="mean", log_target=False):
    return w("kl_div", x, y, reduction="mean" if reduction == "batchmean" else reduction, log_target=log_target, batch_mean=reduction == "batchmean")


@op("nn.functional.poisson_nll_loss")
def poisson_nll(w, x, y, log_input=True, full=False, eps=1e-8, reduction="mean"):
    return w("poisson_nll_loss", x, y, log_input=log_input, full=full, eps=eps, reduction=reduction)


@op("nn.functional.gaussian_nll_loss")
def gaussian_nll(w, x, y, variance, full=False, eps=1e-6, reduction="mean"):
    need(x.shape == y.shape == variance.shape, "variances that broadcast")
    return w("gaussian_nll_loss", x, y, variance, full=full, eps=eps, reduction=reduction)


@op("nn.functional.hinge_embedding_loss")
def hinge(w, x, y, margin=1.0, reduction="mean"):
    need(x.rank > 0, "a target other than 1 and -1")
    return w("hinge_embedding_loss", x, y, margin=float(margin), reduction=reduction)


@op("nn.functional.soft_margin_loss")
def soft_margin(w, x, y, reduction="mean"):
    return w("soft_margin_loss", x, y, reduction=reduction)


@op("nn.functional.multilabel_soft_margin_loss")
def multilabel_soft(w, x, y, weight=None, reduction="mean"):
    need(weight is None, "weights")
    return w("multilabel_soft_margin_loss", x, y, reduction=reduction)


@op("nn.functional.multilabel_margin_loss")
def multilabel_margin(w, x, y, reduction="mean"):
    need(x.rank > 0, "scalars")
    return w("multilabel_margin_loss", x, y, reduction=reduction)


@op("nn.functional.ctc_loss")
def ctc_loss(w, x, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    need(x.rank == 3 and targets.rank == 2 and all(isinstance(v, Value) for v in (input_lengths, target_lengths)), "no batch, or targets in one row")
    # PyTorch's gradient is that of the scores before log_softmax; where probabilities add up to 1, log_softmax changes nothing.
    return w("ctc_loss", w("log_softmax", x, axis=-1), targets, input_lengths, target_lengths, blank=blank, zero_infinity=zero_infinity, reduction=reduction)


@op("frexp")
def frexp(w, x):
    return w.many("frexp", 2, x)


@op("nn.functional.multi_margin_loss")
def multi_margin(w, x, y, p=1, margin=1.0, weight=None, reduction="mean"):
    need(weight is None and x.rank == 2, "weights")
    return w("multi_margin_loss", x, y, p=float(p), margin=float(margin), reduction=reduction)


@op("nn.functional.margin_ranking_loss")
def margin_ranking(w, x, y, target, margin=0.0, reduction="mean"):
    return w("margin_ranking_loss", x, y, target, margin=float(margin), reduction=reduction)


@op("nn.functional.cosine_embedding_loss")
def cosine_embedding(w, x, y, target, margin=0.0, reduction="mean"):
    need(x.rank == 2, "one row")
    return w("cosine_embedding_loss", x, y, target, margin=float(margin), reduction=reduction)


@op("nn.functional.triplet_margin_loss")
def triplet(w, a, p_, n, margin=1.0, p=2, eps=1e-6, swap=False, reduction="mean"):
    need(a.shape == p_.shape == n.shape, "shapes that broadcast")
    return w("triplet_margin_loss", a, p_, n, margin=float(margin), p=float(p), eps=eps, swap=swap, reduction=reduction)


@op("nn.functional.triplet_margin_with_distance_loss")
def triplet_with_distance(w, a, p_, n, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    # The function's steps, which test/nn compares with those of nn::triplet_margin_with_distance.
    near, far = w("pairwise_distance", a, p_), w("pairwise_distance", a, n)
    if swap:
        far = w("minimum", far, w("pairwise_distance", p_, n))
    each = w("relu", w("add", w("sub", near, far), margin))
    return each if reduction == "none" else w(reduction, each)


@op("nn.functional.unfold")
def unfold(w, x, kernel_size, dilation=1, padding=0, stride=1):
    need(x.rank == 4, "an image without a batch")
    return w("im2col", x, kernel=ints(kernel_size), dilation=ints(dilation), padding=ints(padding), stride=ints(stride))


@op("nn.functional.embedding_bag")
def embedding_bag(w, table, indices, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    need(max_norm is None and not scale_grad_by_freq and not include_last_offset and padding_idx is None, "padding, a norm, or a scale")
    need(not isinstance(table, Value) or (table.dtype.is_floating_point and not indices.dtype.is_floating_point), "a table of integers")
    given = [v for v in (offsets, per_sample_weights) if v is not None]
    need(per_sample_weights is None or offsets is not None, "weights without offsets")
    return w("embedding_bag", table, indices, *given, mode=mode)
