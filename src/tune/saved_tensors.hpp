// Tensors of a model that train as a whole beside an adapter's low-rank matrices (PEFT's modules_to_save).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "llm/adapter_contents.hpp"
#include "llm/adapter_file.hpp"
#include "llm/engine.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

class SavedTensors {
 public:
  /// Tensors of the modules that `options` names, as the model has them, or those that the adapter holds to go on with. `graph` then reads
  /// values that train in their places: of a table of tokens that is the head too, only the one that is named.
  /// Errors: UsageError for names without a module, and for modules that get low-rank matrices too; FileError for tensors that do not fit.
  SavedTensors(const llm::detail::Engine& engine, llm::ModelGraph& graph, const TunerOptions& options,
               const llm::AdapterContents& from);

  bool empty() const { return saved_.empty(); }
  std::vector<Variable> variables() const;
  /// By the names that the graph reads them by.
  std::map<std::string, Tensor> values() const;
  /// As folders name them.
  std::vector<llm::SavedTensor> to_write() const;

 private:
  struct Saved {
    std::string key;
    Variable variable;
  };
  std::vector<Saved> saved_;
};

}  // namespace weft::tune
