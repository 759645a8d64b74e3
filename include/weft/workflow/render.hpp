// A workflow that is rendered again and again: an equal tree is replayed, a changed one is checked.
#pragma once

#include <vector>

#include "weft/tree.hpp"
#include "weft/workflow/run.hpp"

namespace weft::workflow {

/// Holds one version of a template, checked once. Thread safety: one thread at a time; the exchange must outlive it.
class Rendered {
 public:
  explicit Rendered(operations::Exchange& exchange) : exchange_(exchange) {}

  /// Makes this the version that runs. For an equal one nothing is read or checked again. Returns the edits of its tree; none the first
  /// time. Elements are versions of each other by their ids (tree::match). Errors: UsageError with all problems; then the version
  /// before stays.
  std::vector<tree::Edit> render(const Value& workflow);
  /// Runs the version at hand. Operations that were removed since then are OPERATION_NOT_FOUND. Errors: UsageError before the first
  /// `render`; as workflow::start.
  Run start(Value input, const RunOptions& options = {}) const;
  /// How many versions were read and checked.
  int version() const { return version_; }
  const Template& workflow() const { return template_; }

 private:
  operations::Exchange& exchange_;
  Value given_;
  Template template_;
  int version_ = 0;
};

}  // namespace weft::workflow
