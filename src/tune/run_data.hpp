// What a run learns from: examples or preferences, in rows, and how many steps they make.
#pragma once

#include <optional>
#include <string>

#include "weft/tune.hpp"

namespace weft::tune {

/// Errors: UsageError for numbers out of range.
void check(const Request& request);
/// The request with this batch, if it names none.
Request with_batch(Request request, Extent batch);

struct RunData {
  /// Errors: FileError; UsageError for a batch that preferences do not take, and for two files of different kinds.
  RunData(const Request& request, const llm::Model& model, Extent texts_of_row);
  RunData(const RunData&) = delete;  // the streams refer to the examples
  RunData& operator=(const RunData&) = delete;

  std::string note_of_cut(Extent context) const;

  Examples examples, apart;  ///< apart: those of a file for validation
  bool learns_preferences = false;
  double learning_rate = 0;
  std::size_t training_preferences = 0, validation_preferences = 0;
  std::optional<RowStream> train, validate;
  std::int64_t steps = 0;

 private:
  template <class T>
  void make_streams(const Request& request, const std::vector<T>& all, const std::vector<T>& other,
                    Extent texts_of_row);
  std::int64_t planned_steps(const Request& request);
};

}  // namespace weft::tune
