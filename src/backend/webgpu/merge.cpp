#include "backend/webgpu/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/webgpu/dispatch_parts.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kGroupsMax = 1024;  // in a dispatch that leaves room for others beside it
constexpr double kOperationsMax = 1e9;      // longer ones fill a device alone
constexpr std::size_t kBranchesMax = 8;     // all branches together determine registers and workgroup memory

bool must_follow(const RenderedDispatch& later, const RenderedDispatch& earlier) {
  for (const BoundRange& a : later.bindings)
    for (const BoundRange& b : earlier.bindings)
      if ((a.changes() || b.changes()) && overlap(a, b)) return true;
  return false;
}

/// Whether the dispatch can be a branch of another one.
bool can_merge(const RenderedDispatch& dispatch) {
  return dispatch.workgroups > 0 && dispatch.workgroups <= kGroupsMax && dispatch.operations <= kOperationsMax &&
         dispatch.repeats == 1 && dispatch.shader.verbatim.empty() && dispatch.shader.folded_groups == 0;
}

/// What dispatches need as the branches of one, in whatever order they are added.
class Needs {
 public:
  struct Binding {
    BoundRange range;
    std::string element;
  };

  void add(const RenderedDispatch& dispatch) {
    ++branches_;
    groups_ += dispatch.workgroups;
    pool_.add(dispatch.shader);
    for (std::size_t i = 0; i < dispatch.bindings.size(); ++i) {
      const std::size_t at = number_of(dispatch, i);
      if (at == bindings_.size()) bindings_.push_back({dispatch.bindings[i], dispatch.shader.storage[i].element});
      if (dispatch.bindings[i].written) {
        bindings_[at].range.written = true;
        written_.insert(dispatch.bindings[i].buffer);
      }
    }
  }

  /// A buffer that is written must be bound as writable everywhere, and writable ranges must not overlap.
  bool fit(const Target& target) const {
    if (branches_ > kBranchesMax || groups_ > target.limits.workgroups_per_dimension ||
        bindings_.size() > target.limits.storage_buffers ||
        pool_.bytes() > static_cast<std::int64_t>(target.limits.workgroup_bytes))
      return false;
    for (std::size_t i = 0; i < bindings_.size(); ++i)
      for (std::size_t j = i + 1; j < bindings_.size(); ++j)
        if (overlap(bindings_[i].range, bindings_[j].range) && is_written(bindings_[i].range.buffer)) return false;
    return true;
  }

  std::uint64_t groups() const { return groups_; }
  const std::vector<Binding>& bindings() const { return bindings_; }
  bool is_written(int buffer) const { return written_.contains(buffer); }
  /// A workgroup takes one branch, so branches share workgroup memory.
  const WorkgroupPool& pool() const { return pool_; }
  /// The number among all bindings of a dispatch's binding `i`.
  std::size_t number_of(const RenderedDispatch& dispatch, std::size_t i) const {
    const BoundRange& range = dispatch.bindings[i];
    const auto is_same = [&](const Binding& b) {
      return b.range.buffer == range.buffer && b.range.offset == range.offset && b.range.bytes == range.bytes &&
             b.element == dispatch.shader.storage[i].element;
    };
    return static_cast<std::size_t>(std::ranges::find_if(bindings_, is_same) - bindings_.begin());
  }

 private:
  std::vector<Binding> bindings_;
  std::set<int> written_;  // buffers
  WorkgroupPool pool_;
  std::size_t branches_ = 0;
  std::uint64_t groups_ = 0;
};

