// A template that was looked through: its elements with their places, and what each waits for.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/registry.hpp"
#include "weft/workflow/check.hpp"
#include "weft/workflow/template.hpp"

namespace weft::workflow {

struct PlanNode {
  const Element* element = nullptr;
  PlanNode* parent = nullptr;
  std::size_t index = 0;  // among its siblings
  std::string path;       // of JSON
  std::string key;        // "root.1.0", for the nodes of a run
  std::vector<PlanNode*> children;
  /// Siblings in a parallel that it refers to; it starts when they are completed.
  std::set<std::size_t> waits_for;
  /// All elements outside of it that it, or an element in it, refers to: they come before it.
  std::set<const PlanNode*> reads;
  std::shared_ptr<const operations::Specification> specification;  // of an operation
};

/// What a reference names, as seen from an element.
struct Source {
  enum class Kind : std::uint8_t { none, input, previous, before, index, item, result } kind = Kind::none;
  const PlanNode* node = nullptr;  // of an item, or of what was before it, its map; of a result its element
};

class Plan {
 public:
  /// Looks a template through, which must outlive the plan. The operations are not needed to run it; without a registry they are
  /// not looked up.
  Plan(const Template& workflow, const operations::Registry* registry, bool internal);

  const PlanNode& root() const { return *root_; }
  const std::vector<Problem>& problems() const { return problems_; }
  const std::deque<PlanNode>& nodes() const { return nodes_; }  // parents before children
  /// What a name means at an element. `fact` says why nothing is meant.
  Source source_of(std::string_view name, const PlanNode& at, std::string* fact = nullptr) const;
  /// The element with this id inside of another one, whose `output` sees its result; null if there is none.
  const PlanNode* result_inside(std::string_view name, const PlanNode& node) const;
  /// The element whose result is "$.previous"; null for the workflow's input. `map` is set where the item before is meant.
  const PlanNode* previous_of(const PlanNode& at, const PlanNode** map) const;
  /// Adds a problem, unless there are enough.
  void report(std::string_view code, std::string path, std::string message);

 private:
  PlanNode* add(const Element& element, PlanNode* parent, std::size_t index, std::string path, std::string key);
  void check_element(PlanNode& node);
  void find_operation(PlanNode& node, const operations::Registry& registry, bool internal);
  void check_references(PlanNode& node);
  void check_reference(PlanNode& node, const std::string& text, const std::string& path, bool is_output);
  void depend(PlanNode& from, const PlanNode& on, const std::string& path, const std::string& text);
  void check_cycles(const PlanNode& node);

  const Template& workflow_;
  std::deque<PlanNode> nodes_;
  PlanNode* root_ = nullptr;
  std::map<std::string, PlanNode*, std::less<>> ids_;
  std::set<std::string, std::less<>> items_;  // names of maps' items
  std::vector<Problem> problems_;
};

/// Finds types that do not fit, and reports them to the plan. Returns how the inputs of operations fit.
std::map<const PlanNode*, Fit> check_types(const Template& workflow, Plan& plan);

/// Calls `visit` with each value of an element that may have references, and its path.
void for_each_value(const PlanNode& node,
                    const std::function<void(const Value& value, const std::string& path, bool is_output)>& visit);

}  // namespace weft::workflow
