// Random programs over every row of the op table. A recipe is drawn from a seed and can be made smaller; a program is a recipe
// whose choices are settled, so that it is the same graph in every type and on every device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/op.hpp"
#include "weft/tensor.hpp"

namespace weft::test {

/// A result of an earlier step, or with `step` < 0 fresh numbers.
struct Source {
  int step = -1;
  unsigned which = 0;
};
struct Step {
  const graph::OpRow* row = nullptr;
  std::uint64_t seed = 0;  // for the step's own choices: case, attributes, fresh numbers, views
  std::vector<Source> sources;
  bool viewed = false;  // views of the results follow
  bool shown = true;    // the results are outputs of the graph
};
struct Recipe {
  std::uint64_t seed = 0;
  DType type = DType::f32;  // of floats
  std::vector<Step> steps;
  int gradients = 0;  // the highest order of those that are outputs
};

/// What recipes are drawn from: all rows with cases, on a GPU those with kernels there. A software adapter compiles some shaders
/// for minutes: sorts, scans, and a few rows with long unrolled loops are drawn only with `on_gpu_of_all_shaders`.
enum class Drawn { on_cpu, on_gpu, on_gpu_of_all_shaders };
std::vector<const graph::OpRow*> drawn_rows(Drawn drawn);
Recipe draw(std::uint64_t seed, std::span<const graph::OpRow* const> rows);
/// Recipes that lack something of this one, the largest cuts first.
std::vector<Recipe> smaller(const Recipe& recipe);

class Program {
 public:
  /// Settles the choices that depend on values, by evaluating each step alone on the CPU in f64.
  explicit Program(Recipe recipe);
  /// The outputs as a graph over floats of this type, on the default device.
  std::vector<Tensor> make(DType type) const;

  struct Output {
    std::string name;           // "3 softmax", "gradient 0"
    bool same_bits;             // nothing is rounded on the way, so every device gives the same numbers
    std::vector<double> alone;  // as the step gave it when it ran alone in f64; empty for gradients
  };
  const std::vector<Output>& outputs() const { return outputs_; }
  /// Whether rounding alone decides a step's result. A histogram counts a number next to an edge on either side of it. And a step may
  /// standardise numbers that are all equal: only the root of the row's epsilon (1e-5) is left of their deviation then, so a device
  /// that rounds their mean gives 316 times the rounding where the result is 0, and its gradient more.
  bool grows_rounding() const { return grows_rounding_; }
  /// Whether an operand of a step holds NaN, which sorts and extremes of other runtimes do not order as PyTorch does.
  bool reads_nan() const { return reads_nan_; }
  const Recipe& recipe() const { return recipe_; }
  /// A line for each step.
  std::string text() const;

 private:
  Recipe recipe_;
  std::vector<double> decisions_;
  std::vector<std::string> lines_;
  std::vector<Output> outputs_;
  bool grows_rounding_ = false, reads_nan_ = false;
};

}  // namespace weft::test
