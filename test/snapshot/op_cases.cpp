#include <vector>

#include "runtime/packed_matrix.hpp"
#include "snapshot/cases.hpp"
#include "snapshot/inputs.hpp"

namespace weft::snapshot {
namespace {

void views() {
  const Tensor x = leaf({4, 6, 10});
  const std::vector<std::pair<const char*, Tensor>> ys = {
      {"reshape", reshape(x, {24, 10})},
      {"permute", permute(x, {2, 0, 1})},
      {"transpose", transpose(x)},
      {"expand", expand(unsqueeze(x, 1), {4, 3, 6, 10})},
      {"slice", slice(x, 2, 1, 9, 3)},
      {"slice back", slice(x, 1, -1, -100, -2)},
      {"narrow", narrow(x, 1, 2, 3)},
      {"select", select(x, 0, -1)},
      {"flip", flip(x, {0, 2})},
      {"pad", pad(x, {{0, 1}, {2, 0}, {3, 3}})},
      {"squeeze", squeeze(narrow(x, 0, 1, 1), 0)},
      {"flatten", flatten(x)},
      {"tril", tril(x, 1)},
      {"triu", triu(x, -1)},
      {"unfold", unfold(x, 2, 3)},
      {"unfold with steps", unfold(x, 1, 2, 3, 2)},
      {"flip of pad", flip(pad(x, {{0, 0}, {1, 1}, {0, 2}}), {2})},
  };
  for (const auto& [name, y] : ys) with_gradients({y * 2.0}, {x});
}

void joins() {
  const Tensor x = leaf({4, 6}), y = leaf({3, 6}), z = leaf({4, 6});
  const Tensor rows[] = {x, tanh(y)}, columns[] = {x, z, x};
  with_gradients({concat(rows, 0)}, {x, y});
  with_gradients({concat(columns, 1)}, {x, z});
  with_gradients({stack(columns, 1)}, {x, z});
  const Extent lengths[] = {1, 3, 2};
  const std::vector<Tensor> parts = split(x, lengths, 1);
  with_gradients({parts[0] * sum(parts[1], {1}, {.keepdims = true}), parts[2]}, {x});
}

void matmuls() {
  const auto product = [](const Shape& a, const Shape& b) {
    const Tensor x = leaf(a), y = leaf(b);
    with_gradients({matmul(x, y)}, {x, y});
  };
  product({5}, {5});
  product({7, 5}, {5});
  product({64, 64}, {64, 64});
  product({1, 512}, {512, 300});
  product({3, 700}, {700, 5});
  product({2, 3, 33, 17}, {1, 3, 17, 65});
  product({257, 1030}, {1030, 129});
  const Tensor x = leaf({40, 30}), w = leaf({20, 30}), b = leaf({20});
  with_gradients({relu(linear(x, w, b)) + 1.0}, {x, w, b});
  const Tensor image = leaf({2, 3, 10, 12}), kernels = leaf({27, 8});
  const Tensor windows = unfold(unfold(pad(image, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}), 2, 3), 3, 3);
  with_gradients({matmul(reshape(permute(windows, {0, 2, 3, 1, 4, 5}), {240, 27}), kernels)}, {image, kernels});
  with_gradients({matmul(transpose(flip(x, {0})), expand(leaf({40, 1}), {40, 8}))}, {x});
}

void casts() {
  const DType types[] = {DType::f32, DType::i32, DType::u32, DType::boolean};
  for (const DType from : types)
    for (const DType to : types)
      if (from != to) cast(leaf({3, 50}, from), to).eval();
}

void doubles() {
  const Tensor x = leaf({20, 30}, DType::f64), w = leaf({30, 10}, DType::f64);
  with_gradients({softmax(matmul(x, w))}, {x, w});
}

void makings() {
  eval(std::vector<Tensor>{full({3, 4}, 2.5), zeros({5}, DType::i32), ones({2}, DType::boolean), arange(10)});
  (cast(arange(100), DType::f32) * 0.5 + leaf({3, 100})).eval();
}

void gathers() {
  const Tensor table = leaf({50, 12}), x = leaf({6, 9, 5});
  with_gradients({embedding(table, indices({4, 7}))}, {table});
  for (const int axis : {0, 1, 2}) {
    Shape shape = x.shape();
    shape[axis] = 3;
    with_gradients({take_along_axis(x, indices(shape), axis)}, {x});
  }
  const Tensor updates = leaf({30, 8});
  with_gradients({scatter_add(indices({30}), updates, 11)}, {updates});
  one_hot(indices({7}), 10).eval();
  embedding(narrow(table, 0, 3, 20), indices({5})).eval();
}

void softmaxes() {
  for (const Shape& shape : {Shape{8, 40}, Shape{3, 5000}, Shape{200, 7}}) {
    const Tensor x = leaf(shape);
    with_gradients({softmax(x)}, {x});
    with_gradients({softmax(x, 0)}, {x});
    with_gradients({log_softmax(x)}, {x});
  }
}

void norms() {
  for (const Shape& shape : {Shape{8, 40}, Shape{2, 6, 1024}}) {
    const Tensor x = leaf(shape), w = leaf({x.dim(-1)}), b = leaf({x.dim(-1)});
    with_gradients({layer_norm(x, w, b)}, {x, w, b});
    with_gradients({rms_norm(x, w)}, {x, w});
  }
}

void losses() {
  const Tensor logits = leaf({12, 65}), wanted = leaf({12, 65});
  with_gradients({cross_entropy(logits, indices({12}))}, {logits});
  with_gradients({mse_loss(logits, wanted)}, {logits});
  for (const nn::Reduction reduction : {nn::Reduction::mean, nn::Reduction::none}) {
    with_gradients({nn::l1(logits, wanted, reduction)}, {logits});
    with_gradients({nn::huber(logits, wanted, 0.5, reduction)}, {logits});
    with_gradients({nn::binary_cross_entropy(logits, wanted, reduction)}, {logits});
    with_gradients({nn::nll(logits, indices({12}), reduction)}, {logits});
  }
}

void ropes() {
  const Tensor x = leaf({2, 3, 10, 8});
  with_gradients({rope(x)}, {x});
  with_gradients({rope(x, 500, 3)}, {x});
  const Tensor gate = leaf({6, 20}), up = leaf({6, 20});
  with_gradients({swiglu(gate, up)}, {gate, up});
}

void attention_of(const Shape& query, const Shape& key, bool causal, Extent window) {
  const Tensor q = leaf(query), k = leaf(key), v = leaf(key);
  with_gradients({attention(q, k, v, causal, 0, window)}, {q, k, v});
}
void attentions() {
  attention_of({2, 4, 33, 16}, {2, 4, 33, 16}, true, 0);
  attention_of({2, 4, 33, 16}, {2, 2, 40, 16}, false, 0);
  attention_of({1, 2, 300, 64}, {1, 2, 300, 64}, true, 0);
  attention_of({1, 2, 64, 32}, {1, 2, 64, 32}, true, 10);
  attention_of({1, 1, 9, 200}, {1, 1, 9, 200}, true, 0);
}

/// Operands of narrow types, which products and attention read through their casts.
void narrow_operands() {
  const auto wide = [](const Tensor& x) { return cast(x, DType::f32); };
  for (const Element& row : kElements) {
    if (row.compute != DType::f32 || row.type == DType::f32 || is_block(row.type)) continue;
    const Tensor a = leaf({40, 70}, row.type), b = leaf({70, 30}, row.type), x = leaf({40, 70});
    matmul(wide(a), wide(b)).eval();
    matmul(x, wide(b)).eval();
    matmul(wide(transpose(b)), transpose(wide(a))).eval();
    matmul(wide(slice(a, 1, 3, 60)), wide(slice(b, 0, 0, 57))).eval();
  }
  for (const DType type : {DType::f16, DType::bf16}) {
    const Tensor x = leaf({24, 64}, type), w = leaf({64, 32}, type), v = leaf({1, 64}, type);
    with_gradients({matmul(x, w)}, {x, w});
    matmul(v, w).eval();
    const Tensor image = leaf({2, 3, 10, 12}, type), kernels = leaf({27, 8}, type);
    const Tensor windows = unfold(unfold(pad(wide(image), {{0, 0}, {0, 0}, {1, 1}, {1, 1}}), 2, 3), 3, 3);
    matmul(reshape(permute(windows, {0, 2, 3, 1, 4, 5}), {240, 27}), wide(kernels)).eval();
    const Shape heads{2, 2, 40, 16};
    const Tensor q = leaf(heads, type), k = leaf(heads, type), values = leaf(heads, type);
    with_gradients({attention(q, k, values)}, {q, k, values});
  }
}

void caches() {
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    const Extent rows = 64, heads = 2, width = 64;
    Variable keys(empty_cache(rows, heads * width, type), "keys", false);
    Variable values(empty_cache(rows, heads * width, type), "values", false);
    for (const Extent tokens : {1, 4, 40}) {
      keys.assign(write_rows(keys, leaf({tokens, heads * width}), indices({tokens}), type));
      values.assign(write_rows(values, leaf({tokens, heads * width}), indices({tokens}), type));
      CacheAttentionOptions options{.type = type};
      if (tokens == 4) options.window = 10, options.soft_cap = 5;
      const Tensor q = leaf({tokens, 4 * width});
      cache_attention(reshape(q, {tokens, 4, width}), keys, values, indices({tokens}), indices({tokens}), heads,
                      options)
          .eval();
    }
  }
}

