// 3x3 convolutions on the CPU as windows and a product: read where they are, and copied to a matrix (im2col) first.
// Milliseconds, the best of interleaved rounds; forward, and the gradient of the weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "figure.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

struct Shape3x3 {
  Extent images, channels, extent, out;
};

Tensor windows(const Tensor& x) {  // [image, y, x] by [channel, 3, 3]
  const Tensor padded = pad(x, {{0, 0}, {0, 0}, {1, 1}, {1, 1}});
  const Tensor all = unfold(unfold(padded, 2, 3), 3, 3);
  return reshape(permute(all, {0, 2, 3, 1, 4, 5}), {-1, x.dim(1) * 9});
}

double milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void compare(const Shape3x3& shape, int rounds) {
  const Tensor x = randn({shape.images, shape.channels, shape.extent, shape.extent}).eval();
  const Tensor w = randn({shape.channels * 9, shape.out}).eval();
  const Tensor g = randn({shape.images * shape.extent * shape.extent, shape.out}).eval();
  auto in_place = compile([](Tensor image, Tensor weight) { return matmul(windows(image), weight); });
  auto copied = compile([](Tensor image) { return windows(image); });
  auto product = compile([](Tensor rows, Tensor weight) { return matmul(rows, weight); });
  auto weights_in_place = compile([](Tensor image, Tensor seed) { return matmul(transpose(windows(image)), seed); });
  auto weights_of_copy = compile([](Tensor rows, Tensor seed) { return matmul(transpose(rows), seed); });
  std::array<double, 4> best;
  best.fill(1e30);
  for (int r = 0; r < rounds + 1; ++r) {
    const std::array<double, 4> now = {
        milliseconds([&] { in_place(x, w).eval(); }),
        milliseconds([&] { product(copied(x), w).eval(); }),
        milliseconds([&] { weights_in_place(x, g).eval(); }),
        milliseconds([&] { weights_of_copy(copied(x), g).eval(); }),
    };
    for (std::size_t i = 0; i < now.size(); ++i)
      if (r > 0) best[i] = std::min(best[i], now[i]);
  }
  const double flops = 2.0 * static_cast<double>(shape.images * shape.extent * shape.extent * shape.channels * 9) *
                       static_cast<double>(shape.out);
  const auto line = [&](const char* what, double without, double with) {
    fmt::print("  {:<24} {:8.3f} ms ({:5.1f} GFLOP/s), with the copy {:8.3f} ms, ratio {:.2f}\n", what, without,
               flops / without / 1e6, with, with / without);
    figures::keep({"3x3 convolutions as windows and a product",
                   fmt::format("[{0}, {1}, {2}, {2}] to {3} channels, {4}", shape.images, shape.channels, shape.extent,
                               shape.out, what),
                   "ms", without, "Weft with the windows copied to a matrix first", with});
  };
  fmt::print("[{}, {}, {}, {}] to {} channels\n", shape.images, shape.channels, shape.extent, shape.extent, shape.out);
  line("forward", best[0], best[1]);
  line("gradient of the weights", best[2], best[3]);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  set_default_device(kCpu);
  for (const Shape3x3& shape : {Shape3x3{8, 3, 64, 32}, Shape3x3{8, 32, 56, 64}, Shape3x3{8, 64, 28, 64},
                                Shape3x3{8, 128, 14, 128}, Shape3x3{8, 256, 7, 256}})
    compare(shape, rounds);
}
