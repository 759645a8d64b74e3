// Prompts by the gated delta rule, as a layer of Qwen3-Next reads them: milliseconds of all steps in one call, which goes by chunks,
// beside calls of 16 steps, which go step by step, and beside the function of the transformers library.
//   bench_delta_rule [PYTHON]     an interpreter with PyTorch and transformers (default /usr/bin/python3), run on as many threads
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "base/threads.hpp"
#include "figure.hpp"
#include "peer.hpp"
#include "weft/ops/state_space.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

constexpr Extent kGroups = 16, kKeys = 128, kHeads = 32, kWidth = 128, kStep = 16;

struct Prompt {
  Tensor q, k, v, decay, beta;

  explicit Prompt(Extent steps)
      : q(unit(randn({1, steps, kGroups, kKeys})).eval()),
        k(unit(randn({1, steps, kGroups, kKeys})).eval()),
        v(randn({1, steps, kHeads, kWidth}).eval()),
        decay(rand({1, steps, kHeads}, -0.5, -0.01).eval()),
        beta(rand({1, steps, kHeads}, 0, 1).eval()) {}
  static Tensor unit(const Tensor& x) { return x / sqrt(sum(x * x, {-1}, {.keepdims = true})); }
  Extent steps() const { return q.dim(1); }
  Tensor part(const Tensor& x, Extent first, Extent count) const { return narrow(x, 1, first, count); }
  StateSpaceScan scan(Extent first, Extent count, const Tensor& state) const {
    return gated_delta_rule(part(q, first, count), part(k, first, count), part(v, first, count),
                            part(decay, first, count), part(beta, first, count), state);
  }
};

}  // namespace

int main(int count, char** arguments) {
  const std::string python = count > 1 ? arguments[1] : "/usr/bin/python3";
  fmt::print("{} groups of {} keys, {} heads of {} values, {} threads\n{:>6}  {:>10}  {:>12}  {:>14}\n", kGroups, kKeys,
             kHeads, kWidth, thread_count(), "steps", "chunks ms", "by steps ms", "transformers ms");
  for (const Extent steps : {32, 64, 256, 1024}) {
    const NoGrad inference;
    const Prompt prompt(steps);
    const double chunks = bench::best_ms([&] { prompt.scan(0, steps, Tensor()).output.eval(); });
    const double by_steps = bench::best_ms([&] {
      Tensor state;
      for (Extent first = 0; first < steps; first += kStep) {
        const StateSpaceScan part = prompt.scan(first, kStep, state);
        eval(std::vector<Tensor>{part.output, part.state});
        state = part.state;
      }
    });
    const double peer =
        bench::printed_by(fmt::format("{} {}/bench/torch_delta_rule.py {} {} {} {} {} {}", python, WEFT_SOURCE_FOLDER,
                                      steps, kGroups, kKeys, kHeads, kWidth, thread_count()))
            .first;
    fmt::print("{:>6}  {:>10.3f}  {:>12.3f}  {:>14.3f}\n", steps, chunks, by_steps, peer);
    std::fflush(stdout);
    figures::keep({.group = "gated delta rule",
                   .work = fmt::format("{} steps, {} heads of {} x {}", steps, kHeads, kKeys, kWidth),
                   .unit = "ms",
                   .weft = chunks,
                   .peer = peer > 0 ? "transformers" : "",
                   .of_peer = peer});
  }
}
