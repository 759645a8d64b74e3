// Matrix products on a WebGPU device: microseconds and TFLOP/s of the tile that Weft chooses, and of the others that it
// thinks are near; each result is compared with products in double at some places. Products of f16 run on subgroup matrices
// where the device has them.
// Usage: bench_webgpu_gemm [adapter index] [substring of a shape's name] [file of tiles]
// A line of the file is a tile of subgroup matrices to measure beside those of the table: rows, columns, depth, those of a
// subgroup, buffers, chunks of A and B, steps ahead, steps a turn, and 1 for late loads.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>

#include "backend/webgpu/tested_facts.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"
#include "backend/webgpu/wgsl/matmul/staged_product.hpp"
#include "figure.hpp"
#include "tensor/element.hpp"
#include "webgpu_timing.hpp"
#include "weft/error.hpp"

using namespace weft;
using namespace weft::webgpu;

namespace {

/// What follows the sums: nothing; a bias and rounding to f16; also gelu, both kept; the gradient of gelu, in f16.
enum class Finish { none, narrow, gelu, gelu_gradient };

struct Product {
  const char* name;
  const char* layout;  // of A and B: t is transposed in memory
  Extent m, n, k;
  DType type = DType::f32;
  ProductPrecision precision = ProductPrecision::exact;
  Finish finish = Finish::none;
};

constexpr Product kProducts[] = {
    {"cube nn", "nn", 4096, 4096, 4096},
    {"cube nt", "nt", 4096, 4096, 4096},
    {"cube tn", "tn", 4096, 4096, 4096},
    // char-gpt: 64 x 256 tokens, width 384: forward y = x W, then dx = dy W^T and dW = x^T dy.
    {"char-gpt qkv", "nn", 16384, 1152, 384},
    {"char-gpt qkv dx", "nt", 16384, 384, 1152},
    {"char-gpt qkv dW", "tn", 384, 1152, 16384},
    {"char-gpt projection", "nn", 16384, 384, 384},
    {"char-gpt projection dx", "nt", 16384, 384, 384},
    {"char-gpt projection dW", "tn", 384, 384, 16384},
    {"char-gpt up", "nn", 16384, 1536, 384},
    {"char-gpt up dx", "nt", 16384, 384, 1536},
    {"char-gpt up dW", "tn", 384, 1536, 16384},
    {"char-gpt down", "nn", 16384, 384, 1536},
    {"char-gpt down dW", "tn", 1536, 384, 16384},
    {"char-gpt logits", "nt", 16384, 83, 384},
    // small: 16 x 64 tokens, width 128.
    {"small qkv", "nn", 1024, 384, 128},
    {"small qkv dx", "nt", 1024, 128, 384},
    {"small qkv dW", "tn", 128, 384, 1024},
    {"small projection", "nn", 1024, 128, 128},
    {"small up", "nn", 1024, 512, 128},
    {"small down", "nn", 1024, 128, 512},
    {"small up dW", "tn", 128, 512, 1024},
    {"small logits", "nt", 1024, 83, 128},
    {"one row", "nt", 1, 4096, 4096},
    {"half cube tn", "tn", 4096, 4096, 4096, DType::f16},
    {"half cube nn", "nn", 4096, 4096, 4096, DType::f16},
    {"half cube nt", "nt", 4096, 4096, 4096, DType::f16},
    {"half cube tt", "tt", 4096, 4096, 4096, DType::f16},
    {"half odd nn", "nn", 4001, 4003, 4005, DType::f16},
    {"half odd nt", "nt", 4001, 4003, 4005, DType::f16},
    {"half ragged nn", "nn", 4040, 4072, 4056, DType::f16},
    {"half char-gpt qkv", "nn", 16384, 1152, 384, DType::f16},
    {"half char-gpt qkv dx", "nt", 16384, 384, 1152, DType::f16},
    {"half char-gpt qkv dW", "tn", 384, 1152, 16384, DType::f16},
    {"half char-gpt up", "nn", 16384, 1536, 384, DType::f16},
    {"half char-gpt down", "nn", 16384, 384, 1536, DType::f16},
    {"half gpt2 logits", "nt", 8192, 50257, 768, DType::f16},
    // As a training step in f16 has them: W is [out, in], dW [in, out].
    {"step char-gpt qkv", "nt", 16384, 1152, 384, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt projection", "nt", 16384, 384, 384, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt up", "nt", 16384, 1536, 384, DType::f16, ProductPrecision::exact, Finish::gelu},
    {"step char-gpt down", "nt", 16384, 384, 1536, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt down dx", "nn", 16384, 1536, 384, DType::f16, ProductPrecision::exact, Finish::gelu_gradient},
    {"step char-gpt up dx", "nn", 16384, 384, 1536, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt qkv dx", "nn", 16384, 384, 1152, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt projection dx", "nn", 16384, 384, 384, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step char-gpt up dW", "tn", 384, 1536, 16384, DType::f16},
    {"step char-gpt down dW", "tn", 1536, 384, 16384, DType::f16},
    {"step char-gpt qkv dW", "tn", 384, 1152, 16384, DType::f16},
    {"step char-gpt projection dW", "tn", 384, 384, 16384, DType::f16},
    {"step gpt2 qkv", "nt", 8192, 2304, 768, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step gpt2 up", "nt", 8192, 3072, 768, DType::f16, ProductPrecision::exact, Finish::gelu},
    {"step gpt2 down", "nt", 8192, 768, 3072, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step gpt2 down dx", "nn", 8192, 3072, 768, DType::f16, ProductPrecision::exact, Finish::gelu_gradient},
    {"step gpt2 up dx", "nn", 8192, 768, 3072, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step gpt2 up dW", "tn", 768, 3072, 8192, DType::f16},
    {"step gpt2 projection dW", "tn", 768, 768, 8192, DType::f16},
    {"step gpt2 logits", "nt", 8192, 50264, 768, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step gpt2 logits dx", "nn", 8192, 768, 50264, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"step gpt2 logits dW", "tn", 768, 50264, 8192, DType::f16},
    {"step bf16 char-gpt qkv", "nt", 16384, 1152, 384, DType::bf16, ProductPrecision::exact, Finish::narrow},
    {"step bf16 char-gpt up", "nt", 16384, 1536, 384, DType::bf16, ProductPrecision::exact, Finish::gelu},
    {"step bf16 char-gpt down dx", "nn", 16384, 1536, 384, DType::bf16, ProductPrecision::exact, Finish::gelu_gradient},
    {"step bf16 char-gpt up dx", "nn", 16384, 384, 1536, DType::bf16, ProductPrecision::exact, Finish::narrow},
    {"step bf16 char-gpt up dW", "tn", 384, 1536, 16384, DType::bf16},
    {"step bf16 char-gpt projection dW", "tn", 384, 384, 16384, DType::bf16},
    {"step bf16 gpt2 up", "nt", 8192, 3072, 768, DType::bf16, ProductPrecision::exact, Finish::gelu},
    {"step bf16 gpt2 up dx", "nn", 8192, 768, 3072, DType::bf16, ProductPrecision::exact, Finish::narrow},
    {"step bf16 gpt2 up dW", "tn", 768, 3072, 8192, DType::bf16},
    {"step bf16 gpt2 logits dW", "tn", 768, 50264, 8192, DType::bf16},
    {"step prompt gate", "nt", 512, 9728, 896, DType::f16, ProductPrecision::exact, Finish::narrow},
    {"half prompt down", "nt", 512, 896, 4864, DType::f16},
    {"half prompt projection", "nt", 512, 896, 896, DType::f16},
    {"half prompt keys", "nt", 512, 128, 896, DType::f16},
    {"half small qkv", "nn", 1024, 384, 128, DType::f16},
    {"half small up dW", "tn", 128, 512, 1024, DType::f16},
    {"half small qkv dx", "nt", 1024, 128, 384, DType::f16},
    {"half small down", "nn", 1024, 128, 512, DType::f16},
    {"half rows 64", "nt", 64, 4096, 4096, DType::f16},
    {"high cube tn", "tn", 4096, 4096, 4096, DType::f32, ProductPrecision::high},
    {"high cube nn", "nn", 4096, 4096, 4096, DType::f32, ProductPrecision::high},
    {"high cube nt", "nt", 4096, 4096, 4096, DType::f32, ProductPrecision::high},
    {"high char-gpt qkv", "nn", 16384, 1152, 384, DType::f32, ProductPrecision::high},
    {"high char-gpt up dW", "tn", 384, 1536, 16384, DType::f32, ProductPrecision::high},
    {"high gpt2 logits", "nt", 8192, 50257, 768, DType::f32, ProductPrecision::high},
    {"medium cube nn", "nn", 4096, 4096, 4096, DType::f32, ProductPrecision::medium},
    {"medium char-gpt qkv", "nn", 16384, 1152, 384, DType::f32, ProductPrecision::medium},
    {"medium char-gpt up dW", "tn", 384, 1536, 16384, DType::f32, ProductPrecision::medium},
};

kernel::MatmulKernel product(const Product& shape) {
  const bool a_t = shape.layout[0] == 't', b_t = shape.layout[1] == 't';
  kernel::MatmulKernel kernel{.name = shape.name, .batch = 1, .m = shape.m, .n = shape.n, .k = shape.k};
  kernel.a = {0, shape.type, 0, shape.m * shape.k};
  kernel.b = {1, shape.type, 0, shape.k * shape.n};
  const kernel::View one{{1}, {0}, 0, {}};
  kernel.a_view = kernel::matrix_view(one, shape.m, a_t ? 1 : shape.k, shape.k, a_t ? shape.m : 1);
  kernel.b_view = kernel::matrix_view(one, shape.k, b_t ? 1 : shape.n, shape.n, b_t ? shape.k : 1);
  kernel.precision = shape.precision;
  const Extent results = shape.m * shape.n;
  kernel::LoopKernel& epilogue = kernel.epilogue;
  epilogue.outer = results;
  epilogue.steps = {kernel::Step{kernel::StepKind::accumulator}};
  if (shape.finish == Finish::none) {
    epilogue.outputs = {{2, DType::f32, 0, results}};
    epilogue.stores = {{0, 0, {{results}, {1}, 0, {}}}};
    return kernel;
  }
  const auto add = [&](kernel::Step step) {
    epilogue.steps.push_back(std::move(step));
    return static_cast<int>(epilogue.steps.size()) - 1;
  };
  const auto map = [&](scalar::Op op, int a, int b = -1, DType type = DType::f32) {
    kernel::Step step{kernel::StepKind::map, type};
    step.op = op, step.a = a, step.b = b;
    return add(step);
  };
  const auto constant = [&](double value) {
    kernel::Step step{kernel::StepKind::constant};
    step.value = value;
    return add(step);
  };
  const auto load = [&](const kernel::Operand& operand, kernel::View view) {
    epilogue.inputs.push_back(operand);
    kernel::Step step{kernel::StepKind::load, operand.type};
    step.operand = static_cast<int>(epilogue.inputs.size()) - 1, step.view = std::move(view);
    return add(step);
  };
  const auto store = [&](int value, int buffer) {
    epilogue.outputs.push_back({buffer, DType::f16, 0, results});
    const int narrow = map(scalar::Op::cast, value, -1, DType::f16);
    epilogue.stores.push_back({narrow, static_cast<int>(epilogue.outputs.size()) - 1, {{results}, {1}, 0, {}}});
    return map(scalar::Op::cast, narrow);
  };
  using scalar::Op;
  // 1 / (1 + exp(x (-0.0714 x^2 - 1.596))), the share of x that gelu keeps.
  const auto share = [&](int x) {
    const int inner =
        map(Op::add, map(Op::mul, constant(-0.07135481387376785), map(Op::mul, x, x)), constant(-1.5957691669464111));
    return map(Op::div, constant(1), map(Op::add, constant(1), map(Op::exp, map(Op::mul, x, inner))));
  };
  if (shape.finish == Finish::gelu_gradient) {
    const int x = map(Op::cast, load({4, DType::f16, 0, results}, {{results}, {1}, 0, {}}));
    const int s = share(x);
    const int slope =
        map(Op::add, map(Op::mul, constant(-0.21406444907188416), map(Op::mul, x, x)), constant(-1.5957691669464111));
    const int bent = map(Op::mul, map(Op::sub, s, map(Op::mul, s, s)), map(Op::mul, x, slope));
    store(map(Op::mul, 0, map(Op::sub, s, bent)), 2);
    return kernel;
  }
  const int x = store(map(Op::add, 0, load({3, DType::f32, 0, shape.n}, {{shape.m, shape.n}, {0, 1}, 0, {}})), 2);
  if (shape.finish == Finish::gelu) store(map(Op::mul, x, share(x)), 4);
  return kernel;
}

/// Operands drawn from [-1, 1), and the result.
std::vector<std::shared_ptr<Buffer>> make_operands(const std::shared_ptr<Device>& device, const Product& shape,
                                                   std::vector<std::vector<float>>& values) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  values.clear();
  std::minstd_rand random(1);
  for (const Extent count : {shape.m * shape.k, shape.k * shape.n}) {
    std::vector<float>& drawn = values.emplace_back(static_cast<std::size_t>(count));
    std::vector<unsigned char> host(bytes_of(shape.type, drawn.size()));
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const double draw = static_cast<double>(random()) / static_cast<double>(std::minstd_rand::max());
      drawn[i] = static_cast<float>(rounded_to(shape.type, draw * 2 - 1));
      write_element(shape.type, drawn[i], host.data(), i);
    }
    buffers.push_back(Buffer::create(device, host.size(), "operand"));
    buffers.back()->upload(0, host.data(), host.size());
  }
  buffers.push_back(Buffer::create(device, static_cast<std::uint64_t>(shape.m * shape.n) * 4, "result"));
  if (shape.finish != Finish::none) {
    const std::vector<float> bias(static_cast<std::size_t>(shape.n));
    buffers.push_back(Buffer::create(device, bias.size() * 4, "bias"));
    buffers.back()->upload(0, bias.data(), bias.size() * 4);
    buffers.push_back(Buffer::create(device, static_cast<std::uint64_t>(shape.m * shape.n) * 2, "more results"));
  }
  return buffers;
}

/// Largest error at some places, over sqrt(k).
double worst_error(const Product& shape, const std::vector<std::vector<float>>& values, const Buffer& result) {
  if (shape.finish != Finish::none) return 0;  // checked by tests
  std::vector<float> c(static_cast<std::size_t>(shape.m * shape.n));
  result.download(0, c.data(), c.size() * 4);
  const kernel::MatmulKernel kernel = product(shape);
  std::minstd_rand random(5);
  double worst = 0;
  for (int i = 0; i < 400; ++i) {
    // The last rows and columns too, which tiles may cut off.
    const Extent row = i < 40 ? shape.m - 1 - i % std::min<Extent>(8, shape.m) : random() % shape.m;
    const Extent column = i < 40 ? shape.n - 1 - i / 8 : random() % shape.n;
    double sum = 0;
    for (Extent k = 0; k < shape.k; ++k)
      sum += static_cast<double>(
                 values[0][static_cast<std::size_t>(row * kernel.a_view.row() + k * kernel.a_view.column())]) *
             values[1][static_cast<std::size_t>(k * kernel.b_view.row() + column * kernel.b_view.column())];
    const double error = std::abs(sum - c[static_cast<std::size_t>(row * shape.n + column)]);
    if (!(error <= worst)) worst = error;  // NaN stays
  }
  return worst / std::sqrt(static_cast<double>(shape.k));
}

/// A way to compute a product.
struct Candidate {
  std::string name;
  int split;
  double estimated;
  std::function<void(Scratch&, Rendered&)> render;
};

std::vector<MatrixTile> tiles_of_file(const char* path, std::deque<std::string>& names) {
  std::vector<MatrixTile> tiles;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    MatrixTile t = matrix_tiles()[0];
    int late = 0;
    if (std::sscanf(line.c_str(), "%d %d %d %d %d %d %d %d %d %d %d", &t.rows, &t.columns, &t.depth, &t.subgroup_rows,
                    &t.subgroup_columns, &t.buffers, &t.chunk_a, &t.chunk_b, &t.ahead, &t.turn, &late) != 11)
      continue;
    t.late_loads = late != 0;
    t.name = names.emplace_back(line).c_str();
    tiles.push_back(t);
  }
  return tiles;
}

/// The candidates, the chosen one last: it is measured when the device has woken up.
std::vector<Candidate> candidates(const kernel::MatmulKernel& kernel, const Target& target,
                                  std::span<const MatrixTile> more) {
  const double kNear = kernel.epilogue.steps.size() > 1 || kernel.name.starts_with("step") ? 4 : 1.4;
  constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32};
  std::vector<Candidate> all;
  if (!is_tiled(kernel.m, kernel.n, kernel.k)) {
    all.push_back(
        {"reduction", 1, 0, [&](Scratch& scratch, Rendered& rendered) { render(kernel, target, scratch, rendered); }});
    return all;
  }
  const auto add = [&](const TileChoice& choice) {
    const Tile& tile = tiles()[static_cast<std::size_t>(choice.tile)];
    all.push_back(
        {tile.name, choice.split, estimate(tile, choice.split, 1, kernel.m, kernel.n, kernel.k, target.profile),
         [&, choice](Scratch& scratch, Rendered& rendered) { render(kernel, target, scratch, rendered, choice); }});
  };
  const auto add_matrices = [&](const MatrixTile& tile, int split) {
    all.push_back({tile.name, split, estimate(tile, split, kernel, target.profile),
                   [&, split](Scratch& scratch, Rendered& rendered) {
                     render_on_matrices(kernel, tile, split, target, scratch, rendered);
                   }});
  };
  const TileChoice chosen = choose_tile(1, kernel.m, kernel.n, kernel.k, target);
  if (kernel.precision != ProductPrecision::exact) {
    const auto add_scaled = [&](const MatrixTile& tile, int split) {
      for (const bool together : {false, true}) {
        if (together && !multiplies_together(kernel, tile, target)) continue;
        all.push_back({fmt::format("{} {}{}", name_of(kernel.precision), tile.name, together ? ", together" : ""),
                       split, 0, [&, split, together](Scratch& scratch, Rendered& rendered) {
                         render_scaled(kernel, tile, split, target, scratch, rendered, together);
                       }});
      }
    };
    add(chosen);
    const auto scaled = choose_scaled_tile(kernel, target);
    for (const MatrixTile& t : matrix_tiles())
      for (const int split : {1, 4, 8})
        if (webgpu::fits(t, false, false, target.limits) && (split == 1 || (scaled && scaled->split > 1)) &&
            split_fits(1, kernel.m, kernel.n, split, target))
          add_scaled(t, split);
    for (const MatrixTile& t : more)
      if (fits(t, false, false, target.limits)) add_scaled(t, 1);
    all.push_back({"chosen", scaled ? scaled->split : 1, 0,
                   [&](Scratch& scratch, Rendered& rendered) { render(kernel, target, scratch, rendered); }});
    return all;
  }
  if (const auto staged = choose_staged_tile(kernel, target)) {
    kernel::MatmulKernel halves = kernel;
    halves.a.type = halves.b.type = DType::f16;
    const bool a_along_k = follows_k(kernel.a_view), b_along_k = follows_k(kernel.b_view.transposed());
    const double least =
        estimate(matrix_tiles()[static_cast<std::size_t>(staged->tile)], staged->split, halves, target.profile);
    const bool whole = kernel.k < 4096;
    for (const MatrixTile& t : matrix_tiles())
      for (const int split : kSplits) {
        const double estimated = estimate(t, split, halves, target.profile);
        if (!fits(t, a_along_k, b_along_k, target.limits) || (whole && split > 1) || estimated > 1.25 * least ||
            divide_up(kernel.k, t.depth * t.turn) < split)
          continue;
        all.push_back({t.name, split, estimated, [&, split](Scratch& scratch, Rendered& rendered) {
                         render_staged(kernel, t, split, target, scratch, rendered);
                       }});
      }
    all.push_back({"chosen", staged->split, least,
                   [&](Scratch& scratch, Rendered& rendered) { render(kernel, target, scratch, rendered); }});
    return all;
  }
  const auto on_matrices = choose_matrix_tile(kernel, target);
  if (on_matrices) {
    const bool a_along_k = follows_k(kernel.a_view), b_along_k = follows_k(kernel.b_view.transposed());
    const auto fits = [&](const MatrixTile& t) { return webgpu::fits(t, a_along_k, b_along_k, target.limits); };
    const double least = estimate(matrix_tiles()[static_cast<std::size_t>(on_matrices->tile)], on_matrices->split,
                                  kernel, target.profile);
    add(chosen);
    const bool whole = kernel.name.starts_with("step") && kernel.k < 4096;  // of too short sums to be split
    for (const MatrixTile& t : more)
      for (const int split : {1, 2, 4, 8})
        if (fits(t) && !(whole && split > 1) && divide_up(kernel.k, t.depth * t.turn) >= split) add_matrices(t, split);
    for (const MatrixTile& t : matrix_tiles())
      for (const int split : kSplits)
        if (fits(t) && !(whole && split > 1) && divide_up(kernel.k, t.depth * t.turn) >= split &&
            split_fits(1, kernel.m, kernel.n, split, target) &&
            estimate(t, split, kernel, target.profile) < kNear * least)
          add_matrices(t, split);
    add_matrices(matrix_tiles()[static_cast<std::size_t>(on_matrices->tile)], on_matrices->split);
    return all;
  }
  add(chosen);
  const double least = all[0].estimated;
  all.clear();
  for (int tile = 0; tile < static_cast<int>(tiles().size()); ++tile)
    for (const int split : kSplits) {
      const Tile& t = tiles()[static_cast<std::size_t>(tile)];
      const bool same = tile == chosen.tile && split == chosen.split;
      const bool fits = t.workgroup_bytes() <= static_cast<int>(target.limits.workgroup_bytes) &&
                        split_fits(1, kernel.m, kernel.n, split, target);
      if (!same && fits && divide_up(kernel.k, t.depth) >= split &&
          estimate(t, split, 1, kernel.m, kernel.n, kernel.k, target.profile) < kNear * least)
        add({tile, split});
    }
  add(chosen);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = Device::open(argc > 1 ? std::atoi(argv[1]) : -1, {.validate = false, .robust = false});
  Target target = target_of(device->info());
  target.tested = test_facts(device);
  std::deque<std::string> names;
  const std::vector<MatrixTile> more = argc > 3 ? tiles_of_file(argv[3], names) : std::vector<MatrixTile>();
  fmt::print("{}\n{}", describe(device->info()), facts_text(target.tested));
  for (const Product& shape : kProducts) {
    if (argc > 2 && !std::strstr(shape.name, argv[2])) continue;
    const kernel::MatmulKernel kernel = product(shape);
    std::vector<std::vector<float>> values;
    const auto buffers = make_operands(device, shape, values);
    const std::vector<Candidate> all = candidates(kernel, target, more);
    std::vector<Rendered> rendered(all.size());
    Recording recording;  // compiles everything side by side
    for (std::size_t i = 0; i < all.size(); ++i) {
      Scratch scratch(static_cast<int>(buffers.size()), rendered[i]);
      all[i].render(scratch, rendered[i]);
      Recording one = bench::record(device, buffers, rendered[i], 0);
      recording.shaders.insert(recording.shaders.end(), one.shaders.begin(), one.shaders.end());
    }
    try {
      const CommandSequence compiled(device, std::move(recording));
    } catch (const Error& error) {
      fmt::print("{}: {}\n", shape.name, error.what());  // the one that fails says so again
    }
    fmt::print("{} {} {} x {} x {}\n", shape.name, shape.layout, shape.m, shape.n, shape.k);
    for (std::size_t i = 0; i < all.size(); ++i) try {
        const double us = bench::microseconds(device, buffers, rendered[i]);
        const double error = worst_error(shape, values, *buffers[2]);  // before parts of it run alone
        std::string parts;
        if ((shape.precision != ProductPrecision::exact || shape.type == DType::bf16) &&
            rendered[i].dispatches.size() > 1)
          for (const RenderedDispatch& dispatch : rendered[i].dispatches) {
            Rendered one;
            one.scratch_bytes = rendered[i].scratch_bytes;
            one.dispatches = {dispatch};
            parts += fmt::format(" {:.1f}", bench::microseconds(device, buffers, one));
          }
        fmt::print("  {} {:<40} split {:<3} {:10.2f} us {:8.2f} TFLOP/s   estimated {:10.2f} us, error {:.1e}{}\n",
                   i + 1 == all.size() ? "*" : " ", all[i].name, all[i].split, us,
                   2e-6 * static_cast<double>(shape.m * shape.n * shape.k) / us, all[i].estimated, error, parts);
        std::fflush(stdout);
        if (i + 1 == all.size())
          figures::keep({"matrix products on a GPU",
                         fmt::format("{} {} {} x {} x {}", shape.name, shape.layout, shape.m, shape.n, shape.k),
                         "TFLOP/s", 2e-6 * static_cast<double>(shape.m * shape.n * shape.k) / us, "", 0,
                         describe(device->info())});
      } catch (const Error& error) {
        fmt::print("  {} {}\n", all[i].name, error.what());
      }
  }
}
