// The base of optimisers: updates of all parameters as a few elementwise ops on flat variables.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
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

/// The value of an option of an update rule.
using OptionValue = std::variant<double, bool, Extent>;

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
  /// The same with the optimiser's own learning rates.
  Tensor step(std::span<const Tensor> gradients, LossScale& scale);

  /// That of the first group. Setting it keeps the ratios of the other groups' rates to it.
  double learning_rate() const;
  void set_learning_rate(double rate);
  /// Groups of parameters that have options of their own.
  std::size_t group_count() const { return rate_ratios_.size(); }
  /// The learning rate of one group. Setting it leaves those of the others; compiled functions see it too, unless they were given a
  /// rate. Errors  UsageError: no such group, or a rate that is not a number of at least 0.
  double group_learning_rate(std::size_t group) const;
  void set_group_learning_rate(std::size_t group, double rate);
  /// Another value of a group's option for later steps, and for functions that are compiled later. The options are those of the
  /// rule's table (weft/optim/table.hpp).
  /// Errors  UsageError: no such group or option, a value outside of its range, or one that needs another state (momentum of an
  ///         SGD that was made without).
  virtual void set_group_option(std::size_t group, const std::string& name, OptionValue value) = 0;

  /// Updates made so far.
  std::int64_t step_count() const;

  /// Forgets the moments and the number of updates, as if no update had been made. The parameters and the learning rate stay, and so
  /// do compiled functions that make updates.
  void reset();

  /// Bytes of the state beside the parameters.
  std::uint64_t state_bytes() const;

  /// State by parameter, with PyTorch's names: "step", "learning_rate", "exp_avg.blocks.0.mlp.up.weight", ...
  nn::StateDict state_dict() const;
  /// Also reads the names that Weft used before ("moment_1", "moment_2", "momentum").
  /// Errors  UsageError that lists entries that are missing, unknown, or of another shape; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// A variable that is kept beside parameters. `shape` gives its part for one parameter; null: the parameter's own shape.
  struct State {
    std::string name;
    double initial = 0;
    Shape (*shape)(const Shape& parameter) = nullptr;
    std::string older_name = {};  // its name in files of earlier versions
  };
  /// Parameters that are treated alike.
  struct Group {
    Variable flat;
    std::vector<std::size_t> members;  // indices in the parameter list, in their order inside `flat`
    bool decay = false;
    bool is_copy = false;  // `flat` holds copies of parameters that lie elsewhere
    int kind = 0;          // which of the optimiser's rules updates them
    std::size_t set = 0;   // which set of options they have
    std::vector<State> description;
    std::vector<Variable> state;  // one for each description; the parts of the members one after another
  };
  /// How an optimiser treats its parameters.
  struct Layout {
    /// The kind of a parameter of a set; null: all are of kind 0.
    std::function<int(const nn::NamedParameter&, std::size_t set)> kind = {};
    /// The state of a kind in a set.
    std::function<std::vector<State>(int kind, std::size_t set)> states;
    /// Sets of options, each with the number of its parameters, in the order of the list. The clipping of the first one counts.
    struct Set {
      std::size_t parameters = 0;
      CommonOptions options = {};
    };
    std::vector<Set> sets;
  };
  Optimizer(ParameterList list, const Layout& layout);
  /// Assigns the group's parameters and state. `step` is the number of this update, counted from 1, of rank 0.
  virtual void update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) = 0;
  void check_group(std::size_t group) const;
  void set_clip_norm(double norm) { clip_norm_ = norm; }
  const std::vector<Group>& groups() const { return groups_; }
  const nn::NamedParameter& parameter(std::size_t member) const { return parameters_[member]; }
  const Shape& shape_of(std::size_t member) const { return variables_[member].shape(); }

 private:
  std::vector<nn::NamedVariable> scalars() const;
  /// `learning_rate` undefined: the optimiser's own.
  Tensor step(std::span<const Tensor> gradients, const Tensor& learning_rate, LossScale* scale);
  void update_if(const Tensor& finite, Group& group, const Tensor& gradient, const Tensor& learning_rate,
                 const Tensor& step);
  Shape state_shape(const State& state, std::size_t member) const;

  std::vector<nn::NamedParameter> parameters_;
  std::vector<Variable> variables_;
  std::vector<Group> groups_;
  std::vector<double> rate_ratios_;  // of sets of options, to the first one
  std::vector<double> exact_rates_;  // of sets of options, before they are rounded to f32
  double clip_norm_;
  Variable step_;
  std::vector<Variable> rates_;  // one for each set of options
};

}  // namespace weft::optim
