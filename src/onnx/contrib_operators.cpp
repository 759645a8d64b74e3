// Fused operators of ONNX Runtime's own domain, com.microsoft. Its optimisers put them in the place of several of ONNX's. The
// meaning of each operator is in ONNX Runtime's docs/ContribOperators.md.
#include <fmt/format.h>

#include <algorithm>

#include "onnx/quantised.hpp"
#include "onnx/spatial.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

Tensor biased(const A& a, std::size_t x, std::size_t bias) { return a.has(bias) ? a[x] + a[bias] : a[x]; }

// ---- Activations ----------------------------------------------------------------------------------------------------------

void bias_gelu(A& a) { a.give(gelu(biased(a, 0, 1))); }
void fast_gelu(A& a) { a.give(gelu_tanh(biased(a, 0, 1))); }
void quick_gelu(A& a) { a.give(a[0] * sigmoid(a[0] * a.number("alpha", 1.702f))); }
// The activation of a fused convolution or product; numbers that it takes are in the order of ONNX.
Tensor activated(const A& a, const Tensor& x, const std::vector<double>& numbers) {
  const std::string_view name = a.word("activation", "");
  const auto number = [&](std::size_t i, double fallback) { return i < numbers.size() ? numbers[i] : fallback; };
  if (name.empty()) return x;
  if (name == "Relu") return relu(x);
  if (name == "Tanh") return tanh(x);
  if (name == "Sigmoid") return sigmoid(x);
  if (name == "LeakyRelu") return leaky_relu(x, number(0, 0.01f));
  if (name == "Clip") return clamp(x, number(0, -kInfinity), number(1, kInfinity));
  if (name == "HardSigmoid") return clamp(x * number(0, 0.2f) + number(1, 0.5), 0, 1);
  if (name == "Elu") return elu(x, number(0, 1));
  if (name == "Softplus") return logaddexp(x, zeros_like(x));
  if (name == "Softsign") return softsign(x);
  if (name == "ThresholdedRelu") return where(gt(x, number(0, 1)), x, zeros_like(x));
  a.usage_error(fmt::format("unknown activation {}", name));
}

// ---- Products -------------------------------------------------------------------------------------------------------------

void fused_product(A& a) {
  // With transBatch the axis before the last is moved to the front: [M, batch..., K].
  const auto turned = [&](std::size_t i, std::string_view whole, std::string_view batch) {
    Tensor x = a[i];
    if (a.flag(batch, false) && x.rank() > 2) {
      Axes order;
      for (int axis = 1; axis + 1 < x.rank(); ++axis) order.push_back(axis);
      order.push_back(0);
      order.push_back(x.rank() - 1);
      x = permute(x, order);
    }
    return a.flag(whole, false) && x.rank() > 1 ? transpose(x) : x;
  };
  const Tensor y = matmul(turned(0, "transA", "transBatchA"), turned(1, "transB", "transBatchB"));
  const double alpha = a.number("alpha", 1);
  a.give(alpha == 1 ? y : y * alpha);
}
void fused_gemm(A& a) {
  std::vector<double> numbers;
  for (const std::string_view name : {"activation_alpha", "activation_beta"})
    if (a.attribute(name)) numbers.push_back(a.number(name, 0));
  a.give(activated(a, general_product(a), numbers));
}
void fused_convolution(A& a) {
  Tensor y = convolved(a, a[0], a[1], a.optional(2));
  if (a.has(3)) y = y + a[3];
  a.give(activated(a, y, a.numbers("activation_params")));
}

