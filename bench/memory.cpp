// Ops that mostly move memory, on f32: GB/s of the bytes that each has to read and write, beside what this machine's memory
// gives to plain loops over the same threads in the same run.
//
//   bench_memory [--rounds N] [--only TEXT]
//
// Ops that write little are compared with reading alone, others with a copy (the faster one of ordinary and of streaming
// stores). Values that are read again after the cache has lost them count once: what an op reads twice shows in its ratio.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/threads.hpp"
#include "figure.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;
constexpr Extent kCount = Extent{1} << 24;  // 64 MiB, beyond the caches

/// With one thread its own time, which other programs disturb less.
double seconds(const std::function<void()>& call) {
  if (thread_count() == 1) {
    const std::clock_t start = std::clock();
    call();
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- What the memory gives ----------------------------------------------------------------------------------------------

struct Memory {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  /// In huge pages, as tensors of this size are.
  static std::unique_ptr<float[], Free> floats() {
    constexpr std::size_t kHugePage = 2 << 20, kBytes = kCount * sizeof(float);
    auto* data = static_cast<float*>(std::aligned_alloc(kHugePage, kBytes));
#if defined(MADV_HUGEPAGE)
    madvise(data, kBytes, MADV_HUGEPAGE);
#endif
    std::fill_n(data, kCount, 1.0f);
    return std::unique_ptr<float[], Free>(data);
  }

  std::unique_ptr<float[], Free> from = floats(), to = floats();
  double read = 0, copy = 0;  // GB/s, the best of a row's rounds

  static void over_parts(const std::function<void(Extent, Extent)>& run) {
    constexpr Extent kParts = 64;
    parallel_for(kParts, [&](Extent part) { run(kCount * part / kParts, kCount * (part + 1) / kParts); });
  }

  void measure() {
    constexpr double kBytes = 4.0 * kCount;
    // Some processors only reach their bandwidth where lines are asked for before they are read.
    for (const Extent ahead : {Extent{0}, Extent{1536}}) {
      const double reading = seconds([&] {
        over_parts([&](Extent begin, Extent end) {
          constexpr Extent kLanes = 64;
          float sums[kLanes] = {};
          for (Extent i = begin; i < end; i += kLanes) {
            for (Extent line = 0; ahead > 0 && line < kLanes; line += 16)
              __builtin_prefetch(from.get() + i + ahead + line);
            for (Extent j = 0; j < kLanes; ++j) sums[j] += from[static_cast<std::size_t>(i + j)];
          }
          float sum = 0;
          for (float s : sums) sum += s;
          to[static_cast<std::size_t>(begin)] = sum;
        });
      });
      read = std::max(read, kBytes / reading / 1e9);
    }
    const double copying = seconds([&] {
      over_parts([&](Extent begin, Extent end) {
        std::memcpy(to.get() + begin, from.get() + begin, static_cast<std::size_t>(end - begin) * 4);
      });
    });
    copy = std::max(copy, 2 * kBytes / copying / 1e9);
#if defined(__SSE2__)
    for (const Extent ahead : {Extent{0}, Extent{1536}}) {
      const double streaming = seconds([&] {
        over_parts([&](Extent begin, Extent end) {
          for (Extent i = begin; i < end; i += 16) {
            if (ahead > 0) __builtin_prefetch(from.get() + i + ahead);
            for (Extent j = i; j < i + 16; j += 4) _mm_stream_ps(to.get() + j, _mm_loadu_ps(from.get() + j));
          }
          _mm_sfence();
        });
      });
      copy = std::max(copy, 2 * kBytes / streaming / 1e9);
    }
#endif
  }
};

// ---- Ops ----------------------------------------------------------------------------------------------------------------

struct Row {
  std::string name;
  double reads, writes;  // bytes
  std::function<void()> run;
};

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

double bytes_of(std::span<const Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& x : tensors) bytes += static_cast<double>(size_bytes(x.dtype())) * static_cast<double>(x.numel());
  return bytes;
}

/// `function` of `inputs`: reads all inputs once, or `reads` bytes, and writes the results.
Row row_of(std::string name, std::vector<Tensor> inputs, const Function& function, double reads = 0) {
  auto compiled = std::make_shared<Compiled>(function);
  eval(inputs);
  std::vector<Tensor> results = (*compiled)(inputs);
  eval(results);
  return {std::move(name), reads > 0 ? reads : bytes_of(inputs), bytes_of(results),
          [compiled, inputs = std::move(inputs)] {
            std::vector<Tensor> y = (*compiled)(inputs);
            eval(y);
          }};
}

/// An op of one tensor.
Row row_of(std::string name, const Tensor& x, const std::function<Tensor(const Tensor&)>& op) {
  return row_of(std::move(name), {x}, [op](std::span<const Tensor> in) { return std::vector<Tensor>{op(in[0])}; });
}

Tensor indices_below(Extent limit, const Shape& shape) {
  return cast(rand(shape) * static_cast<double>(limit), DType::i32).eval();
}

/// Those whose names contain `only`.
std::vector<std::function<Row()>> rows(std::string_view only) {
  const auto of = [](Shape shape) { return randn(shape).eval(); };
  std::vector<std::function<Row()>> all;
  const auto add = [&](std::string_view name, std::function<Row()> make) {
    if (name.find(only) != std::string_view::npos) all.push_back(std::move(make));
  };
  const auto one = [&](std::string name, Shape shape, std::function<Tensor(const Tensor&)> op) {
    add(name, [=] { return row_of(name, of(shape), op); });
  };
  constexpr Extent kSide = 4096;
  const Shape square{kSide, kSide}, narrow{65536, 256}, cube{256, 256, 256}, images{32, 64, 64, 128};
  one("x + 1", square, [](const Tensor& x) { return x + 1.0; });
  one("softmax of rows of 4096", square, [](const Tensor& x) { return softmax(x); });
  one("softmax of rows of 256", narrow, [](const Tensor& x) { return softmax(x); });
  one("softmax of columns", square, [](const Tensor& x) { return softmax(x, 0); });
  one("log_softmax of rows of 4096", square, [](const Tensor& x) { return log_softmax(x); });
  one("layer_norm of rows of 1024", {16384, 1024}, [](const Tensor& x) { return layer_norm(x, {}, {}); });
  one("rms_norm of rows of 1024", {16384, 1024}, [](const Tensor& x) { return rms_norm(x, {}); });
  one("group_norm of 8 groups", images, [](const Tensor& x) { return group_norm(x, 8); });
  one("instance_norm", images, [](const Tensor& x) { return instance_norm(x); });
  one("batch_norm", images, [](const Tensor& x) { return batch_norm(x); });
  one("sum", square, [](const Tensor& x) { return sum(x); });
  one("sum of rows", square, [](const Tensor& x) { return sum(x, {1}); });
  one("sum of rows of 256", narrow, [](const Tensor& x) { return sum(x, {1}); });
  one("sum of columns", square, [](const Tensor& x) { return sum(x, {0}); });
  one("sum of the middle axis", cube, [](const Tensor& x) { return sum(x, {1}); });
  one("sum of the outer axes", cube, [](const Tensor& x) { return sum(x, {0, 2}); });
  one("max", square, [](const Tensor& x) { return amax(x); });
  one("max of columns", square, [](const Tensor& x) { return amax(x, {0}); });
  one("argmax of rows", square, [](const Tensor& x) { return argmax(x, 1); });
  one("argmax of columns", square, [](const Tensor& x) { return argmax(x, 0); });
  one("var of rows", square, [](const Tensor& x) { return var(x, {1}); });
  one("var of columns", square, [](const Tensor& x) { return var(x, {0}); });
  one("logsumexp of rows", square, [](const Tensor& x) { return logsumexp(x, {1}); });
  one("transpose", square, [](const Tensor& x) { return transpose(x); });
  one("transpose of 256 matrices", cube, [](const Tensor& x) { return transpose(x); });
  one("first and last axis change places", cube, [](const Tensor& x) { return permute(x, {2, 1, 0}); });
  one("images to channels last", images, [](const Tensor& x) { return permute(x, {0, 2, 3, 1}); });
  one("heads before positions", {8, 512, 32, 128}, [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); });
  one("flip of rows", square, [](const Tensor& x) { return flip(x, {1}); });
  one("cumsum of rows", square, [](const Tensor& x) { return cumsum(x); });
  one("cumsum of columns", square, [](const Tensor& x) { return cumsum(x, 0); });
  one("cumsum of 16 M", {kCount}, [](const Tensor& x) { return cumsum(x); });
  one("cumprod of rows", square, [](const Tensor& x) { return cumprod(x); });
  add("cummax of rows, with positions", [=] {
    return row_of("cummax of rows, with positions", {of(square)}, [](std::span<const Tensor> in) {
      const ValuesAndPositions found = cummax(in[0]);
      return std::vector<Tensor>{found.values, found.positions};
    });
  });
  const auto pair = [](const std::function<Tensor(const Tensor&, const Tensor&)>& op) {
    return [op](std::span<const Tensor> in) { return std::vector<Tensor>{op(in[0], in[1])}; };
  };
  // A gather reads one element for each that it writes, and an index for each, or for each row.
  constexpr double kBytes = 4.0 * kCount;
  add("embedding of rows of 256", [=] {
    return row_of("embedding of rows of 256", {of({65536, 256}), indices_below(65536, {65536})},
                  pair([](const Tensor& x, const Tensor& i) { return embedding(x, i); }));
  });
  add("index_select of columns", [=] {
    return row_of("index_select of columns", {of(square), indices_below(kSide, {kSide})},
                  pair([](const Tensor& x, const Tensor& i) { return index_select(x, 1, i); }));
  });
  add("take_along_axis within rows", [=] {
    return row_of("take_along_axis within rows", {of(square), indices_below(kSide, square)},
                  pair([](const Tensor& x, const Tensor& i) { return take_along_axis(x, i, 1); }), 2 * kBytes);
  });
  add("take_along_axis within columns", [=] {
    return row_of("take_along_axis within columns", {of(square), indices_below(kSide, square)},
                  pair([](const Tensor& x, const Tensor& i) { return take_along_axis(x, i, 0); }), 2 * kBytes);
  });
  add("scatter_add of rows of 256", [=] {
    return row_of("scatter_add of rows of 256", {indices_below(65536, {65536}), of({65536, 256})},
                  pair([](const Tensor& i, const Tensor& x) { return scatter_add(i, x, 65536); }));
  });
  add("index_add of rows of 256", [=] {
    return row_of("index_add of rows of 256", {of({65536, 256}), indices_below(65536, {65536}), of({65536, 256})},
                  [](std::span<const Tensor> in) { return std::vector<Tensor>{index_add(in[0], 0, in[1], in[2])}; });
  });
  for (const int axis : {1, 0}) {
    const std::string within = axis == 1 ? "within rows" : "within columns";
    add("scatter " + within, [=] {
      return row_of(
          "scatter " + within, {of(square), indices_below(kSide, square), of(square)},
          [axis](std::span<const Tensor> in) { return std::vector<Tensor>{scatter(in[0], axis, in[1], in[2])}; });
    });
    add("scatter_add " + within, [=] {
      return row_of(
          "scatter_add " + within, {of(square), indices_below(kSide, square), of(square)},
          [axis](std::span<const Tensor> in) { return std::vector<Tensor>{scatter_add(in[0], axis, in[1], in[2])}; });
    });
  }
  return all;
}

