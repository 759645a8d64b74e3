// What of a model trains: the low-rank matrices beside its products, and with DoRA the lengths of the rows of the changed matrices.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "llm/adapter.hpp"
#include "llm/weights.hpp"
#include "weft/nn/state.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

class Parameters {
 public:
  /// Errors: as `Tuner`.
  /// `is_planned`: the weights have no values.
  Parameters(llm::ModelGraph plain, const llm::Weights& weights, const TunerOptions& options, Device device,
             bool is_planned);

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
    Variable magnitude;  // undefined without DoRA; then also what the lengths of rows are made of:
    Tensor weight, squares;
  };
  std::vector<llm::LowRank> begin_anew(const TunerOptions& options) const;
  void add(const llm::LowRank& change, const llm::Weights& weights, const TunerOptions& options, Device device,
           bool is_planned);

  llm::ModelGraph plain_, graph_;
  std::vector<Pair> pairs_;
};

}  // namespace weft::tune
