#include "backend/webgpu/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kGroupsMax = 1024;  // in a dispatch that leaves room for others beside it
constexpr double kOperationsMax = 1e9;      // longer ones fill a device alone
constexpr std::size_t kBranchesMax = 8;     // all branches together determine registers and workgroup memory

bool overlap(const BoundRange& a, const BoundRange& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool must_follow(const RenderedDispatch& later, const RenderedDispatch& earlier) {
  for (const BoundRange& a : later.bindings)
    for (const BoundRange& b : earlier.bindings)
      if ((a.changes() || b.changes()) && overlap(a, b)) return true;
  return false;
}

/// Whether the dispatch can be a branch of another one.
bool can_merge(const RenderedDispatch& dispatch) {
  return dispatch.workgroups > 0 && dispatch.workgroups <= kGroupsMax && dispatch.operations <= kOperationsMax &&
         dispatch.shader.verbatim.empty() && dispatch.shader.folded_groups == 0;
}

/// Arrays in workgroup memory that branches share: of each element type, how many elements each has.
using Pool = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

std::string pooled_name(const std::string& element, std::size_t number) {
  std::string name = "shared_";
  for (const char c : element)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return fmt::format("{}_{}", name, number);
}

/// Merges several dispatches into one.
class Merger {
 public:
  Merger(const RenderedDispatch& first, const Target& target) : target_(target) { take(first, *place(first)); }

  bool try_add(const RenderedDispatch& dispatch) {
    if (branches_.size() == kBranchesMax || dispatch.shader.threads != branches_[0]->shader.threads ||
        groups_ + dispatch.workgroups > target_.limits.workgroups_per_dimension)
      return false;
    auto place_of = place(dispatch);
    if (!place_of) return false;
    take(dispatch, std::move(*place_of));
    return true;
  }

  /// Each branch becomes a function, and its names become unique.
  RenderedDispatch finish() const {
    RenderedDispatch merged;
    ShaderPieces& shader = merged.shader;
    shader.threads = branches_[0]->shader.threads;
    std::uint64_t begin = 0;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      const RenderedDispatch& branch = *branches_[b];
      shader.subgroups = shader.subgroups || branch.shader.subgroups;
      shader.matrices = shader.matrices || branch.shader.matrices;
      shader.helpers.use(branch.shader.helpers);
      ShaderNames names;
      std::map<std::string, std::size_t, std::less<>> used;
      for (const ShaderPieces::Shared& array : branch.shader.shared)
        names[array.name] = pooled_name(array.element, used[array.element]++);
      for (const ShaderPieces::Function& function : branch.shader.functions)
        names[function.name] = fmt::format("{}_{}", function.name, b);
      for (std::size_t i = 0; i < places_[b].size(); ++i)
        names[fmt::format("data{}", i)] = fmt::format("data{}", places_[b][i]);
      for (const ShaderPieces::Function& function : branch.shader.functions)
        shader.functions.push_back({names[function.name], with_new_names(function.text, names)});
      const std::string main = fmt::format("branch_{}", b);
      shader.functions.push_back({main, fmt::format("(group: u32, thread: u32{}) {{\n{}}}\n",
                                                    branch.shader.matrices ? ", subgroup: u32, workgroup: vec3u" : "",
                                                    with_new_names(branch.shader.body, names))});
      const std::uint64_t end = begin + branch.workgroups;
      const std::string condition = b + 1 < branches_.size() ? fmt::format("if (group < {}u) ", end) : std::string();
      shader.body += fmt::format("  {}{}{{ ${}(group - {}u, thread{}); }}\n", b ? "else " : "", condition, main, begin,
                                 branch.shader.matrices ? ", subgroup, workgroup" : "");
      begin = end;
      merged.name += (b ? " | " : "") + branch.name;
      merged.kernels.insert(merged.kernels.end(), branch.kernels.begin(), branch.kernels.end());
    }
    for (const Binding& binding : bindings_) {
      BoundRange range = binding.range;
      range.written = is_written(range.buffer);
      shader.storage.push_back({binding.element, range.written});
      merged.bindings.push_back(range);
    }
    for (const auto& [element, counts] : pool_)
      for (std::size_t i = 0; i < counts.size(); ++i) shader.share(pooled_name(element, i), element, counts[i]);
    merged.workgroups = groups_;
    return merged;
  }

 private:
  struct Binding {
    BoundRange range;
    std::string element;
  };
  /// The bindings and workgroup arrays of all dispatches after another one has joined, and the bindings of that one.
  struct Place {
    std::vector<int> places;
    std::vector<Binding> bindings;
    Pool pool;
  };

  /// A workgroup takes one branch, so branches share workgroup memory: the first arrays of one element type of all branches,
  /// the second arrays, and so on.
  static void add_to(Pool& pool, const ShaderPieces& shader) {
    std::map<std::string, std::size_t, std::less<>> used;
    for (const ShaderPieces::Shared& array : shader.shared) {
      std::vector<std::int64_t>& counts = pool[array.element];
      const std::size_t at = used[array.element]++;
      if (at == counts.size()) counts.push_back(0);
      counts[at] = std::max(counts[at], array.count);
    }
  }
  static std::int64_t bytes_of(const Pool& pool) {
    std::int64_t bytes = 0;
    for (const auto& [element, counts] : pool)
      for (const std::int64_t count : counts) bytes += (shared_element_bytes(element) * count + 15) / 16 * 16;
    return bytes;
  }

  bool is_written(int buffer) const {
    return std::any_of(bindings_.begin(), bindings_.end(),
                       [&](const Binding& b) { return b.range.buffer == buffer && b.range.written; });
  }

  static bool same_place(const Binding& binding, const BoundRange& range, const std::string& element) {
    return binding.range.buffer == range.buffer && binding.range.offset == range.offset &&
           binding.range.bytes == range.bytes && binding.element == element;
  }

  /// The merged bindings, if the dispatch can join. A buffer that is written must be bound as writable everywhere, and writable
  /// ranges must not overlap.
  std::optional<Place> place(const RenderedDispatch& dispatch) const {
    Place place{{}, bindings_, pool_};
    add_to(place.pool, dispatch.shader);
    if (bytes_of(place.pool) > static_cast<std::int64_t>(target_.limits.workgroup_bytes) && !branches_.empty())
      return {};
    std::vector<Binding>& bindings = place.bindings;
    for (std::size_t i = 0; i < dispatch.bindings.size(); ++i) {
      const BoundRange& range = dispatch.bindings[i];
      const std::string& element = dispatch.shader.storage[i].element;
      std::size_t at = 0;
      while (at < bindings.size() && !same_place(bindings[at], range, element)) ++at;
      if (at == bindings.size()) bindings.push_back({range, element});
      bindings[at].range.written = bindings[at].range.written || range.written;
      place.places.push_back(static_cast<int>(at));
    }
    if (branches_.empty()) return place;
    if (bindings.size() > target_.limits.storage_buffers) return {};
    std::set<int> written;
    for (const Binding& b : bindings)
      if (b.range.written) written.insert(b.range.buffer);
    for (std::size_t i = 0; i < bindings.size(); ++i)
      for (std::size_t j = i + 1; j < bindings.size(); ++j)
        if (overlap(bindings[i].range, bindings[j].range) && written.contains(bindings[i].range.buffer)) return {};
    return place;
  }

  void take(const RenderedDispatch& dispatch, Place place) {
    bindings_ = std::move(place.bindings);
    pool_ = std::move(place.pool);
    branches_.push_back(&dispatch);
    places_.push_back(std::move(place.places));
    groups_ += dispatch.workgroups;
  }

  const Target& target_;
  std::vector<const RenderedDispatch*> branches_;
  std::vector<std::vector<int>> places_;  // for each branch, its bindings among the merged ones
  std::vector<Binding> bindings_;
  Pool pool_;
  std::uint64_t groups_ = 0;
};

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

