#include "backend/webgpu/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kGroupsMax = 1024;  // of a dispatch that leaves room for others beside it
constexpr double kOperationsMax = 1e9;      // longer ones fill a device by themselves
constexpr std::size_t kBranchesMax = 8;     // registers and workgroup memory are those of all branches

bool overlap(const BoundRange& a, const BoundRange& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool must_follow(const RenderedDispatch& later, const RenderedDispatch& earlier) {
  for (const BoundRange& a : later.bindings)
    for (const BoundRange& b : earlier.bindings)
      if ((a.written || b.written) && overlap(a, b)) return true;
  return false;
}

/// WGSL of one dispatch, taken apart. The renderers write one declaration a line.
struct Module {
  std::vector<std::string> directives;
  std::vector<std::string> elements;  // types of the storage arrays, by binding
  struct Shared {
    std::string name, element;
    int count;
  };
  std::vector<Shared> shared;  // arrays in workgroup memory
  std::string body;            // functions, `main` among them without its attributes
  std::set<std::string, std::less<>> names;
  int threads = 0;
};

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string_view name_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_name_char(text[end])) ++end;
  return text.substr(at, end - at);
}

std::optional<int> number_after(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  int value = 0;
  const char* begin = text.data() + at + mark.size();
  if (std::from_chars(begin, text.data() + text.size(), value).ec != std::errc()) return {};
  return value;
}

constexpr std::pair<std::string_view, int> kElementBytes[] = {{"vec4f", 16}, {"vec2f", 8}, {"f32", 4},
                                                              {"u32", 4},    {"i32", 4},   {"atomic<u32>", 4}};

/// "name: array<element, count>" for elements that the renderers use.
std::optional<Module::Shared> shared_array(std::string_view text) {
  const std::string_view name = name_at(text, 0);
  for (const auto& [element, bytes] : kElementBytes) {
    const std::string mark = fmt::format("{}: array<{}, ", name, element);
    if (!text.starts_with(mark)) continue;
    if (const auto count = number_after(text, mark))
      return Module::Shared{std::string(name), std::string(element), *count};
  }
  return {};
}

/// Nothing where the text is not of the kind that can become a branch.
std::optional<Module> take_apart(const std::string& text) {
  constexpr std::string_view kParameters =
      "(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) thread: u32) {";
  constexpr std::string_view kWorkgroup = "var<workgroup> ";
  Module module;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    if (line.starts_with("enable ") || line.starts_with("diagnostic(") || line.starts_with("requires ")) {
      module.directives.emplace_back(line);
    } else if (line.starts_with("@group(0) @binding(")) {
      const auto binding = number_after(line, "@binding(");
      const std::size_t colon = line.find(": ");
      if (!binding || *binding != static_cast<int>(module.elements.size()) || colon == std::string_view::npos)
        return {};
      module.elements.emplace_back(line.substr(colon + 2, line.size() - colon - 3));
      module.names.insert(fmt::format("data{}", *binding));
    } else if (line.starts_with("@compute @workgroup_size(")) {
      const auto threads = number_after(line, "@workgroup_size(");
      if (!threads || !line.ends_with(")")) return {};
      module.threads = *threads;
    } else if (line.starts_with(kWorkgroup)) {
      auto shared = shared_array(line.substr(kWorkgroup.size()));
      if (!shared) return {};
      module.shared.push_back(std::move(*shared));
    } else {
      if (line.starts_with("fn ")) {
        const std::string_view name = name_at(line, 3);
        module.names.emplace(name);
        if (name == "main") {
          if (line.substr(7) != kParameters) return {};
          module.body += "fn main(workgroup: vec3u, thread: u32) {\n";
          continue;
        }
      } else if (!line.empty() && line[0] != ' ' && line[0] != '}' && line[0] != '/') {
        return {};  // a declaration of a kind that is not known here
      }
      module.body.append(line).append("\n");
    }
  }
  if (module.threads == 0) return {};
  return module;
}

