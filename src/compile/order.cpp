#include "compile/order.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compile/in_place.hpp"

namespace weft::compiler {
namespace {

using graph::Node;
using graph::NodeRef;

class Orderer {
 public:
  Orderer(const std::vector<DraftKernel>& drafts, const std::vector<NodeRef>& outputs, const Placement& placement)
      : drafts_(drafts), outputs_(outputs), placement_(placement), after_(drafts.size()) {
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      for (const Node* owner : drafts[i].writes) writers_[owner].push_back(i);
      for (const Node* owner : drafts[i].reads) readers_[owner].push_back(i);
    }
    for (std::size_t i = 0; i < drafts.size(); ++i)
      for (const Node* owner : drafts[i].reads)
        if (auto it = writers_.find(owner); it != writers_.end())
          for (std::size_t writer : it->second)
            if (writer != i) after_[i].push_back(writer);
  }

  /// The output overwrites the leaf where that is possible: its kernel then runs after all other readers of the leaf.
  void try_in_place(const Node* output, const Node* leaf) {
    if (placement_.places.contains(output) || order_.in_place.contains(output) || is_taken(leaf)) return;
    const auto it = writers_.find(output);
    if (it == writers_.end() || it->second.size() != 1) return;
    const std::size_t writer = it->second[0];
    if (!can_overwrite(drafts_[writer], leaf, output)) return;
    const std::vector<std::size_t>& readers = readers_[leaf];
    if (std::any_of(readers.begin(), readers.end(),
                    [&](std::size_t reader) { return reader != writer && runs_before(writer, reader); }))
      return;
    for (std::size_t reader : readers)
      if (reader != writer) after_[writer].push_back(reader);
    order_.in_place[output] = leaf;
  }

  Order sorted() {
    // Kahn's algorithm, early ranks first.
    const std::size_t n = drafts_.size();
    std::vector<int> waiting(n, 0);
    std::vector<std::vector<std::size_t>> next(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::sort(after_[i].begin(), after_[i].end());
      after_[i].erase(std::unique(after_[i].begin(), after_[i].end()), after_[i].end());
      waiting[i] = static_cast<int>(after_[i].size());
      for (std::size_t before : after_[i]) next[before].push_back(i);
    }
    auto later = [&](std::size_t a, std::size_t b) {
      return drafts_[a].rank != drafts_[b].rank ? drafts_[a].rank > drafts_[b].rank : a > b;
    };
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < n; ++i)
      if (waiting[i] == 0) ready.push_back(i);
    std::make_heap(ready.begin(), ready.end(), later);
    while (!ready.empty()) {
      std::pop_heap(ready.begin(), ready.end(), later);
      const std::size_t i = ready.back();
      ready.pop_back();
      order_.kernels.push_back(i);
      for (std::size_t follower : next[i])
        if (--waiting[follower] == 0) {
          ready.push_back(follower);
          std::push_heap(ready.begin(), ready.end(), later);
        }
    }
    if (order_.kernels.size() != n) throw_circle(waiting);
    return std::move(order_);
  }

 private:
  bool is_taken(const Node* leaf) const {
    return std::any_of(outputs_.begin(), outputs_.end(), [&](const NodeRef& r) { return r.get() == leaf; }) ||
           std::any_of(order_.in_place.begin(), order_.in_place.end(),
                       [&](const auto& taken) { return taken.second == leaf; });
  }

  bool runs_before(std::size_t first, std::size_t second) const {
    std::vector<std::size_t> stack{second};
    std::vector<bool> seen(drafts_.size(), false);
    while (!stack.empty()) {
      const std::size_t i = stack.back();
      stack.pop_back();
      if (i == first) return true;
      for (std::size_t before : after_[i])
        if (!seen[before]) {
          seen[before] = true;
          stack.push_back(before);
        }
    }
    return false;
  }

  [[noreturn]] void throw_circle(const std::vector<int>& waiting) const {
    std::string names;
    for (std::size_t i = 0; i < drafts_.size(); ++i)
      if (waiting[i] > 0)
        names += fmt::format(" {}", std::visit([](const auto& kernel) { return kernel.name; }, drafts_[i].kernel));
    throw InternalError("compile: kernels wait for each other:" + names);
  }

  const std::vector<DraftKernel>& drafts_;
  const std::vector<NodeRef>& outputs_;
  const Placement& placement_;
  std::unordered_map<const Node*, std::vector<std::size_t>> writers_, readers_;
  std::vector<std::vector<std::size_t>> after_;  // for each kernel, the kernels before it
  Order order_;
};

}  // namespace

Order order_of(const std::vector<DraftKernel>& drafts, const std::vector<NodeRef>& outputs, const Request& request,
               const Placement& placement) {
  Orderer orderer(drafts, outputs, placement);
  for (std::size_t o = 0; o < std::min(outputs.size(), request.may_overwrite.size()); ++o)
    if (request.may_overwrite[o]) orderer.try_in_place(outputs[o].get(), request.may_overwrite[o]);
  return orderer.sorted();
}

}  // namespace weft::compiler
