// Threads that evaluate at once. Equal expressions are one node whichever thread writes them, and evaluations share plans,
// buffers and the pool of workers; none of that may show in a value.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <functional>
#include <thread>

#include "base/sanitized.hpp"
#include "compile/random_graph.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

constexpr int kThreads = 8;

/// Runs the body in all threads at once; each waits for the others, so that they begin together.
void in_threads(const std::function<void(int)>& body) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (++ready; ready < kThreads;) std::this_thread::yield();
      body(t);
    });
  for (std::thread& thread : threads) thread.join();
}

class HostLeaves final : public test::LeafMaker {
 public:
  Tensor make(const Shape& shape, std::vector<double> values, DType type = DType::f32) override {
    const std::vector<float> floats(values.begin(), values.end());
    return cast(tensor<float>(std::span<const float>(floats), shape), type).eval();
  }
};

using Bits = std::vector<std::vector<std::uint32_t>>;

/// A random graph and the bits of its results.
Bits bits_of(std::uint64_t seed) {
  HostLeaves leaves;
  test::RandomGraph random(seed);
  const std::vector<Tensor> outputs = random.make(leaves);
  eval(outputs);
  Bits bits;
  for (const Tensor& output : outputs) {
    std::vector<std::uint32_t>& words = bits.emplace_back();
    if (output.dtype() == DType::i32) {
      for (const std::int32_t value : output.to_vector<std::int32_t>())
        words.push_back(static_cast<std::uint32_t>(value));
    } else {
      for (const float value : output.to_vector<float>()) words.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return bits;
}

TEST(Threads, RandomGraphsHaveTheBitsOfEachAlone) {
  const std::uint64_t count = test::kSanitized ? 6 : 24;
  std::vector<Bits> alone;
  for (std::uint64_t seed = 1; seed <= count; ++seed) alone.push_back(bits_of(seed));
  std::atomic<int> different = 0;
  // Neighbours begin with other graphs, so that the same are met at different times.
  in_threads([&](int t) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t seed = (i + static_cast<std::uint64_t>(t) * 3) % count;
      different += bits_of(seed + 1) != alone[seed];
    }
  });
  EXPECT_EQ(different, 0);
}

// Threads that build and drop nodes side by side, from leaves of their own.
TEST(Threads, BuildGraphsSideBySide) {
  std::atomic<int> wrong = 0;
  const int rounds = test::kSanitized ? 20 : 200;
  in_threads([&](int t) {
    for (int i = 0; i < rounds; ++i) {
      const float value = static_cast<float>(t * rounds + i);
      const Tensor x = tensor<float>({value, 1, 2});
      Tensor y = x;
      for (int n = 0; n < 20; ++n) y = y * 0.5 + x;
      const Tensor g = grad(sum(x * x), x);
      wrong += g.to_vector<float>() != std::vector<float>{2 * value, 2, 4};
      wrong += y.shape() != x.shape();
    }
  });
  EXPECT_EQ(wrong, 0);
}

// A value in memory that all read; what each makes of it is one node.
TEST(Threads, MayReadOneValue) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 10);
  const Tensor shared = tensor<float>(std::span<const float>(values), {1000}).eval();
  std::atomic<int> wrong = 0;
  const int rounds = test::kSanitized ? 10 : 100;
  in_threads([&](int) {
    for (int i = 0; i < rounds; ++i) {
      const Tensor mine = shared;
      wrong += sum(mine * static_cast<double>(i + 1)).item<float>() != static_cast<float>(4500 * (i + 1));
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, EachCompilesAndRunsAFunctionOfItsOwn) {
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    auto f = compile([&](const Tensor& x) { return sum(elementwise("exp2", {x}) * static_cast<double>(t + 1)); });
    for (int i = 0; i < 20; ++i) {
      const float power = static_cast<float>(i % 5);
      const Tensor x = tensor<float>({power, power});
      wrong += f(x).item<float>() != 2 * std::exp2(power) * static_cast<float>(t + 1);
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace weft
