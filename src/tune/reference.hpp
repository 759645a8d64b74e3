// What the reference model of preferences gives their texts, which does not change during a run.
#pragma once

#include <stop_token>
#include <vector>

#include "weft/tune.hpp"

namespace weft::tune {

class Reference {
 public:
  Reference() = default;
  explicit Reference(std::size_t preferences);

  std::size_t count() const { return values_.size() / 2; }
  /// Writes the log-probabilities of the rows' texts into them.
  void set(Rows& rows) const;
  /// Computes those of the first rows of a stream, in batches, by the model as it is. Ends early at a stop.
  void compute(Tuner& tuner, RowStream& stream, std::int64_t rows, Extent batch, const std::stop_token& stop);

  void put_into(nn::StateDict& state, const char* name) const;
  /// Errors: UsageError if there is no such array, or one of another number of preferences.
  void take_from(nn::StateDict& state, const char* name);

 private:
  std::vector<float> values_;  // of the chosen and the rejected text of each preference; NaN: not computed
};

}  // namespace weft::tune
