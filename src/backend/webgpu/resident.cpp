#include "backend/webgpu/resident.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "backend/webgpu/dispatch_parts.hpp"
#include "backend/webgpu/wgsl/array_view.hpp"
#include "backend/webgpu/wgsl/meeting.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kGroupsOfUnitMax = 4;  // of a phase; more work fills a device well by itself
constexpr double kPhaseOperationsMax = 1e11;   // of a phase, with all rows of a cache, few of which may be visited
constexpr std::uint64_t kLineBytes = 128;      // that a compute unit may keep together
constexpr std::size_t kPeriodMax = 64;         // dispatches that repeat

using Phases = std::span<const RenderedDispatch>;

bool can_be_phase(const RenderedDispatch& dispatch, const Target& target) {
  const ShaderPieces& shader = dispatch.shader;
  return dispatch.workgroups > 0 && dispatch.workgroups <= kGroupsOfUnitMax * target.profile.compute_units &&
         dispatch.operations <= kPhaseOperationsMax && dispatch.repeats == 1 && shader.verbatim.empty() &&
         shader.folded_groups == 0 && !shader.matrices;
}

bool reads(const RenderedDispatch& dispatch, std::size_t binding) {
  const std::string array = fmt::format("data{}", binding);
  return is_read(dispatch.shader.body, array) ||
         std::ranges::any_of(dispatch.shader.functions,
                             [&](const ShaderPieces::Function& function) { return is_read(function.text, array); });
}

/// Whether a phase touches what an earlier one has changed in place: that one may have kept lines of which others changed a part.
bool touches_changed(Phases phases) {
  for (std::size_t earlier = 0; earlier + 1 < phases.size(); ++earlier)
    for (std::size_t i = 0; i < phases[earlier].bindings.size(); ++i) {
      const BoundRange& changed = phases[earlier].bindings[i];
      if (!changed.changes()) continue;
      const bool is_touched = std::ranges::any_of(phases.subspan(earlier + 1), [&](const RenderedDispatch& later) {
        return std::ranges::any_of(later.bindings, [&](const BoundRange& range) { return overlap(range, changed); });
      });
      if (is_touched && reads(phases[earlier], i)) return true;
    }
  return false;
}

/// Whether a phase writes near what an earlier one has touched, or near what it reads itself.
bool overwrites(Phases phases) {
  for (std::size_t p = 0; p < phases.size(); ++p)
    for (const BoundRange& written : phases[p].bindings) {
      if (!written.changes()) continue;
      BoundRange lines = written;
      lines.offset = written.offset / kLineBytes * kLineBytes;
      lines.bytes = (written.offset + written.bytes + kLineBytes - 1) / kLineBytes * kLineBytes - lines.offset;
      const auto is_near = [&](const BoundRange& range) { return overlap(range, lines); };
      for (const RenderedDispatch& earlier : phases.first(p))
        if (std::ranges::any_of(earlier.bindings, is_near)) return true;
      for (const BoundRange& beside : phases[p].bindings)
        if (!beside.changes() && is_near(beside)) return true;
    }
  return false;
}

/// A binding of a phase.
struct Use {
  std::size_t phase, number;
  const BoundRange* range;
  std::string element;
};

/// A binding of the joined dispatch, and those of phases that it stands for.
struct Binding {
  BoundRange range;
  std::string element;
  bool is_seen_otherwise = false;  // some phases see other elements, or begin later
  std::vector<Use> uses;
};

/// Adds the bindings for the uses of a buffer that no phase writes: equal uses share one.
void add_read_bindings(const std::vector<Use>& uses, std::vector<Binding>& bindings) {
  const std::size_t first = bindings.size();
  for (const Use& use : uses) {
    const auto found =
        std::find_if(bindings.begin() + static_cast<std::ptrdiff_t>(first), bindings.end(),
                     [&](const Binding& b) { return b.range == *use.range && b.element == use.element; });
    if (found != bindings.end())
      found->uses.push_back(use);
    else
      bindings.push_back({*use.range, use.element, false, {use}});
  }
}

/// Adds the bindings for the uses of a buffer that some phase writes. Ranges of such bindings must not overlap, so ranges that do
/// become one. Returns false if its elements cannot be seen as all of the phases see them.
bool add_written_bindings(std::vector<Use> uses, std::vector<Binding>& bindings) {
  std::ranges::stable_sort(uses, {}, [](const Use& use) { return use.range->offset; });
  const std::size_t first = bindings.size();
  for (const Use& use : uses) {
    if (bindings.size() == first || !overlap(bindings.back().range, *use.range)) {
      bindings.push_back({*use.range, use.element, false, {}});
      bindings.back().range.written = true;
      bindings.back().range.only_read = true;
    }
    Binding& binding = bindings.back();
    BoundRange& range = binding.range;
    range.bytes = std::max(range.offset + range.bytes, use.range->offset + use.range->bytes) - range.offset;
    range.only_read = range.only_read && !use.range->changes();
    binding.is_seen_otherwise |= use.element != binding.element || use.range->offset != range.offset;
    binding.uses.push_back(use);
  }
  for (std::size_t b = first; b < bindings.size(); ++b) {
    Binding& binding = bindings[b];
    if (!binding.is_seen_otherwise) continue;
    const std::optional<ArrayElement> element = array_element(binding.element);
    for (const Use& use : binding.uses) {
      const std::optional<ArrayElement> other = array_element(use.element);
      if (!element || !other || other->scalar != element->scalar) return false;
    }
    binding.element = element->scalar;
  }
  return true;
}

