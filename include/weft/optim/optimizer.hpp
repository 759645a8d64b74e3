// Optimisers: updates of all parameters as a few elementwise ops on flat variables.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/nn/module.hpp"
#include "weft/optim/loss_scale.hpp"
#include "weft/tensor.hpp"

namespace weft::optim {

/// The parameters that an optimiser trains, and which of them decay. Made from a module (parameters that require gradients,
/// with the module's decay) or from variables (those of rank 2 and above decay).
struct ParameterList {
  ParameterList(const nn::Module& module);  // NOLINT: implicit, so that callers can pass the whole module
  /// Errors  UsageError if a module is a member of this one and was not added to it.
  template <std::derived_from<nn::Module> M>
  ParameterList(const M& module) : ParameterList(static_cast<const nn::Module&>(module)) {  // NOLINT: as above
    nn::check_members(module);
  }
  ParameterList(const std::vector<Variable>& variables);      // NOLINT
  ParameterList(std::vector<nn::NamedParameter> parameters);  // NOLINT
  std::vector<nn::NamedParameter> parameters;
};

struct Clipped {
  std::vector<Tensor> gradients;
  Tensor norm;  // before clipping
};
/// All gradients times min(1, max_norm / (norm + 1e-6)), with one norm over all of them.
Clipped clip_grad_norm(std::span<const Tensor> gradients, double max_norm);
/// Every gradient divided by its own norm + 1e-8.
std::vector<Tensor> normalize_gradients(std::span<const Tensor> gradients);

/// Options of all optimisers.
struct CommonOptions {
  double learning_rate = 1e-3;
  /// Global norm that gradients are clipped to; 0: no clipping.
  double clip_norm = 0;
  /// Chooses by name which parameters decay; unset: as the parameters say.
  std::function<bool(std::string_view)> decay_filter = {};
};

/// Base of optimisers. The constructor puts parameters that are treated alike one after another into one flat variable
/// (weft::flatten_together; those with a multiple of 64 elements first, so that they stay aligned), with flat state beside it.
/// Parameters that already are part of another optimiser's flat variable stay there, and are copied at each step. So more
/// of a model can be trained later on.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// The parameters in the order in which `step` expects gradients.
  const std::vector<Variable>& parameters() const { return variables_; }
  /// Makes one update. Returns the global norm of the gradients before clipping, which is computed only if you read it.
  /// Errors  UsageError: not one gradient for each parameter. ShapeError: a gradient of another shape.
  Tensor step(std::span<const Tensor> gradients);
  /// The same with a learning rate of rank 0 that may change from call to call of a compiled function.
  Tensor step(std::span<const Tensor> gradients, const Tensor& learning_rate);
  /// The same for gradients of a loss times the scale's factor. The norm is that of the loss itself; where it is not finite,
  /// parameters, state and step count stay, and the scale falls.
  Tensor step(std::span<const Tensor> gradients, const Tensor& learning_rate, LossScale& scale);

  double learning_rate() const;
  void set_learning_rate(double rate);
  /// Updates made so far.
  std::int64_t step_count() const;

  /// Forgets the moments and the number of updates, as if no update had been made. The parameters and the learning rate stay, and so
  /// do compiled functions that make updates.
  void reset();

  /// State by parameter: "step", "learning_rate", "moment_1.blocks.0.mlp.up.weight", ...
  nn::StateDict state_dict() const;
  /// Errors  UsageError that lists entries that are missing, unknown, or of another shape; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 protected:
  struct Group {
    Variable flat;
    std::vector<std::size_t> members;  // indices in the parameter list, in their order inside `flat`
    bool decay = false;
    std::vector<Variable> state;  // one flat variable for each of state_names()
    bool is_copy = false;         // `flat` holds copies of parameters that lie elsewhere
  };
  /// `state_names` are the flat variables kept beside each group's parameters.
  Optimizer(ParameterList list, const CommonOptions& options, std::vector<std::string> state_names);
  /// Assigns the group's parameters and state. `step` is the number of this update, counted from 1, as f32 of rank 0.
  virtual void update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) = 0;

 private:
  std::vector<nn::NamedVariable> scalars() const;
  Tensor step(std::span<const Tensor> gradients, const Tensor& learning_rate, LossScale* scale);
  void update_if(const Tensor& finite, Group& group, const Tensor& gradient, const Tensor& learning_rate,
                 const Tensor& step);

  std::vector<nn::NamedParameter> parameters_;
  std::vector<Variable> variables_;
  std::vector<Group> groups_;
  std::vector<std::string> state_names_;
  double clip_norm_;
  Variable step_, learning_rate_;
};

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// g = gradient + weight_decay * p; b = momentum * b + (1 - dampening) * g (the first time: b = g); d = g + momentum * b if
/// nesterov, else b (without momentum: g); p = p - rate * d (maximize: the gradient's sign is flipped).
class SGD : public Optimizer {
 public:
  explicit SGD(ParameterList parameters, SgdOptions options = {});

 private:
  void update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) override;
  SgdOptions options_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = p - rate * m' / (sqrt(v') + epsilon), with m' = m / (1 - b1^t) and
/// v' = v / (1 - b2^t). weight_decay * p is added to the gradient (L2). Source: Kingma and Ba 2014, arXiv:1412.6980.
class Adam : public Optimizer {
 public:
  explicit Adam(ParameterList parameters, AdamOptions options = {});

 protected:
  Adam(ParameterList parameters, AdamOptions options, bool decoupled);

 private:
  void update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) override;
  AdamOptions options_;
  bool decoupled_;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Adam, but parameters that decay are multiplied by 1 - rate * weight_decay instead (decoupled decay).
/// Source: Loshchilov and Hutter 2017, arXiv:1711.05101.
class AdamW : public Adam {
 public:
  explicit AdamW(ParameterList parameters, AdamWOptions options = {});
};

}  // namespace weft::optim