void samples() {
  sample_token(leaf({1, 1000}), leaf({1, kSampleSettings}), indices({1, 64}), indices({1, 4}), leaf({1, 4}),
               leaf({1, 4}, DType::u32))
      .eval();
}

void packed_products() {
  for (const BlockFormat& format : block_formats()) {
    if (!can_pack(format.type, default_device())) continue;
    const Extent n = 48, k = 512;
    const std::vector<std::byte> bytes(bytes_for(format.type, static_cast<std::uint64_t>(n * k), "snapshot"));
    const Tensor matrix = pack_matrix(format.type, bytes, {n, k}, default_device());
    for (const Extent rows : {1, 5, 40}) packed_linear(leaf({rows, k}), matrix, leaf({n})).eval();
    packed_linear(leaf({2, k}), matrix, {}, true).eval();
    (silu(packed_linear(leaf({3, k}), matrix, {}, false)) * 2.0).eval();
    const Tensor of_experts = pack_matrix(format.type, bytes, {3, n / 3, k}, default_device());
    for (const Extent rows : {1, 40}) (expert_linear(leaf({rows, k}), of_experts, indices({rows, 2})) * 2.0).eval();
    packed_rows(matrix, indices({6})).eval();
  }
}

void randoms() {
  manual_seed(7);
  rand({1000}, -1, 1).eval();
  randn({10, 33}).eval();
  const Tensor x = leaf({30, 40});
  with_gradients({dropout(x, 0.25)}, {x});
}

