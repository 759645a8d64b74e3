#include "weft/nn/module.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <typeinfo>
#include <unordered_set>

#include "graph/trace_scope.hpp"
#include "weft/ops.hpp"

namespace weft::nn {

struct Parameter::Record {
  const Module* owner;
  std::string name;
  Shape shape;
  Init init;
  bool decay;
  bool requires_grad = true;
  Variable variable;  // undefined until first used
};

namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// A variable with initial values from the host.
Variable make_variable(const void* values, const Shape& shape, DType type, const std::string& name,
                       bool requires_grad) {
  return Variable(tensor_from_bytes(values, shape, type), name, requires_grad);
}

std::uint64_t default_seed() { return random_state().value().to_vector<std::uint32_t>().at(0); }

}  // namespace

const Variable& Parameter::variable() const {
  Record& record = *record_;
  if (!record.variable.defined()) {
    const graph::TraceScope::Outside drawn_once;  // not by a compiled function, at each of its calls
    const Module& root = record.owner->root();
    const std::string name = joined(record.owner->path(), record.name);
    if (!root.seed_) root.seed_ = default_seed();
    // Not a vector, whose zeros would first touch all of the memory on one thread.
    const auto count = static_cast<std::size_t>(record.shape.numel());
    const auto values = std::make_unique_for_overwrite<float[]>(count);
    draw_into({values.get(), count}, record.init, *root.seed_, name);
    record.variable = make_variable(values.get(), record.shape, DType::f32, name, record.requires_grad);
  }
  return record.variable;
}

const Shape& Parameter::shape() const { return record_->shape; }

namespace {

// Modules without a parent, in the order of their addresses, of all sessions and threads.
struct Orphans {
  std::mutex mutex;
  std::set<const Module*, std::less<>> modules;
  static Orphans& all() {
    static Orphans& orphans = *new Orphans;  // outlives modules that are static themselves
    return orphans;
  }
  void insert(const Module* module) {
    const std::lock_guard lock(mutex);
    modules.insert(module);
  }
  void erase(const Module* module) {
    const std::lock_guard lock(mutex);
    modules.erase(module);
  }
};

std::string type_name(const Module& module) {
  const char* mangled = typeid(module).name();
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         &std::free);
  return name ? name.get() : mangled;
}

}  // namespace

void detail::check_members(const Module& module, const void* begin, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(begin);
  const Module* forgotten = nullptr;
  {
    Orphans& orphans = Orphans::all();
    const std::lock_guard lock(orphans.mutex);
    for (auto at = orphans.modules.lower_bound(static_cast<const Module*>(begin)); at != orphans.modules.end(); ++at) {
      const auto* place = reinterpret_cast<const std::byte*>(*at);
      if (!std::less<>()(place, first + bytes)) break;
      if (*at == &module) continue;
      forgotten = *at;
      break;
    }
  }
  if (forgotten)
    throw UsageError(fmt::format(
        "module: {} has a member {} ({}), {} bytes from its beginning, that was not added, so it would be neither "
        "trained nor "
        "saved; declare it as nn::Child, or call add(\"name\", member) in the constructor, or hold it by a pointer",
        type_name(module), type_name(*forgotten), forgotten->describe(),
        reinterpret_cast<const std::byte*>(forgotten) - first));
}

Module::Module() { Orphans::all().insert(this); }

Module::~Module() {
  Orphans::all().erase(this);
  for (auto& [name, child] : children_) {
    child->parent_ = nullptr;
    Orphans::all().insert(child);
  }
  if (parent_) std::erase_if(parent_->children_, [this](const auto& entry) { return entry.second == this; });
}

void Module::remove(Module& child) {
  if (child.parent_ != this)
    throw UsageError(fmt::format("module: {} is not a child of this module", child.describe()));
  std::erase_if(children_, [&](const auto& entry) { return entry.second == &child; });
  child.parent_ = nullptr;
  Orphans::all().insert(&child);
}

void Module::check_name(std::string_view name) const {
  if (name.empty() || name.find('.') != std::string_view::npos)
    throw UsageError(
        fmt::format("module: the name \"{}\" is empty or holds a dot; names are joined by dots to paths", name));
  const bool taken =
      std::any_of(children_.begin(), children_.end(), [&](const auto& c) { return c.first == name; }) ||
      std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& p) { return p->name == name; }) ||
      std::any_of(buffers_.begin(), buffers_.end(), [&](const auto& b) { return b.name == name; });
  if (taken)
    throw UsageError(fmt::format("module: the name \"{}\" is taken; give each child and parameter its own", name));
}

void Module::add(std::string_view name, Module& child) {
  check_name(name);
  if (child.parent_)
    throw UsageError(fmt::format(
        "module: \"{}\" already is \"{}\" of another module; use it there, or make a second one", name, child.path()));
  for (const Module* m = this; m; m = m->parent_)
    if (m == &child) throw UsageError(fmt::format("module: \"{}\" would contain itself", name));
  child.parent_ = this;
  child.name_ = name;
  children_.emplace_back(name, &child);
  Orphans::all().erase(&child);
}

Parameter Module::parameter(std::string_view name, const Shape& shape, const Init& init, ParameterOptions options) {
  check_name(name);
  for (const Extent extent : shape)
    if (extent < 0) throw ShapeError(fmt::format("parameter \"{}\": negative extent in {}", name, shape.to_string()));
  parameters_.push_back(std::make_shared<Parameter::Record>(
      Parameter::Record{this, std::string(name), shape, init, options.decay.value_or(shape.rank() >= 2), true, {}}));
  return Parameter(parameters_.back());
}

