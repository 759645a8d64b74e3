#include "compile/assemble.hpp"

#include <fmt/format.h>

#include "compile/emit.hpp"
#include "compile/in_place.hpp"
#include "compile/memory.hpp"
#include "compile/trim.hpp"

namespace weft::compiler {
namespace {

using graph::Node;
using graph::NodeRef;
using kernel::Operand;

constexpr std::size_t kRoomyBytes = std::size_t{1} << 30;  // values below this in total get more room than they need

class Assembler {
 public:
  Assembler(std::vector<DraftKernel> drafts, const Order& order, const std::vector<NodeRef>& outputs,
            const Target& target)
      : order_(order), outputs_(outputs), target_(target) {
    for (std::size_t i : order.kernels) drafts_.push_back(std::move(drafts[i]));
  }

  Compiled run() {
    number_externals();
    plan_values();
    for (DraftKernel& draft : drafts_) {
      place_operands(draft);
      trim_operands(draft.kernel);
      result_.plan.kernels.push_back(std::move(draft.kernel));
    }
    return std::move(result_);
  }

 private:
  std::size_t bytes_of(const Node* node) const { return target_.storage_bytes(*node); }

  /// Leaves in the order in which kernels read them, then the outputs that overwrite no leaf.
  void number_externals() {
    const auto add_leaf = [&](const Node* leaf) {
      if (external_.try_emplace(leaf, static_cast<int>(result_.leaves.size())).second)
        result_.leaves.push_back(leaf->shared_from_this());
    };
    for (const DraftKernel& draft : drafts_)
      for (const Node* owner : draft.reads)
        if (is_leaf(*owner)) add_leaf(owner);
    for (const NodeRef& output : outputs_)
      if (const auto leaf = order_.in_place.find(output.get()); leaf != order_.in_place.end()) add_leaf(leaf->second);
    int ordinal = static_cast<int>(result_.leaves.size());
    for (const NodeRef& output : outputs_) {
      const auto leaf = order_.in_place.find(output.get());
      const int at = leaf != order_.in_place.end() ? external_.at(leaf->second)
                                                   : external_.try_emplace(output.get(), ordinal).first->second;
      if (at == ordinal) ++ordinal;
      external_[output.get()] = at;
      result_.output_external.push_back(at);
    }
    result_.external_count = ordinal;
    result_.plan.buffers.resize(static_cast<std::size_t>(ordinal));
    const auto describe = [&](const NodeRef& node, int e) {
      kernel::BufferInfo& buffer = result_.plan.buffers[static_cast<std::size_t>(e)];
      if (buffer.external < 0) buffer = {.external = e, .bytes = bytes_of(node.get()), .label = title(*node)};
    };
    for (std::size_t l = 0; l < result_.leaves.size(); ++l) describe(result_.leaves[l], static_cast<int>(l));
    for (std::size_t o = 0; o < outputs_.size(); ++o) describe(outputs_[o], result_.output_external[o]);
  }

  /// Memory for values that are neither leaves nor outputs: how long each is kept, and which need separate buffers.
  void plan_values() {
    MemoryRequest memory{{}, {}, target_.offset_alignment, target_.buffer_bytes_max, target_.binding_bytes_max};
    std::unordered_map<const Node*, std::size_t> last_read;
    for (std::size_t k = 0; k < drafts_.size(); ++k)
      for (const Node* owner : drafts_[k].reads) last_read[owner] = k;
    for (std::size_t k = 0; k < drafts_.size(); ++k) {
      const DraftKernel& draft = drafts_[k];
      std::vector<int> reads, writes;
      for (const Node* owner : draft.reads)
        if (const int v = value_at(owner, k, memory); v >= 0) reads.push_back(v);
      if (!target_.prefers_separate_buffers) share_memory(draft, k, last_read);
      for (const Node* owner : draft.writes)
        if (const int v = value_at(owner, k, memory); v >= 0) writes.push_back(v);
      if (target_.prefers_separate_buffers)
        for (int r : reads)
          for (int w : writes)
            if (r != w) memory.apart.emplace_back(r, w);
    }
    // Of kernels that run side by side, none may write where another still reads.
    std::size_t all_bytes = 0;
    for (const MemoryValue& v : memory.values) all_bytes += v.bytes;
    if (all_bytes <= kRoomyBytes)
      for (MemoryValue& v : memory.values) v.last += target_.kernels_side_by_side;
    planned_ = plan_memory(memory);
    first_scratch_ = static_cast<int>(result_.plan.buffers.size());
    for (std::size_t b = 0; b < planned_.buffers.size(); ++b)
      result_.plan.buffers.push_back(
          {.external = -1, .bytes = planned_.buffers[b], .label = fmt::format("scratch {}", b)});
  }

  /// The number of a value that kernel k touches; -1 if it is external.
  int value_at(const Node* owner, std::size_t k, MemoryRequest& memory) {
    if (external_.contains(owner)) return -1;
    const int at = static_cast<int>(k);
    auto [it, is_new] = value_of_.try_emplace(owner, static_cast<int>(memory.values.size()));
    if (is_new) memory.values.push_back({bytes_of(owner), at, at, title(*owner)});
    memory.values[static_cast<std::size_t>(it->second)].last = at;
    return it->second;
  }

  void share_memory(const DraftKernel& draft, std::size_t k,
                    const std::unordered_map<const Node*, std::size_t>& last_read) {
    const Node* read = replaced_by_product(
        draft, [&](const Node* node) { return last_read.at(node) != k; },
        [&](const Node* node) { return bytes_of(node); });
    if (read && !external_.contains(read) && !external_.contains(draft.writes[0]))
      value_of_.emplace(draft.writes[0], value_of_.at(read));
  }

  void place_operands(DraftKernel& draft) {
    std::vector<const Node*> owners = draft.reads;
    owners.insert(owners.end(), draft.writes.begin(), draft.writes.end());
    std::size_t at = 0;
    kernel::visit_operands(draft.kernel, [&](Operand& operand, bool) {
      if (at < owners.size()) place_operand(operand, owners[at]);
      ++at;
    });
    if (at != owners.size()) throw InternalError("compile: operands and owners differ in number");
  }

  void place_operand(Operand& operand, const Node* owner) const {
    const Extent within = operand.offset;
    operand.type = owner->type;
    operand.count = owner->shape.numel() - within;
    if (graph::has_packed_layout(*owner)) {
      operand.type = DType::u32;
      operand.count = words_in(bytes_of(owner));
    }
    if (const auto it = external_.find(owner); it != external_.end()) {
      operand.buffer = it->second;
      return;
    }
    const MemoryPlan::Slot& slot = planned_.slots[static_cast<std::size_t>(value_of_.at(owner))];
    operand.buffer = first_scratch_ + slot.buffer;
    operand.offset =
        static_cast<Extent>(slot.offset * 8 / static_cast<std::size_t>(target_.storage_bits(operand.type))) + within;
  }

  Extent words_in(std::size_t bytes) const {
    return static_cast<Extent>(bytes * 8 / static_cast<std::size_t>(target_.storage_bits(DType::u32)));
  }

  const Order& order_;
  const std::vector<NodeRef>& outputs_;
  const Target& target_;
  std::vector<DraftKernel> drafts_;
  std::unordered_map<const Node*, int> external_, value_of_;
  MemoryPlan planned_;
  int first_scratch_ = 0;
  Compiled result_;
};

}  // namespace

Compiled assemble(std::vector<DraftKernel> drafts, const Order& order, const std::vector<NodeRef>& outputs,
                  const Target& target) {
  return Assembler(std::move(drafts), order, outputs, target).run();
}

}  // namespace weft::compiler