void fused_chain() {
  const Tensor x = leaf({64, 1024}), y = leaf({1024});
  with_gradients({tanh(x * y + 0.5) * sigmoid(x) - exp(x) * x}, {x, y});
}

void second_order() {
  const Tensor x = leaf({6, 10}), w = leaf({10, 4});
  const Tensor g = grad(sum(tanh(matmul(x, w))), w);
  grad(sum(square(g)), x).eval();
}

void updates_in_place() {
  Variable a(leaf({1000}), "a"), b(leaf({1000}), "b");
  auto step = compile([&](const Tensor& x) {
    const Tensor loss = sum(a.value() * x + tanh(b.value()));
    a.assign(a.value() - 0.1 * x);
    b.assign(b.value() + a.value());
    return loss;
  });
  step(leaf({1000}));
}

void own_op() {
  const CustomOp op = register_op(
      {.name = "snapshot_op", .inputs = {"x", "y"}, .forward = "x * exp(-y * k)", .attributes = {{"k", 2.0}}});
  const Tensor x = leaf({30}), y = leaf({4, 30});
  with_gradients({op(x, y)}, {x, y});
}

}  // namespace

std::vector<Case> op_cases() {
  return {
      {"op_views", views, true},
      {"op_joins", joins, true},
      {"op_matmul", matmuls, true},
      {"op_cast", casts},
      {.name = "op_f64", .run = doubles, .cpu_only = true},
      {"op_making", makings},
      {"op_gathers", gathers, true},
      {"op_softmax", softmaxes, true},
      {"op_norms", norms, true},
      {"op_losses", losses},
      {"op_rope_swiglu", ropes},
      {"op_attention", attentions, true},
      {"op_narrow_operands", narrow_operands, true},
      {"op_cache", caches, true},
      {"op_sample", samples, true},
      {"op_packed_products", packed_products, true},
      {"op_random", randoms},
      {"op_fused_chain", fused_chain, true},
      {"op_second_order", second_order},
      {"op_updates_in_place", updates_in_place},
      {"op_own", own_op},
  };
}

}  // namespace weft::snapshot
