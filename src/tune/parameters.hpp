// What of a model trains: an adapter beside its products, or all of its weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llm/engine.hpp"
#include "weft/nn/state.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

class Parameters {
 public:
  virtual ~Parameters() = default;
  virtual const llm::ModelGraph& graph() const = 0;
  virtual std::vector<Variable> variables() const = 0;
  /// Constants of the graph with the values that train.
  virtual std::map<std::string, Tensor> values() const = 0;
  /// Products that have an adapter.
  virtual std::vector<std::string> products() const = 0;
  virtual void save(const std::filesystem::path& path) const = 0;

  std::vector<nn::NamedVariable> named() const;
  std::int64_t count() const;
};

/// The weights of a model, which all train with `TunerOptions::full`.
std::vector<std::pair<std::string, Shape>> constants_of(const llm::ModelGraph& graph);

/// Errors: as `Tuner`.
std::unique_ptr<Parameters> adapter_parameters(const llm::detail::Engine& engine, const TunerOptions& options);
std::unique_ptr<Parameters> full_parameters(const llm::detail::Engine& engine, const TunerOptions& options);

}  // namespace weft::tune