std::optional<std::vector<Binding>> bindings_of(Phases phases) {
  std::map<int, std::vector<Use>> uses;  // by buffer
  std::map<int, bool> is_written;
  std::vector<int> order;
  for (std::size_t p = 0; p < phases.size(); ++p)
    for (std::size_t i = 0; i < phases[p].bindings.size(); ++i) {
      const BoundRange& range = phases[p].bindings[i];
      if (!uses.contains(range.buffer)) order.push_back(range.buffer);
      uses[range.buffer].push_back({p, i, &range, phases[p].shader.storage[i].element});
      is_written[range.buffer] |= range.written;
    }
  std::vector<Binding> bindings;
  for (const int buffer : order) {
    if (!is_written[buffer])
      add_read_bindings(uses[buffer], bindings);
    else if (!add_written_bindings(std::move(uses[buffer]), bindings))
      return {};
  }
  return bindings;
}

bool is_written(const std::vector<Binding>& bindings, std::size_t phase, std::size_t number) {
  return std::ranges::any_of(bindings, [&](const Binding& binding) {
    return binding.range.written && std::ranges::any_of(binding.uses, [&](const Use& use) {
             return use.phase == phase && use.number == number;
           });
  });
}

/// The phase's shader with the arrays of `bindings`: `names` gets their names.
std::optional<ShaderPieces> seen_through(const ShaderPieces& shader, std::size_t phase,
                                         const std::vector<Binding>& bindings, ShaderNames& names) {
  ShaderPieces result = shader;
  for (std::size_t b = 0; b < bindings.size(); ++b)
    for (const Use& use : bindings[b].uses) {
      if (use.phase != phase) continue;
      const std::string array = fmt::format("data{}", b);
      const std::string own = fmt::format("data{}", use.number);
      if (!bindings[b].is_seen_otherwise) {
        names[own] = array;
        continue;
      }
      const auto base = static_cast<std::uint32_t>((use.range->offset - bindings[b].range.offset) / 4);
      const std::string seen = fmt::format("seen{}", use.number);
      const ArrayView view{own, seen, *array_element(use.element), base, seen};
      names[seen] = array;
      for (ShaderPieces::Function& function : result.functions) {
        std::optional<std::string> text = with_view(function.text, view);
        if (!text) return {};
        function.text = std::move(*text);
      }
      std::optional<std::string> body = with_view(result.body, view);
      if (!body) return {};
      result.body = std::move(*body);
      declare_view(view, result);
    }
  return result;
}

/// The dispatches as one; nothing if they cannot be.
std::optional<RenderedDispatch> joined(Phases phases, const Target& target) {
  const std::optional<std::vector<Binding>> bindings = bindings_of(phases);
  if (!bindings || bindings->size() + 1 > target.limits.storage_buffers || overwrites(phases) ||
      touches_changed(phases))
    return {};
  RenderedDispatch result;
  ShaderPieces& shader = result.shader;
  shader.resident = true;
  shader.threads = phases[0].shader.threads;
  WorkgroupPool pool;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const RenderedDispatch& phase = phases[p];
    ShaderNames names;
    std::optional<ShaderPieces> seen = seen_through(phase.shader, p, *bindings, names);
    if (!seen) return {};
    // What a phase reads before the meeting must be there when the dispatch begins.
    const bool meets_late = p > 0 && !seen->early.empty() && std::ranges::none_of(seen->early, [&](int number) {
                              return is_written(*bindings, p, static_cast<std::size_t>(number));
                            });
    names["meet"] = "meet";
    replace_meeting_marks(*seen, meets_late ? "$meet(thread);" : "");
    WorkgroupPool::name(*seen, names);
    pool.add(*seen);
    shader.subgroups = shader.subgroups || seen->subgroups;
    shader.helpers.use(seen->helpers);
    add_functions(*seen, p, names, shader);
    const std::string main = fmt::format("phase_{}", p);
    shader.functions.push_back(
        {main, fmt::format("(group: u32, thread: u32) {{\n{}}}\n", with_new_names(seen->body, names))});
    if (p > 0) shader.body += "  resident.waits = true;\n";
    if (p > 0 && !meets_late) shader.body += "  $meet(thread);\n";
    shader.body += fmt::format("  for (var at = group; at < {}u; at += groups) {{ ${}(at, thread);{} }}\n",
                               phase.workgroups, main, seen->shared.empty() ? "" : " workgroupBarrier();");
    if (meets_late) shader.body += fmt::format("  if (group >= {}u) {{ $meet(thread); }}\n", phase.workgroups);
    result.name += (p ? " > " : "") + phase.name;
    result.kernels.insert(result.kernels.end(), phase.kernels.begin(), phase.kernels.end());
    result.workgroups = std::max(result.workgroups, phase.workgroups);
    result.operations += phase.operations;
  }
  if (pool.bytes() > static_cast<std::int64_t>(target.limits.workgroup_bytes)) return {};
  pool.declare(shader);
  for (const Binding& binding : *bindings) {
    shader.storage.push_back({binding.element, binding.range.written});
    result.bindings.push_back(binding.range);
  }
  shader.functions.push_back({"meet", meeting_function(fmt::format("$data{}", bindings->size()))});
  shader.verbatim = std::string(kMeetingDeclarations);
  shader.body =
      "  resident = Resident(group, groups, tests, true);\n"
      "  if (tests) { $meet(thread); return; }\n" +
      shader.body;
  shader.storage.push_back({"atomic<u32>", true});
  result.bindings.push_back({kMeetingBuffer, 0, kMeetingBytes, true});
  return result;
}

