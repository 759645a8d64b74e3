// Quantised products on the shapes of SmolLM2-135M: each product alone, and all of a token's, which bounds tokens/s.
//
//   bench_quant_matmul [FORMAT] [--exact] [--kernels NAME] [--seconds S]
//
// FORMAT (default Q4_1) is that of the 30 layers; the head is Q8_0. Every layer has memory of its own, as in the model, so
// that one row of x (decoding) streams the weights from memory. Each figure counts the fastest of the calls that fit S.
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/quant/kernels.hpp"
#include "backend/cpu/quant/matmul.hpp"
#include "base/half.hpp"
#include "base/threads.hpp"

namespace {

using namespace weft;
using namespace weft::cpu;
using std::int64_t;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 30;
constexpr int64_t kWidth = 576, kKeys = 192, kHidden = 1536, kVocabulary = 49152;

std::mt19937 engine(1);

/// All weights in one piece of memory, as a loader would place them: large pages then serve small matrices too.
std::span<std::byte> take(int64_t bytes) {
  static std::byte* next = nullptr;
  static int64_t left = 0;
  constexpr int64_t kHugePage = 2 << 20, kArena = 512 * kHugePage;
  bytes = (bytes + 63) / 64 * 64;
  if (left < bytes) {
    next = static_cast<std::byte*>(std::aligned_alloc(kHugePage, kArena));
    left = kArena;
#if defined(__linux__)
    madvise(next, kArena, MADV_HUGEPAGE);
#endif
  }
  const std::span<std::byte> memory(next, static_cast<std::size_t>(bytes));
  next += bytes, left -= bytes;
  return memory;
}

QuantisedMatrix random_matrix(BlockType type, int64_t n, int64_t k) {
  const BlockFormat& format = block_format(type);
  const std::size_t count = static_cast<std::size_t>(n * k) / format.block_elements;
  std::vector<std::byte> blocks(count * format.block_bytes);
  // Bytes that no f16 or f32 made of them is infinite, NaN or denormal.
  for (std::byte& b : blocks) b = static_cast<std::byte>(0x11 + engine() % 0x22);
  const std::span<std::byte> memory = take(QuantisedMatrix::packed_bytes(type, n, k));
  QuantisedMatrix::pack_into(type, blocks, n, k, memory);
  return QuantisedMatrix::view(type, memory, n, k);
}

/// A call of the model: matrices that share their x.
struct Product {
  const char* name;
  std::vector<QuantisedMatrix> weights;
  int64_t bytes() const {
    int64_t sum = 0;
    for (const QuantisedMatrix& w : weights) sum += w.bytes();
    return sum;
  }
  int64_t elements() const {
    int64_t sum = 0;
    for (const QuantisedMatrix& w : weights) sum += w.n() * w.k();
    return sum;
  }
};

struct Settings {
  Activations activations = Activations::eight_bit;
  const QuantKernels* kernels = nullptr;
  double seconds = 1;
};

struct Buffers {
  std::vector<float> x, y;
};

void run(const Product& product, int64_t m, Buffers& buffers, const Settings& settings) {
  QuantProduct products[3];
  float* y = buffers.y.data();
  for (std::size_t i = 0; i < product.weights.size(); ++i) {
    products[i] = {.weights = &product.weights[i], .y = y, .y_row = product.weights[i].n()};
    y += m * product.weights[i].n();
  }
  quant_matmul({products, product.weights.size()}, buffers.x.data(), m, product.weights[0].k(), settings.activations,
               settings.kernels);
}

template <class Call>
double best_seconds(double limit, Call call) {
  double best = 1e30, spent = 0;
  for (int times = 0; times < 3 || spent < limit; ++times) {
    const auto start = Clock::now();
    call(times);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  BlockType type = BlockType::q4_1;
  for (int i = 1; i < argc; ++i) {
    const BlockFormat* format = find_block_format(std::string_view(argv[i]));
    if (std::strcmp(argv[i], "--exact") == 0) {
      settings.activations = Activations::exact;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      settings.seconds = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--kernels") == 0 && i + 1 < argc) {
      ++i;
      for (const QuantKernels* kernels : runnable_quant_kernels())
        if (std::strcmp(kernels->name, argv[i]) == 0) settings.kernels = kernels;
      if (settings.kernels == nullptr) {
        fmt::print(stderr, "this processor has no kernels '{}'\n", argv[i]);
        return 2;
      }
    } else if (format != nullptr && QuantisedMatrix::supports(format->type)) {
      type = format->type;
    } else {
      fmt::print(stderr, "usage: bench_quant_matmul [FORMAT] [--exact] [--kernels NAME] [--seconds S]\n");
      return 2;
    }
  }

  const int64_t block = static_cast<int64_t>(block_format(type).block_elements);
  // 576 is not a multiple of 256: the K formats are measured with rows of 768 instead, and say so by their sizes.
  const int64_t width = (kWidth + block - 1) / block * block;
  std::vector<Product> layers[4];
  const auto start = Clock::now();
  for (int i = 0; i < kLayers; ++i) {
    layers[0].push_back(
        {"q, k, v",
         {random_matrix(type, kWidth, width), random_matrix(type, kKeys, width), random_matrix(type, kKeys, width)}});
    layers[1].push_back({"output", {random_matrix(type, kWidth, width)}});
    layers[2].push_back({"gate, up", {random_matrix(type, kHidden, width), random_matrix(type, kHidden, width)}});
    layers[3].push_back({"down", {random_matrix(type, kWidth, kHidden)}});
  }
  const Product head{"head, Q8_0", {random_matrix(BlockType::q8_0, kVocabulary, kWidth)}};
  const double made = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("{} layers of {}, {}, {}, {} threads; made in {:.2f} s\n", kLayers, block_format(type).name,
             settings.activations == Activations::exact ? "exact" : "eight bits",
             (settings.kernels != nullptr ? *settings.kernels : quant_kernels()).name, weft::thread_count(), made);

  for (const int64_t m : {int64_t{1}, int64_t{8}, int64_t{512}}) {
    Buffers buffers;
    buffers.x.resize(static_cast<std::size_t>(m * std::max(width, kHidden)));
    buffers.y.resize(static_cast<std::size_t>(m * kVocabulary));
    for (float& x : buffers.x) x = std::normal_distribution<float>()(engine);
    fmt::print("\nm = {}\n{:<12} {:>10} {:>10} {:>10}\n", m, "", "us", "GB/s", "GOP/s");
    const auto report = [&](const char* name, double seconds, double bytes, double elements) {
      fmt::print("{:<12} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, seconds * 1e6, bytes / seconds * 1e-9,
                 2e-9 * static_cast<double>(m) * elements / seconds);
    };
    for (const std::vector<Product>& steps : layers) {
      // One after another through all layers: none finds its weights in the cache.
      const double seconds = best_seconds(settings.seconds / 8,
                                          [&](int) {
                                            for (const Product& product : steps) run(product, m, buffers, settings);
                                          }) /
                             kLayers;
      report(steps[0].name, seconds, static_cast<double>(steps[0].bytes()), static_cast<double>(steps[0].elements()));
    }
    const int64_t head_rows = std::min<int64_t>(m, 8);  // prompts need logits of their last token only
    double bytes = static_cast<double>(head.bytes()), elements = 0;
    for (const std::vector<Product>& steps : layers) {
      bytes += kLayers * static_cast<double>(steps[0].bytes());
      elements += kLayers * static_cast<double>(steps[0].elements());
    }
    if (m <= 8) {
      report(head.name, best_seconds(settings.seconds / 8, [&](int) { run(head, m, buffers, settings); }),
             static_cast<double>(head.bytes()), static_cast<double>(head.weights[0].n() * kWidth));
    }
    const double pass = best_seconds(settings.seconds, [&](int) {
      for (int i = 0; i < kLayers; ++i)
        for (const std::vector<Product>& steps : layers) run(steps[static_cast<std::size_t>(i)], m, buffers, settings);
      run(head, m > 8 ? 1 : head_rows, buffers, settings);
    });
    report("all", pass, bytes, elements);
    fmt::print("at most {:.0f} tokens/s\n", static_cast<double>(m) / pass);
  }
}
