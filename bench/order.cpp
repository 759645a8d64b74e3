// Sorting, choosing by rank, and scans of 16 M floats, in milliseconds, the best of several rounds. Times include results in
// new memory, as those of the peer do.
//   bench_order [DEVICE]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "weft/weft.hpp"

using namespace weft;

namespace {

void report(const char* what, const std::function<std::vector<Tensor>(const Tensor&)>& op, const Tensor& x,
            int rounds = 5) {
  double best = 1e30;
  for (int r = 0; r < rounds; ++r) {
    // The same op on the same value is the same tensor, which is computed once: another value for each round.
    const Tensor input = (x + static_cast<double>(r)).eval();
    synchronize(x.device());
    const std::vector<Tensor> results = op(input);
    const auto start = std::chrono::steady_clock::now();
    eval(results);
    synchronize(x.device());
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  fmt::print("{}: {:.2f} ms\n", what, best);
}

}  // namespace

int main(int count, char** arguments) {
  set_default_device(parse_device(count > 1 ? arguments[1] : "cpu"));
  constexpr Extent kCount = Extent{1} << 24;
  const Tensor x = randn({kCount}).eval();
  const auto both = [](const ValuesAndPositions& v) { return std::vector<Tensor>{v.values, v.positions}; };
  report(
      "sort, 16 M", [&](const Tensor& v) { return both(sort(v)); }, x);
  report(
      "argsort, 16 M", [&](const Tensor& v) { return std::vector<Tensor>{argsort(v)}; }, x);
  report(
      "top 100 of 16 M", [&](const Tensor& v) { return both(topk(v, 100)); }, x);
  report(
      "element in the middle of 16 M", [&](const Tensor& v) { return both(kthvalue(v, kCount / 2)); }, x);
  const Tensor rows = reshape(x, {-1, 1024}).eval();
  report(
      "sort, 16 K rows of 1024", [&](const Tensor& v) { return both(sort(v)); }, rows);
  report(
      "top 10 of 16 K rows of 1024", [&](const Tensor& v) { return both(topk(v, 10)); }, rows);
  report(
      "cumsum, 16 K rows of 1024", [&](const Tensor& v) { return std::vector<Tensor>{cumsum(v)}; }, rows);
  report(
      "cumprod, 16 K rows of 1024", [&](const Tensor& v) { return std::vector<Tensor>{cumprod(v)}; }, rows);
  report(
      "cummax, 16 K rows of 1024", [&](const Tensor& v) { return both(cummax(v)); }, rows);
  report(
      "logcumsumexp, 16 K rows of 1024", [&](const Tensor& v) { return std::vector<Tensor>{logcumsumexp(v)}; }, rows);
}