// Integers of `bits` bits in bytes, the lowest bits first: [..., n] bytes -> [..., n 8 / bits] numbers in i32.
Tensor unpacked_bits(const A& a, const Tensor& bytes, Extent bits) {
  if (bits == 8) return cast(bytes, DType::i32);
  const Extent each = 8 / bits;
  const Tensor shifts = arange(each, DType::i32, a.device()) * static_cast<double>(bits);
  const Tensor wide = bitwise_right_shift(unsqueeze(cast(bytes, DType::i32), -1), shifts);
  const Tensor mask = full({}, static_cast<double>((1 << bits) - 1), DType::i32, a.device());
  Shape shape = bytes.shape();
  shape[shape.rank() - 1] *= each;
  return reshape(bitwise_and(wide, mask), shape);
}
void check_bits(const A& a, Extent bits) {
  if (bits != 2 && bits != 4 && bits != 8) a.usage_error(fmt::format("{} bits; Weft reads 2, 4 and 8", bits));
}
// x W^T of a weight [N, K] in blocks of a few bits along K.
void block_product(A& a) {
  const Extent rows = a.integer("N"), columns = a.integer("K"), bits = a.integer("bits", 4),
               block = a.integer("block_size");
  check_bits(a, bits);
  if (a.has(4)) a.usage_error("g_idx is not supported; quantise the model without act-order");
  if (a.flag("weight_prepacked", false)) a.usage_error("weights packed for a device are not supported");
  if (rows < 1 || columns < 1 || block < 16 || block > (Extent{1} << 20) || rows > kMaxMadeElements / columns)
    a.usage_error("N, K or block_size is out of range");
  const Extent blocks = (columns + block - 1) / block;
  const DType type = a[0].dtype();
  if (a[1].numel() != rows * blocks * block * bits / 8 || a[2].numel() != rows * blocks)
    a.shape_error(
        fmt::format("the bytes of the weight or its scales do not fit [{}, {}] in blocks of {}", rows, columns, block));
  const Tensor integers = unpacked_bits(a, reshape(a[1], {rows, blocks, block * bits / 8}), bits);
  Tensor zero;
  if (!a.has(3)) {
    zero = full({}, static_cast<double>(1 << (bits - 1)), type, a.device());
  } else if (is_float(a[3].dtype())) {
    zero = reshape(a[3], {rows, blocks, 1});
  } else {
    const Tensor flat = unpacked_bits(a, reshape(a[3], {rows, a[3].numel() / rows}), bits);
    if (flat.dim(1) < blocks) a.shape_error("the zero points do not fit the blocks");
    zero = cast(reshape(narrow(flat, 1, 0, blocks), {rows, blocks, 1}), type);
  }
  const Tensor weight = (cast(integers, type) - zero) * cast(reshape(a[2], {rows, blocks, 1}), type);
  a.give(linear(a[0], narrow(reshape(weight, {rows, blocks * block}), 1, 0, columns), a.optional(5)));
}
// Rows of a table in blocks of a few bits along the last axis.
void block_gather(A& a) {
  const Tensor& data = a[0];
  const Extent bits = a.integer("bits", 4), block = a.integer("block_size", 128);
  const int axis = a.axis(a.integer("gather_axis", 0), data.rank());
  if (a.axis(a.integer("quantize_axis", 1), data.rank()) != data.rank() - 1 || axis != 0 || data.rank() != 2 ||
      block < 16)
    a.usage_error("only rows of a matrix in blocks along its columns are supported");
  check_bits(a, bits);
  // Bytes hold several numbers; of a type of 4 bits each number has a byte already.
  const bool packed = data.dtype() == DType::u8 && !narrow_type(a, 0);
  const auto whole = [&](const Tensor& x) { return packed ? unpacked_bits(a, x, bits) : cast(x, DType::i32); };
  const Tensor rows = whole(embedding(data, a[1])), scales = embedding(a[2], a[1]);
  const Extent columns = rows.dim(-1), blocks = scales.dim(-1);
  if (blocks * block < columns) a.shape_error("the scales do not fit the blocks");
  const auto each = [&](const Tensor& v) { return narrow(repeat_interleave(v, block, -1), -1, 0, columns); };
  const DType type = scales.dtype();
  Tensor x = cast(rows, type);
  if (a.has(3))
    x = x - each(narrow(cast(whole(embedding(a[3], a[1])), type), -1, 0, blocks));
  else if (packed)
    x = x - static_cast<double>(1 << (bits - 1));
  a.give(x * each(scales));
}

// ---- Norms ----------------------------------------------------------------------------------------------------------------

// The norm of input + skip + bias, and that sum; `plain` divides by the root of the mean square alone.
void skip_normal(A& a, std::size_t bias, const Tensor& shift, bool plain) {
  const Tensor x = a.has(bias) ? a[0] + a[1] + a[bias] : a[0] + a[1];
  const double epsilon = a.number("epsilon", 1e-12f);
  a.give(0, plain ? rms_norm(x, a[2], epsilon) : layer_norm(x, a[2], shift, epsilon));
  if (a.wants(1)) a.give(1, mean(x, -1, {.keepdims = true}));
  if (a.wants(2))
    a.give(2, rsqrt((plain ? mean(square(x), -1, {.keepdims = true}) : var(x, -1, {.keepdims = true}, 0)) + epsilon));
  a.give(3, x);
}
void skip_layer_normal(A& a) { skip_normal(a, 4, a.optional(3), false); }
void skip_rms_normal(A& a) { skip_normal(a, 3, {}, true); }

void embed_layer_normal(A& a) {
  const Extent n = a[0].dim(0), steps = a[0].dim(1);
  const Tensor places = a.has(8) ? a[8] : reshape(arange(steps, DType::i32, a.device()), {1, steps});
  Tensor x = embedding(a[2], a[0]) + embedding(a[3], places);
  if (a.has(1) && a.has(4)) x = x + embedding(a[4], a[1]);
  a.give(0, layer_norm(x, a[5], a[6], a.number("epsilon", 1e-12f)));
  if (a.wants(1))
    a.give(1,
           a.has(7) ? cast(sum(cast(ne(a[7], 0.0), DType::i32), 1), DType::i32) : full({n}, 0, DType::i32, a.device()));
  a.give(2, x);
}
constexpr Operator kContribOperators[] = {
    {"BiasGelu", bias_gelu},
    {"FastGelu", fast_gelu},
    {"QuickGelu", quick_gelu},
    {"FusedMatMul", fused_product},
    {"TransposeMatMul", fused_product},
    {"FusedGemm", fused_gemm},
    {"FusedConv", fused_convolution},
    {"MatMulNBits", block_product},
    {"GatherBlockQuantized", block_gather},
    {"SkipLayerNormalization", skip_layer_normal},
    {"SkipSimplifiedLayerNormalization", skip_rms_normal},
    {"EmbedLayerNormalization", embed_layer_normal},
};

}  // namespace

std::span<const Operator> contrib_operators() { return kContribOperators; }

}  // namespace weft::onnx
