// Plans of eager code, kept by structure.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/node.hpp"
#include "ops/scalar.hpp"
#include "runtime/structure.hpp"

namespace weft::runtime {

struct Executable;

/// A plan, and the data to run it for another graph of its structure. One thread runs it at a time, under `mutex`.
struct CachedPlan {
  std::mutex mutex;
  std::shared_ptr<Executable> executable;  // null until the first thread that needs it has compiled it
  std::vector<bool> is_operand;            // for each hole; the values of other holes are part of the plan:
  std::vector<std::uint64_t> values;
  std::vector<Blueprint::Operand> operands;  // without their nodes
  std::vector<int> bindings;                 // for each leaf of the plan: a leaf of the structure, or -1 - an operand
  std::uint64_t last_use = 0;
};

/// A number that differs from the existing plans becomes an operand, so that it never needs another plan. The first plan
/// contains all numbers: most never change, and 0 and 1 allow simplification. Starts of slices become operands later, because a
/// slice at a known place is read in place. Thread safe.
class PlanCache {
 public:
  static constexpr std::size_t kPlansMax = 256;

  /// The plan for this structure: an existing one, or a new one without an executable.
  std::shared_ptr<CachedPlan> find(const Structure& structure);
  /// Removes a plan that could not be compiled.
  void remove(const std::shared_ptr<CachedPlan>& plan);
  void clear();
  /// Number of plans made so far.
  std::size_t made() const;

 private:
  // All plans of one structure.
  struct Family {
    std::vector<std::uint64_t> key;
    std::vector<std::shared_ptr<const scalar::Expression>> expressions;  // kept alive: the key has their addresses
    std::vector<std::shared_ptr<CachedPlan>> plans;
  };
  std::shared_ptr<CachedPlan> add(Family& family, const Structure& structure);
  void drop_oldest();

  mutable std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, Family> families_;
  std::size_t count_ = 0, made_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace weft::runtime