/// The dispatches as one. Branches are in the order of their names and sizes: layers that merge the same work in another order then
/// have equal text, which is compiled once.
RenderedDispatch merged_of(std::vector<const RenderedDispatch*> parts, const Target& target) {
  std::stable_sort(parts.begin(), parts.end(), [](const RenderedDispatch* a, const RenderedDispatch* b) {
    return std::tie(a->name, a->workgroups, a->shader.body) < std::tie(b->name, b->workgroups, b->shader.body);
  });
  Merger merger(*parts[0], target);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (!merger.try_add(*parts[i]))
      throw InternalError("webgpu: dispatches that fit one another do not in another order");
  return merger.finish();
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
    std::optional<Merger> merger;
    if (can_merge(dispatches[taken[0]])) merger.emplace(dispatches[taken[0]], target);
    for (std::size_t r = 1; r < ready.size(); ++r) {
      const std::size_t i = ready[r];
      const bool fits = merger && can_merge(dispatches[i]) && merger->try_add(dispatches[i]);
      (fits ? taken : left).push_back(i);
    }
    if (taken.size() == 1) {
      merged.push_back(std::move(dispatches[taken[0]]));
    } else {
      std::vector<const RenderedDispatch*> parts;
      for (const std::size_t i : taken) parts.push_back(&dispatches[i]);
      merged.push_back(merged_of(std::move(parts), target));
    }
    ready = std::move(left);
    for (const std::size_t i : taken)
      for (const std::size_t later : order.after[i])
        if (--order.waits_for[later] == 0) ready.push_back(later);
  }
  return merged;
}

}  // namespace weft::webgpu
