// f32 matrix products on a WebGPU device: microseconds and TFLOP/s of the tile that Weft chooses, and of the others that it
// thinks are near; each result is compared with products in double at some places.
// Usage: bench_webgpu_gemm [adapter index] [substring of a shape's name]
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/webgpu/wgsl/matmul.hpp"
#include "webgpu_timing.hpp"

using namespace weft;
using namespace weft::webgpu;

namespace {

struct Product {
  const char* name;
  const char* layout;  // of A and B: t is transposed in memory
  Extent m, n, k;
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
};

kernel::MatmulKernel product(const Product& shape) {
  const bool a_t = shape.layout[0] == 't', b_t = shape.layout[1] == 't';
  kernel::MatmulKernel kernel{.name = shape.name, .batch = 1, .m = shape.m, .n = shape.n, .k = shape.k};
  kernel.a = {0, DType::f32, 0, shape.m * shape.k};
  kernel.b = {1, DType::f32, 0, shape.k * shape.n};
  const kernel::View one{{1}, {0}, 0, {}};
  kernel.a_view = kernel::matrix_view(one, shape.m, a_t ? 1 : shape.k, shape.k, a_t ? shape.m : 1);
  kernel.b_view = kernel::matrix_view(one, shape.k, b_t ? 1 : shape.n, shape.n, b_t ? shape.k : 1);
  kernel.epilogue.outer = shape.m * shape.n;
  kernel.epilogue.steps = {kernel::Step{kernel::StepKind::accumulator}};
  kernel.epilogue.outputs = {{2, DType::f32, 0, shape.m * shape.n}};
  kernel.epilogue.stores = {{0, 0, {{shape.m * shape.n}, {1}, 0, {}}}};
  return kernel;
}

/// Largest error at some places, over sqrt(k).
double worst_error(const Product& shape, const std::vector<std::shared_ptr<Buffer>>& buffers) {
  std::vector<float> a(static_cast<std::size_t>(shape.m * shape.k)), b(static_cast<std::size_t>(shape.k * shape.n)),
      c(static_cast<std::size_t>(shape.m * shape.n));
  buffers[0]->download(0, a.data(), a.size() * 4);
  buffers[1]->download(0, b.data(), b.size() * 4);
  buffers[2]->download(0, c.data(), c.size() * 4);
  const kernel::MatmulKernel kernel = product(shape);
  std::minstd_rand random(5);
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const Extent row = random() % shape.m, column = random() % shape.n;
    double sum = 0;
    for (Extent k = 0; k < shape.k; ++k)
      sum += static_cast<double>(a[static_cast<std::size_t>(row * kernel.a_view.row() + k * kernel.a_view.column())]) *
             b[static_cast<std::size_t>(k * kernel.b_view.row() + column * kernel.b_view.column())];
    worst = std::max(worst, std::abs(sum - c[static_cast<std::size_t>(row * shape.n + column)]));
  }
  return worst / std::sqrt(static_cast<double>(shape.k));
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = Device::open(argc > 1 ? std::atoi(argv[1]) : -1, {.validate = false, .robust = false});
  const Target target = target_of(device->info());
  fmt::print("{}\n", describe(device->info()));
  for (const Product& shape : kProducts) {
    if (argc > 2 && !std::strstr(shape.name, argv[2])) continue;
    const kernel::MatmulKernel kernel = product(shape);
    const TileChoice chosen = choose_tile(1, shape.m, shape.n, shape.k, target);
    const auto estimated = [&](const TileChoice& choice) {
      return estimate(tiles()[static_cast<std::size_t>(choice.tile)], choice.split, 1, shape.m, shape.n, shape.k,
                      target.profile);
    };
    std::vector<TileChoice> choices;
    if (shape.m > 4)
      for (int tile = 0; tile < static_cast<int>(tiles().size()); ++tile)
        for (int split : {1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32}) {
          const TileChoice choice{tile, split};
          const bool same = tile == chosen.tile && split == chosen.split;
          const Tile& t = tiles()[static_cast<std::size_t>(tile)];
          const bool fits = t.workgroup_bytes() <= static_cast<int>(target.limits.workgroup_bytes) &&
                            split_fits(1, shape.m, shape.n, split, target);
          if (!same && fits && divide_up(shape.k, t.depth) >= split && estimated(choice) < 1.4 * estimated(chosen))
            choices.push_back(choice);
        }
    choices.push_back(chosen);  // measured last, when the device has woken up
    const auto buffers = bench::make_buffers(device, {shape.m * shape.k, shape.k * shape.n, shape.m * shape.n});
    std::vector<Rendered> rendered(choices.size());
    Recording all;  // compiles everything side by side
    for (std::size_t i = 0; i < choices.size(); ++i) {
      Scratch scratch(3, rendered[i]);
      render(kernel, target, scratch, rendered[i], shape.m > 4 ? std::optional(choices[i]) : std::nullopt);
      Recording one = bench::record(device, buffers, rendered[i], 0);
      all.shaders.insert(all.shaders.end(), one.shaders.begin(), one.shaders.end());
    }
    const CommandSequence compiled(device, std::move(all));
    fmt::print("{} {} {} x {} x {}\n", shape.name, shape.layout, shape.m, shape.n, shape.k);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const double us = bench::microseconds(device, buffers, rendered[i]);
      fmt::print("  {} {:<12} split {:<3} {:10.2f} us {:8.2f} TFLOP/s   estimated {:10.2f} us, error {:.1e}\n",
                 i + 1 == choices.size() ? "*" : " ",
                 shape.m > 4 ? tiles()[static_cast<std::size_t>(choices[i].tile)].name : "reduction", choices[i].split,
                 us, 2e-6 * static_cast<double>(shape.m * shape.n * shape.k) / us, estimated(choices[i]),
                 worst_error(shape, buffers));
      std::fflush(stdout);
    }
  }
}
