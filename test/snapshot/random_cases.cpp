#include <fmt/format.h>

#include "compile/random_graph.hpp"
#include "snapshot/cases.hpp"
#include "snapshot/inputs.hpp"

namespace weft::snapshot {
namespace {

/// Of these rows, so that a row that is added or moved changes no graph.
constexpr const char* kElementwise[] = {
    "abs",         "add",  "atan2",   "clamp",   "cos",   "div",   "erf",     "exp",   "gelu",      "lerp",  "log",
    "lt",          "mish", "maximum", "mul",     "pow",   "relu",  "round",   "sign",  "silu",      "sqrt",  "softplus",
    "bitwise_and", "sub",  "tanh",    "sigmoid", "where", "xlogy", "addcmul", "hypot", "remainder", "square"};
constexpr const char* kReductions[] = {"sum", "mean", "prod", "norm", "amax", "argmax", "logsumexp", "var", "all"};

class Leaves final : public test::LeafMaker {
 public:
  Tensor make(const Shape& shape, std::vector<double>, DType type = DType::f32) override { return leaf(shape, type); }
};

void run(std::uint64_t seed) {
  Leaves leaves;
  test::RandomGraph graph(seed);
  graph.draw_rows_from(kElementwise, kReductions);
  eval(graph.make(leaves));
}

}  // namespace

std::vector<Case> random_cases() {
  std::vector<Case> cases;
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    cases.push_back({fmt::format("random_{:02}", seed), [seed] { run(seed); }, seed <= 8});
  return cases;
}

}  // namespace weft::snapshot