/// The dispatches as one, each of them a function. Branches are in the order of their names and sizes: layers that merge the same
/// work in another order then have equal text, which is compiled once.
RenderedDispatch merged_of(std::vector<const RenderedDispatch*> branches) {
  std::stable_sort(branches.begin(), branches.end(), [](const RenderedDispatch* a, const RenderedDispatch* b) {
    return std::tie(a->name, a->workgroups, a->shader.body) < std::tie(b->name, b->workgroups, b->shader.body);
  });
  Needs needs;
  for (const RenderedDispatch* branch : branches) needs.add(*branch);
  RenderedDispatch merged;
  ShaderPieces& shader = merged.shader;
  shader.threads = branches[0]->shader.threads;
  std::uint64_t begin = 0;
  for (std::size_t b = 0; b < branches.size(); ++b) {
    const RenderedDispatch& branch = *branches[b];
    shader.subgroups = shader.subgroups || branch.shader.subgroups;
    shader.matrices = shader.matrices || branch.shader.matrices;
    shader.helpers.use(branch.shader.helpers);
    ShaderNames names;
    WorkgroupPool::name(branch.shader, names);
    for (std::size_t i = 0; i < branch.bindings.size(); ++i)
      names[fmt::format("data{}", i)] = fmt::format("data{}", needs.number_of(branch, i));
    add_functions(branch.shader, b, names, shader);
    const std::string main = fmt::format("branch_{}", b);
    shader.functions.push_back({main, fmt::format("(group: u32, thread: u32{}) {{\n{}}}\n",
                                                  branch.shader.matrices ? ", subgroup: u32, workgroup: vec3u" : "",
                                                  with_new_names(branch.shader.body, names))});
    const std::uint64_t end = begin + branch.workgroups;
    const std::string condition = b + 1 < branches.size() ? fmt::format("if (group < {}u) ", end) : std::string();
    shader.body += fmt::format("  {}{}{{ ${}(group - {}u, thread{}); }}\n", b ? "else " : "", condition, main, begin,
                               branch.shader.matrices ? ", subgroup, workgroup" : "");
    begin = end;
    merged.name += (b ? " | " : "") + branch.name;
    merged.kernels.insert(merged.kernels.end(), branch.kernels.begin(), branch.kernels.end());
  }
  for (const Needs::Binding& binding : needs.bindings()) {
    BoundRange range = binding.range;
    range.written = needs.is_written(range.buffer);
    shader.storage.push_back({binding.element, range.written});
    merged.bindings.push_back(range);
  }
  for (const RenderedDispatch* branch : branches)
    for (const int number : branch->shader.early)
      shader.early.push_back(static_cast<int>(needs.number_of(*branch, static_cast<std::size_t>(number))));
  // A branch that needs the results of earlier dispatches at its beginning decides for all.
  if (std::ranges::any_of(branches, [](const RenderedDispatch* branch) { return branch->shader.early.empty(); })) {
    shader.early.clear();
    replace_meeting_marks(shader, "");
  }
  needs.pool().declare(shader);
  merged.workgroups = needs.groups();
  return merged;
}

/// The dependencies between dispatches.
struct Order {
  std::vector<std::vector<std::size_t>> after;  // for each, the dispatches that wait for it
  std::vector<int> waits_for;                   // for each, the number of dispatches that it waits for
  std::vector<int> height;                      // for each, the longest chain of waiting dispatches, itself included
};

Order order_of(const std::vector<RenderedDispatch>& dispatches) {
  const std::size_t count = dispatches.size();
  Order order{std::vector<std::vector<std::size_t>>(count), std::vector<int>(count), std::vector<int>(count, 1)};
  for (std::size_t later = 0; later < count; ++later)
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      if (later == earlier + 1 && dispatches[later].beside_previous) continue;
      if (!must_follow(dispatches[later], dispatches[earlier])) continue;
      order.after[earlier].push_back(later);
      ++order.waits_for[later];
    }
  for (std::size_t i = count; i-- > 0;)
    for (const std::size_t later : order.after[i]) order.height[i] = std::max(order.height[i], order.height[later] + 1);
  return order;
}

}  // namespace

// Each turn runs the dispatch at the head of the longest chain, together with all others that are ready and fit. Dispatches
// that do not fit wait for a better place until their own chain is the longest.
std::vector<RenderedDispatch> merge_dispatches(std::vector<RenderedDispatch> dispatches, const Target& target) {
  Order order = order_of(dispatches);
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < dispatches.size(); ++i)
    if (order.waits_for[i] == 0) ready.push_back(i);

  std::vector<RenderedDispatch> merged;
  while (!ready.empty()) {
    std::stable_sort(ready.begin(), ready.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(-order.height[a], a) < std::pair(-order.height[b], b);
    });
    std::vector<std::size_t> taken{ready[0]}, left;
    const RenderedDispatch& first = dispatches[ready[0]];
    Needs needs;
    needs.add(first);
    const auto joins = [&](const RenderedDispatch& other) {
      if (!can_merge(first) || !can_merge(other) || other.shader.threads != first.shader.threads) return false;
      Needs with = needs;
      with.add(other);
      if (!with.fit(target)) return false;
      needs = std::move(with);
      return true;
    };
    for (std::size_t r = 1; r < ready.size(); ++r) (joins(dispatches[ready[r]]) ? taken : left).push_back(ready[r]);
    if (taken.size() == 1) {
      merged.push_back(std::move(dispatches[taken[0]]));
    } else {
      std::vector<const RenderedDispatch*> parts;
      for (const std::size_t i : taken) parts.push_back(&dispatches[i]);
      merged.push_back(merged_of(std::move(parts)));
    }
    ready = std::move(left);
    for (const std::size_t i : taken)
      for (const std::size_t later : order.after[i])
        if (--order.waits_for[later] == 0) ready.push_back(later);
  }
  return merged;
}

}  // namespace weft::webgpu