/// `text` with names replaced. Components after a dot are not names.
std::string renamed(std::string_view text, const std::map<std::string, std::string, std::less<>>& to) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::size_t at = 0; at < text.size();) {
    if (!is_name_char(text[at])) {
      out += text[at++];
      continue;
    }
    const std::string_view name = name_at(text, at);
    const auto found = to.find(name);
    if (found != to.end() && (at == 0 || text[at - 1] != '.'))
      out += found->second;
    else
      out += name;
    at += name.size();
  }
  return out;
}

/// Several dispatches that grow into one.
class Merger {
 public:
  Merger(const RenderedDispatch& first, const Module& module, const Target& target) : target_(target) {
    threads_ = module.threads;
    take(first, module, *place(first, module));
  }

  bool try_add(const RenderedDispatch& dispatch, const Module& module) {
    if (branches_.size() == kBranchesMax || module.threads != threads_ ||
        groups_ + dispatch.workgroups > target_.limits.workgroups_per_dimension)
      return false;
    auto place_of = place(dispatch, module);
    if (!place_of) return false;
    take(dispatch, module, std::move(*place_of));
    return true;
  }

  std::size_t branches() const { return branches_.size(); }

  RenderedDispatch finish() const {
    RenderedDispatch merged;
    std::set<std::string> directives;
    std::string text, call;
    std::uint64_t begin = 0;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      const Branch& branch = branches_[b];
      directives.insert(branch.module.directives.begin(), branch.module.directives.end());
      std::map<std::string, std::string, std::less<>> names;
      std::vector<int> used(std::size(kElementBytes));
      for (const Module::Shared& shared : branch.module.shared) {
        const int element = element_number(shared);
        names[shared.name] = fmt::format("shared_{}_{}", element, used[static_cast<std::size_t>(element)]++);
      }
      for (const std::string& name : branch.module.names) names[name] = fmt::format("{}_{}", name, b);
      for (std::size_t i = 0; i < branch.places.size(); ++i)
        names[fmt::format("data{}", i)] = fmt::format("data{}", branch.places[i]);
      text += renamed(branch.module.body, names);
      const std::uint64_t end = begin + branch.workgroups;
      const std::string condition =
          b + 1 < branches_.size() ? fmt::format("if (workgroup.x < {}u) ", end) : std::string();
      call += fmt::format("  {}{}{{ main_{}(vec3u(workgroup.x - {}u, 0u, 0u), thread); }}\n", b ? "else " : "",
                          condition, b, begin);
      begin = end;
      merged.name += (b ? " | " : "") + branch.name;
    }
    // Enables come before other directives.
    std::string head;
    for (const char* kind : {"enable ", "requires ", "diagnostic("})
      for (const std::string& directive : directives)
        if (directive.starts_with(kind)) head += directive + "\n";
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      BoundRange range = bindings_[i].range;
      range.written = is_written(range.buffer);
      head += fmt::format("@group(0) @binding({}) var<storage, {}> data{}: {};\n", i,
                          range.written ? "read_write" : "read", i, bindings_[i].element);
      merged.bindings.push_back(range);
    }
    for (std::size_t e = 0; e < shared_.size(); ++e)
      for (std::size_t i = 0; i < shared_[e].size(); ++i)
        head +=
            fmt::format("var<workgroup> shared_{}_{}: array<{}, {}>;\n", e, i, kElementBytes[e].first, shared_[e][i]);
    merged.text = fmt::format(
        "{}{}@compute @workgroup_size({})\nfn main(@builtin(workgroup_id) workgroup: vec3u, "
        "@builtin(local_invocation_index) thread: u32) {{\n{}}}\n",
        head, text, threads_, call);
    merged.workgroups = groups_;
    return merged;
  }

 private:
  struct Binding {
    BoundRange range;
    std::string element;
  };
  /// What joins with one more dispatch: the bindings and workgroup arrays (counts, by element) of all, and which are its own.
  struct Place {
    std::vector<int> places;
    std::vector<Binding> bindings;
    std::vector<std::vector<int>> shared;
  };
  struct Branch {
    std::string name;
    Module module;
    std::vector<int> places;  // its bindings among those of all
    std::uint64_t workgroups;
  };

  static int element_number(const Module::Shared& shared) {
    int e = 0;
    while (kElementBytes[e].first != shared.element) ++e;
    return e;
  }

  /// A workgroup takes one branch, so that branches share what lies in workgroup memory: the first array of one element type
  /// of each, the second, and so on.
  static void pool(const Module& module, std::vector<std::vector<int>>& shared) {
    std::vector<std::size_t> used(shared.size());
    for (const Module::Shared& array : module.shared) {
      const auto e = static_cast<std::size_t>(element_number(array));
      const std::size_t at = used[e]++;
      if (at == shared[e].size()) shared[e].push_back(0);
      shared[e][at] = std::max(shared[e][at], array.count);
    }
  }
  static int bytes_of(const std::vector<std::vector<int>>& shared) {
    int bytes = 0;
    for (std::size_t e = 0; e < shared.size(); ++e)
      for (const int count : shared[e]) bytes += (kElementBytes[e].second * count + 15) / 16 * 16;
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

  /// Where the dispatch would stand, if it can. A buffer that is written has to be bound as writable throughout, and ranges
  /// bound so must not overlap.
  std::optional<Place> place(const RenderedDispatch& dispatch, const Module& module) const {
    Place place{{}, bindings_, shared_};
    pool(module, place.shared);
    if (bytes_of(place.shared) > static_cast<int>(target_.limits.workgroup_bytes) && !branches_.empty()) return {};
    std::vector<Binding>& bindings = place.bindings;
    for (std::size_t i = 0; i < dispatch.bindings.size(); ++i) {
      const BoundRange& range = dispatch.bindings[i];
      std::size_t at = 0;
      while (at < bindings.size() && !same_place(bindings[at], range, module.elements[i])) ++at;
      if (at == bindings.size()) bindings.push_back({range, module.elements[i]});
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

  void take(const RenderedDispatch& dispatch, const Module& module, Place place) {
    bindings_ = std::move(place.bindings);
    shared_ = std::move(place.shared);
    branches_.push_back({dispatch.name, module, std::move(place.places), dispatch.workgroups});
    groups_ += dispatch.workgroups;
  }

  const Target& target_;
  std::vector<Binding> bindings_;
  std::vector<Branch> branches_;
  std::uint64_t groups_ = 0;
  int threads_ = 0;
  std::vector<std::vector<int>> shared_ =
      std::vector<std::vector<int>>(std::size(kElementBytes));  // counts, by element
};

/// Which dispatches have to come before which.
struct Order {
  std::vector<std::vector<std::size_t>> after;  // of each, those that wait for it
  std::vector<int> waits_for;                   // of each, how many it waits for
  std::vector<int> height;                      // of each, the longest chain of those that wait, itself included
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

// Each turn runs the dispatch at the head of the longest chain, and beside it all others that are ready and fit. Those that
// do not fit wait for a better place until their own chain is the longest.
std::vector<RenderedDispatch> merge_dispatches(std::vector<RenderedDispatch> dispatches, const Target& target) {
  Order order = order_of(dispatches);
  std::vector<std::optional<Module>> modules(dispatches.size());
  for (std::size_t i = 0; i < dispatches.size(); ++i) {
    const RenderedDispatch& dispatch = dispatches[i];
    if (dispatch.workgroups == 0 || dispatch.workgroups > kGroupsMax || dispatch.operations > kOperationsMax) continue;
    modules[i] = take_apart(dispatch.text);
    if (modules[i] && modules[i]->elements.size() != dispatch.bindings.size()) modules[i].reset();
  }
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
    if (modules[taken[0]]) merger.emplace(dispatches[taken[0]], *modules[taken[0]], target);
    for (std::size_t r = 1; r < ready.size(); ++r) {
      const std::size_t i = ready[r];
      const bool fits = merger && modules[i] && merger->try_add(dispatches[i], *modules[i]);
      (fits ? taken : left).push_back(i);
    }
    merged.push_back(taken.size() > 1 ? merger->finish() : std::move(dispatches[taken[0]]));
    ready = std::move(left);
    for (const std::size_t i : taken)
      for (const std::size_t later : order.after[i])
        if (--order.waits_for[later] == 0) ready.push_back(later);
  }
  return merged;
}

}  // namespace weft::webgpu
