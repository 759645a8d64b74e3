// What of a model trains: the low-rank matrices beside its products.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "llm/adapter.hpp"
#include "weft/nn/state.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

class Parameters {
 public:
  /// Errors: as `Tuner`.
  Parameters(llm::ModelGraph plain, const TunerOptions& options, Device device);

  const llm::ModelGraph& graph() const { return graph_; }  ///< with the adapter
  std::vector<Variable> variables() const;
  std::vector<nn::NamedVariable> named() const;
  /// Constants of the graph with the values that train.
  std::map<std::string, Tensor> values() const;
  std::vector<std::string> products() const;
  std::int64_t count() const;
  void save(const std::filesystem::path& path, double dropout) const;

 private:
  /// A product with an adapter.
  struct Pair {
    std::string node;
    Extent rank, in, out;
    double scale;
    Variable a, b;
  };
  std::vector<llm::LowRank> begin_anew(const TunerOptions& options) const;

  llm::ModelGraph plain_, graph_;
  std::vector<Pair> pairs_;
};

}  // namespace weft::tune
