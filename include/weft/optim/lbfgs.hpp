// L-BFGS: a method of second order for smooth losses of whole batches.
#pragma once

#include <functional>
#include <vector>

#include "weft/optim/base.hpp"

namespace weft::optim {

struct LBFGSOptions {
  double learning_rate = 1;
  Extent iterations = 20;            // in one step
  Extent evaluations = 0;            // most evaluations in one step; 0: iterations * 5 / 4
  double gradient_tolerance = 1e-7;  // ends where no element of the gradient is larger
  double change_tolerance = 1e-9;    // ends where neither the parameters nor the loss change by more
  Extent history = 100;              // pairs of changes that the curvature is taken from
  bool strong_wolfe = false;         // searches along each direction for a point that meets the strong Wolfe conditions
};

/// Directions come from the last changes of parameters and gradients (the two-loop recursion), and each step evaluates the loss
/// several times. Works on the host's numbers, and so not inside a compiled function; the loss itself may be compiled.
/// Source: Liu and Nocedal 1989, Mathematical Programming 45; Nocedal and Wright 2006, Numerical Optimization, algorithms 3.5, 3.6, 7.4.
class LBFGS {
 public:
  struct Evaluation {
    double loss = 0;
    std::vector<Tensor> gradients;  // one for each parameter, in their order
  };
  using Evaluate = std::function<Evaluation()>;

  /// Errors  UsageError: no parameters, parameters of several dtypes, or an option out of its range.
  explicit LBFGS(ParameterList parameters, LBFGSOptions options = {});
  const std::vector<Variable>& parameters() const { return variables_; }
  /// Evaluates and moves the parameters until an end is reached. Returns the loss of the first evaluation.
  /// Errors  UsageError, ShapeError, DTypeError: gradients that do not fit the parameters.
  double step(const Evaluate& evaluate);

  double learning_rate() const { return options_.learning_rate; }
  /// Errors  UsageError: not a number of at least 0.
  void set_learning_rate(double rate);
  Extent iteration_count() const { return iteration_count_; }
  Extent evaluation_count() const { return evaluation_count_; }
  /// Forgets the curvature.
  void reset();

  /// "iterations", "evaluations", "H_diag", "prev_loss", "t", "d", "prev_flat_grad", and "old_dirs", "old_stps" [history, n].
  nn::StateDict state_dict() const;
  /// Errors  UsageError that lists entries that are missing, unknown, or of another shape; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 private:
  struct Point {
    double loss = 0;
    Tensor gradient;   // flat
    double slope = 0;  // along the direction
  };
  Point evaluate_at(const Evaluate& evaluate, const Tensor& parameters);
  Tensor gradient_of(const Evaluation& evaluation) const;
  Tensor direction(const Tensor& gradient) const;
  void assign(const Tensor& flat);
  Tensor flat_parameters() const;
  Point strong_wolfe(const Evaluate& evaluate, const Tensor& start, double& length, const Point& first);

  std::vector<Variable> variables_;
  LBFGSOptions options_;
  Extent iteration_count_ = 0, evaluation_count_ = 0;
  std::vector<Tensor> gradient_changes_, steps_;  // the latest last
  std::vector<double> curvatures_;                // 1 / (y . s)
  double scale_ = 1, length_ = 0, loss_ = 0;      // of the first Hessian; of the last step; of the last iteration
  Tensor direction_, gradient_;
};

}  // namespace weft::optim
