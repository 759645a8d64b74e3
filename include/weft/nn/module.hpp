// Modules: a tree of named parameters.
#pragma once

#include <atomic>
#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/nn/init.hpp"
#include "weft/nn/state.hpp"
#include "weft/tensor.hpp"

namespace weft::nn {

class Module;

struct ParameterOptions {
  /// Whether weight decay applies. Unset: yes for rank 2 and above (matrices), no below (biases, gains of norms).
  std::optional<bool> decay = {};
};

/// A parameter of a module: a Variable whose elements are drawn when it is first read. By then the tree is built and the full
/// name ("blocks.0.mlp.up.weight") is known, which selects the stream of random numbers. So a parameter has the same initial
/// bits on every device, and other parameters do not affect them.
class Parameter {
 public:
  operator Tensor() const { return variable().value(); }
  Tensor value() const { return variable().value(); }
  const Variable& variable() const;
  const Shape& shape() const;

 private:
  friend class Module;
  struct Record;
  explicit Parameter(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  std::shared_ptr<Record> record_;
};

namespace detail {
struct ModuleHooks;
/// Throws if a module in these bytes, other than `module`, has no parent.
void check_members(const Module& module, const void* begin, std::size_t bytes);
}  // namespace detail

/// A parameter with its full name.
struct NamedParameter {
  std::string name;
  Variable variable;
  bool decay = true;
};

/// Base of everything that has parameters. A module names its children and parameters. Children are members of the derived
/// class (or owned by a list), and the base class refers to them, so a module can be neither copied nor moved. Thread safety:
/// none; one thread at a time.
class Module {
 public:
  Module();
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Every parameter of the tree in order, each once.
  std::vector<Variable> parameters() const;
  std::vector<NamedParameter> named_parameters() const;
  std::vector<NamedVariable> named_buffers() const;
  /// Number of elements of all parameters, without making them.
  Extent parameter_count() const;
  /// (name, child) of this module.
  std::vector<std::pair<std::string, const Module*>> children() const;
  /// (name, shape) of this module's own parameters.
  std::vector<std::pair<std::string, Shape>> own_parameters() const;
  /// "blocks.0.mlp": names from the root to here; empty for the root.
  std::string path() const;

  /// Draws all parameters again with this seed. Without this call they are drawn with the seed of `manual_seed`.
  void initialize(std::uint64_t seed);
  void train(bool on = true);
  void eval() { train(false); }
  /// A compiled function that calls this is traced once for each mode.
  bool is_training() const;
  /// Whether gradients flow to the parameters of this tree.
  void set_requires_grad(bool on);
  /// Clears the gradients that `backward` accumulated.
  void zero_grad();

  /// Parameters and buffers by their dotted names.
  StateDict state_dict() const;
  /// Errors  UsageError that lists every name missing and unknown and every shape or dtype that differs; then nothing is
  ///         changed. If `strict` is false, missing and unknown names are ignored; PyTorch's num_batches_tracked beside
  ///         running_mean always is. Arrays of other dtypes are cast if that loses nothing (`cast_state`), and with `lossy` always.
  void load_state_dict(const StateDict& state, bool strict = true, bool lossy = false);
  /// As safetensors. Errors: FileError; `load` also as `load_state_dict`.
  void save(const std::filesystem::path& path) const;
  void load(const std::filesystem::path& path);

  /// "Linear 128 -> 384", for tables.
  virtual std::string describe() const { return "Module"; }
  /// Floating-point operations of one row (one token) of a forward pass in this module, without its children.
  virtual double own_flops() const { return 0; }
  /// Whether operator() runs the hooks of this module. If not, registering one is an error.
  virtual bool runs_hooks() const { return true; }

 protected:
  /// Names a child that outlives this module or is a member of it.
  /// Errors  UsageError: a name that is empty, holds a dot, or is taken; a child that has a parent or is this module.
  void add(std::string_view name, Module& child);
  /// Takes a child out, with its parameters; it may be added elsewhere. Errors: UsageError if it is not a child.
  void remove(Module& child);
  /// An f32 parameter. Errors: UsageError for the name, as above; ShapeError for a negative extent.
  Parameter parameter(std::string_view name, const Shape& shape, const Init& init, ParameterOptions options = {});
  /// compute(x) with the hooks of this module around it (weft/nn/hooks.hpp). An operator() passes its work to this function, or
  /// else its hooks do not run.
  template <class F>
  Tensor with_hooks(const Tensor& x, F&& compute) const {
    if (!hooks_) return compute(x);
    const Tensor input = before_call(x);
    return after_call(input, compute(input));
  }
  /// State that is saved but not trained.
  Variable buffer(std::string_view name, const Tensor& initial);

 private:
  friend class Parameter;
  friend detail::ModuleHooks& hooks_of(Module& module);
  template <class M>
  friend class Child;
  void check_name(std::string_view name) const;
  Tensor before_call(const Tensor& x) const;
  Tensor after_call(const Tensor& input, const Tensor& output) const;
  const Module& root() const;
  template <class F>
  void visit(const std::string& prefix, F&& f) const;
  std::vector<NamedVariable> named_state() const;

  Module* parent_ = nullptr;
  std::string name_;
  std::shared_ptr<std::atomic<bool>> training_ = std::make_shared<std::atomic<bool>>(true);
  mutable std::optional<std::uint64_t> seed_;  // set at the root: given, or the generator's seed at the first draw
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::shared_ptr<Parameter::Record>> parameters_;
  std::vector<NamedVariable> buffers_;
  std::shared_ptr<detail::ModuleHooks> hooks_;  // null until one is registered
};

/// Looks for members that are modules and were not added, which would be neither trained nor saved. `Child`, `ModuleList`,
/// `Sequential` and optimisers call this. A module that should stay apart can be held by a pointer.
/// Errors  UsageError that names the type, the sizes and the place of such a member.
template <std::derived_from<Module> M>
void check_members(const M& module) {
  if constexpr (!std::is_same_v<M, Module>) detail::check_members(module, &module, sizeof(M));
}

/// A member that adds itself to the module that it is a member of:
///
///     struct Classifier : nn::Module {
///       nn::Child<nn::Linear> hidden{this, "hidden", 784, 128}, output{this, "output", 128, 10};
///     };
///
/// Errors: as `Module::add`.
template <class M>
class Child : public M {
 public:
  template <class... Arguments>
  Child(Module* parent, std::string_view name, Arguments&&... arguments) : M(std::forward<Arguments>(arguments)...) {
    check_members<M>(*this);
    parent->add(name, *this);
  }
};

/// A list that owns its modules and names them "0", "1", ...
template <class M>
class ModuleList : public Module {
 public:
  template <class... Arguments>
  M& emplace(Arguments&&... arguments) {
    items_.push_back(std::make_unique<M>(std::forward<Arguments>(arguments)...));
    check_members(*items_.back());
    add(std::to_string(items_.size() - 1), *items_.back());
    return *items_.back();
  }
  std::size_t size() const { return items_.size(); }
  M& operator[](std::size_t i) { return *items_[i]; }
  const M& operator[](std::size_t i) const { return *items_[i]; }
  std::string describe() const override { return "ModuleList of " + std::to_string(items_.size()); }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

}  // namespace weft::nn