/// Joins the dispatches from the first on: each as many as possible.
class PhaseJoiner {
 public:
  PhaseJoiner(Phases dispatches, const Target& target) : dispatches_(dispatches), target_(target) {}

  std::vector<RenderedDispatch> join(std::size_t begin, std::size_t end) const {
    std::vector<RenderedDispatch> result;
    while (begin < end) {
      std::optional<RenderedDispatch> longest;
      std::size_t next = begin + 1;
      while (next < end && can_follow(begin, next)) {
        std::optional<RenderedDispatch> longer = joined(dispatches_.subspan(begin, next + 1 - begin), target_);
        if (!longer) break;
        longest = std::move(longer);
        ++next;
      }
      result.push_back(longest ? std::move(*longest) : dispatches_[begin]);
      begin = next;
    }
    return result;
  }

 private:
  bool can_follow(std::size_t first, std::size_t next) const {
    return can_be_phase(dispatches_[first], target_) && can_be_phase(dispatches_[next], target_) &&
           dispatches_[first].shader.threads == dispatches_[next].shader.threads;
  }

  const Phases dispatches_;
  const Target& target_;
};

/// Dispatches that repeat with a period, from `begin` to `end`.
struct Repeats {
  std::size_t begin = 0, end = 0, period = 1;
};

Repeats repeats_of(Phases dispatches) {
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> numbers;
  std::vector<std::size_t> kinds;
  for (const RenderedDispatch& d : dispatches)
    kinds.push_back(numbers.try_emplace({d.shader.text(), d.workgroups}, numbers.size()).first->second);
  Repeats best;
  for (std::size_t period = 1; period <= std::min(kPeriodMax, kinds.size() / 2); ++period)
    for (std::size_t begin = 0; begin + period < kinds.size();) {
      std::size_t end = begin + period;
      while (end < kinds.size() && kinds[end] == kinds[end - period]) ++end;
      if (end - begin >= 2 * period && end - begin > best.end - best.begin) best = {begin, end, period};
      begin = std::max(end - period, begin) + 1;
    }
  return best;
}

}  // namespace

std::vector<RenderedDispatch> join_phases(std::vector<RenderedDispatch> dispatches, const Target& target) {
  const PhaseJoiner joiner(dispatches, target);
  const Repeats repeats = repeats_of(dispatches);
  // Every period is cut alike; where the first one begins decides how many pieces each has. If it is one, it may be one with more
  // periods.
  std::size_t begin = repeats.begin, length = repeats.period, fewest = dispatches.size() + 1;
  for (std::size_t first = repeats.begin; first < std::min(repeats.begin + repeats.period, repeats.end); ++first) {
    const std::size_t pieces = joiner.join(first, std::min(first + repeats.period, repeats.end)).size();
    if (pieces < fewest) {
      fewest = pieces;
      begin = first;
    }
  }
  while (fewest == 1 && begin + length + repeats.period <= repeats.end &&
         joiner.join(begin, begin + length + repeats.period).size() == 1)
    length += repeats.period;
  std::vector<RenderedDispatch> result;
  const auto add = [&](std::size_t from, std::size_t to) {
    for (RenderedDispatch& dispatch : joiner.join(from, to)) result.push_back(std::move(dispatch));
  };
  add(0, begin);
  for (; begin + length <= repeats.end; begin += length) add(begin, begin + length);
  add(begin, dispatches.size());
  return result;
}

}  // namespace weft::webgpu