void measure(const Row& row, Memory& memory, int rounds) {
  double best = 1e30;
  memory.read = memory.copy = 0;
  for (int round = 0; round < rounds; ++round) {
    memory.measure();
    best = std::min(best, seconds(row.run));
    best = std::min(best, seconds(row.run));
  }
  const double bytes = row.reads + row.writes, rate = bytes / best / 1e9;
  const bool reads = row.writes * 8 < row.reads;
  const double bandwidth = reads ? memory.read : memory.copy;
  fmt::print("{:<36} {:7.1f} ms {:7.1f} GB/s of {:5.1f} ({}), {:.2f} of the bandwidth{}\n", row.name, best * 1e3, rate,
             bandwidth, reads ? "reading" : "copying", rate / bandwidth, rate * 1.3 < bandwidth ? "  *" : "");
  std::fflush(stdout);
  figures::keep({"ops that move memory", row.name, "GB/s", rate, reads ? "reading alone" : "a copy", bandwidth});
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 4;
  std::string_view only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--rounds") {
      rounds = std::atoi(argv[i + 1]);
    } else if (option == "--only") {
      only = argv[i + 1];
    } else {
      fmt::print(stderr, "usage: bench_memory [--rounds N] [--only TEXT]\n");
      return 2;
    }
  }
  set_default_device(kCpu);
  Memory memory;
  memory.measure();
  for (const auto& make : rows(only)) measure(make(), memory, rounds);
  fmt::print("{} threads; * is less than the bandwidth by more than 1.3\n", thread_count());
}