Variable Module::buffer(std::string_view name, const Tensor& initial) {
  check_name(name);
  buffers_.push_back({std::string(name), Variable(initial, name, false)});
  return buffers_.back().variable;
}

const Module& Module::root() const {
  const Module* m = this;
  while (m->parent_) m = m->parent_;
  return *m;
}

std::string Module::path() const { return parent_ ? joined(parent_->path(), name_) : ""; }

// f(prefix, module) for every module of the tree, parents before children.
template <class F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const auto& [name, child] : children_) child->visit(joined(prefix, name), f);
}

std::vector<NamedParameter> Module::named_parameters() const {
  std::vector<NamedParameter> result;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& record : m.parameters_)
      result.push_back({joined(prefix, record->name), Parameter(record).variable(), record->decay});
  });
  return result;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> result;
  for (const NamedParameter& p : named_parameters()) result.push_back(p.variable);
  return result;
}

std::vector<NamedVariable> Module::named_buffers() const {
  std::vector<NamedVariable> result;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const NamedVariable& b : m.buffers_) result.push_back({joined(prefix, b.name), b.variable});
  });
  return result;
}

Extent Module::parameter_count() const {
  Extent count = 0;
  visit("", [&](const std::string&, const Module& m) {
    for (const auto& record : m.parameters_) count += record->shape.numel();
  });
  return count;
}

std::vector<std::pair<std::string, const Module*>> Module::children() const {
  return {children_.begin(), children_.end()};
}

std::vector<std::pair<std::string, Shape>> Module::own_parameters() const {
  std::vector<std::pair<std::string, Shape>> result;
  for (const auto& record : parameters_) result.emplace_back(record->name, record->shape);
  return result;
}

void Module::initialize(std::uint64_t seed) {
  root().seed_ = seed;
  StateDict state;
  std::vector<NamedVariable> made;
  visit(path(), [&](const std::string& prefix, const Module& m) {
    for (const auto& record : m.parameters_) {
      if (!record->variable.defined()) continue;  // drawn on first use
      const std::string name = joined(prefix, record->name);
      const std::vector<float> values = draw(record->init, record->shape.numel(), seed, name);
      const auto bytes = std::as_bytes(std::span(values));
      made.push_back({name, record->variable});
      state.push_back({name, DType::f32, record->shape, {bytes.begin(), bytes.end()}});
    }
  });
  if (!made.empty()) write_state(made, state, true, "initialize");
}

bool Module::is_training() const {
  const bool on = *training_;
  if (graph::TraceScope* trace = graph::TraceScope::current()) trace->note(training_, on);
  return on;
}

void Module::train(bool on) {
  *training_ = on;
  for (auto& [name, child] : children_) child->train(on);
}

void Module::set_requires_grad(bool on) {
  visit("", [&](const std::string&, const Module& m) {
    for (const auto& record : m.parameters_) {
      record->requires_grad = on;
      if (record->variable.defined()) record->variable.set_requires_grad(on);
    }
  });
}

void Module::zero_grad() {
  visit("", [](const std::string&, const Module& m) {
    for (const auto& record : m.parameters_)
      if (record->variable.defined()) record->variable.clear_grad();
  });
}

std::vector<NamedVariable> Module::named_state() const {
  std::vector<NamedVariable> result;
  for (const NamedParameter& p : named_parameters()) result.push_back({p.name, p.variable});
  for (const NamedVariable& b : named_buffers()) result.push_back(b);
  return result;
}

StateDict Module::state_dict() const { return read_state(named_state()); }

void Module::load_state_dict(const StateDict& given_state, bool strict, bool lossy) {
  std::vector<NamedShape> expected;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& record : m.parameters_)
      expected.push_back({joined(prefix, record->name), DType::f32, record->shape});
    for (const NamedVariable& b : m.buffers_)
      expected.push_back({joined(prefix, b.name), b.variable.dtype(), b.variable.shape()});
  });
  bool casts = false;
  for (const NamedShape& want : expected) {
    const NamedArray* given = find(given_state, want.name);
    casts = casts || (given && given->dtype != want.dtype);
  }
  const StateDict cast = casts ? cast_state(given_state, expected, lossy) : StateDict{};
  const StateDict& state = casts ? cast : given_state;
  check_state(expected, state, strict, describe());
  // Parameters that have not been used yet get the loaded values directly: drawing them first would be wasted.
  std::vector<NamedVariable> made;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& record : m.parameters_) {
      const std::string name = joined(prefix, record->name);
      const NamedArray* given = find(state, name);
      if (!given) continue;
      if (record->variable.defined())
        made.push_back({name, record->variable});
      else
        record->variable = make_variable(given->bytes.data(), record->shape, DType::f32, joined(m.path(), record->name),
                                         record->requires_grad);
    }
    for (const NamedVariable& b : m.buffers_)
      if (find(state, joined(prefix, b.name))) made.push_back({joined(prefix, b.name), b.variable});
  });
  write_state(made, state, false, describe());
}

void Module::save(const std::filesystem::path& path) const { save_state(path, state_dict()); }

void Module::load(const std::filesystem::path& path) {
  try {
    load_state_dict(load_state(path));
  } catch (Error& error) {
    error.add_context(fmt::format("loading {}", path.string()));
    throw;
  }
}

}  // namespace weft::nn
