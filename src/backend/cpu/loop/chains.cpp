// Joins neighbouring instructions of a loop program that do elementwise work on floats to chains: values that only they use
// never leave the registers.
#include <algorithm>
#include <map>
#include <set>

#include "backend/cpu/loop/code.hpp"

namespace weft::cpu {
namespace {

constexpr std::size_t kLongest = 64;  // instructions

class ChainFormer {
 public:
  explicit ChainFormer(LoopProgram::Code& code) : code_(code), uses_(code.values.size()) {
    each_list([&](const std::vector<LoopInstruction>& list) {
      for (const LoopInstruction& in : list)
        for (int i = 0; i < in.arg_count; ++i) ++uses_[static_cast<std::size_t>(in.args[i].value)];
    });
  }

  void run() {
    for (Phase& phase : code_.phases) {
      join(phase.outer, false);
      next_ = phase.next;
      join(phase.inner, phase.far);
      next_.clear();
    }
    join(code_.last.inner, false);
    drop_unused_registers();
  }

 private:
  template <class Visit>
  void each_list(Visit visit) const {
    for (const Phase& phase : code_.phases) visit(phase.outer), visit(phase.inner);
    visit(code_.last.inner);
  }

  /// Replaces runs of instructions by chains.
  void join(std::vector<LoopInstruction>& list, bool far) {
    std::vector<LoopInstruction> joined;
    for (std::size_t i = 0; i < list.size();) {
      std::size_t count = run_from(list, i);
      bool made = false;
      // One instruction alone is worth a chain if there is something to prefetch meanwhile.
      while (count >= (next_.empty() ? 2u : 1u) && !only_reduces(list, i, count) && !made) {
        made = make(list, i, count, far, &joined);
        if (!made) count = count * 3 / 4;
      }
      if (!made) joined.push_back(list[i]);
      i += made ? count : 1;
    }
    list = std::move(joined);
  }

  /// How many instructions from `begin` on can run as one.
  std::size_t run_from(const std::vector<LoopInstruction>& list, std::size_t begin) const {
    std::size_t end = begin;
    while (end < list.size() && end - begin < kLongest && list[end].in_chain && list[end].slow == list[begin].slow &&
           list[end].fast == list[begin].fast)
      ++end;
    return end - begin;
  }

  /// The tile kernels of reductions are as fast alone.
  static bool only_reduces(const std::vector<LoopInstruction>& list, std::size_t begin, std::size_t count) {
    return std::all_of(list.begin() + static_cast<std::ptrdiff_t>(begin),
                       list.begin() + static_cast<std::ptrdiff_t>(begin + count),
                       [](const LoopInstruction& in) { return in.action == Action::reduce; });
  }

  bool make(const std::vector<LoopInstruction>& list, std::size_t begin, std::size_t count, bool far,
            std::vector<LoopInstruction>* joined) {
    const bool column = list[begin].slow && !list[begin].fast;
    Chain chain;
    LoopChain made;
    bool streams = false;
    std::map<int, int> step_of, place_of;  // of values
    std::map<int, int> uses_here;
    for (std::size_t i = begin; i < begin + count; ++i)
      for (int k = 0; k < list[i].arg_count; ++k) ++uses_here[list[i].args[k].value];
    const auto add_place = [&](LoopChain::Place place, DType type, bool varies) {
      place.value.bytes = static_cast<Extent>(size_bytes(type));
      made.places.push_back(place);
      chain.varies.push_back(varies);
      chain.types.push_back(type);
      return static_cast<int>(made.places.size()) - 1;
    };
    for (std::size_t i = begin; i < begin + count; ++i) {
      const LoopInstruction& in = list[i];
      Chain::Link step;
      step.op = *in.in_chain;
      for (int k = 0; k < in.arg_count; ++k) {
        const Source& source = in.args[k];
        if (const auto found = step_of.find(source.value); found != step_of.end()) {
          step.args[step.arg_count++] = {false, found->second};
          continue;
        }
        auto found = place_of.find(source.value);
        if (found == place_of.end())
          found = place_of
                      .emplace(source.value,
                               add_place({source, -1, -1}, type_of(source.value), column ? source.slow : source.fast))
                      .first;
        step.args[step.arg_count++] = {true, found->second};
      }
      if (in.action == Action::reduce) {
        add_reduction(in, &step, &chain, &made, add_place);
      } else if (in.action == Action::store) {
        step.store = add_place({{}, in.operand, in.access, in.streams}, type_of(in.args[0].value), true);
        step.streams = in.streams;
        streams = streams || in.streams;
      } else {
        const Value& value = code_.values[static_cast<std::size_t>(in.out)];
        if (value.place == Place::output || uses_[static_cast<std::size_t>(in.out)] > uses_here[in.out]) {
          for (const LoopChain::Place& place : made.places)
            if (clashes(place, in.out)) return false;
          step.store = add_place({{in.out, in.slow, in.fast}, -1, -1}, value.type, true);
        }
        step_of[in.out] = static_cast<int>(chain.steps.size());
      }
      chain.steps.push_back(step);
    }
    if (chain.varies.size() > kChainOperandsMax || chain.folds.size() > kChainFoldsMax) return false;
    chain.far = far;
    if (list[begin].slow && list[begin].fast && chain.varies.size() + next_.size() <= kChainOperandsMax) {
      for (const int v : next_) {
        LoopChain::Place place{{v, true, true}, -1, -1};
        place.is_next = true;
        chain.prefetched.push_back(add_place(place, DType::f32, true));
      }
      next_.clear();
    }
    std::optional<ChainCode> code = ChainCode::make(chain);
    if (!code) return false;
    made.code = std::move(*code);
    if (streams) {
      for (Chain::Link& step : chain.steps) step.streams = false;
      made.unaligned = ChainCode::make(chain);
      if (!made.unaligned) return false;
    }
    made.instructions.assign(list.begin() + static_cast<std::ptrdiff_t>(begin),
                             list.begin() + static_cast<std::ptrdiff_t>(begin + count));
    LoopInstruction in;
    in.action = Action::chain;
    in.slow = list[begin].slow;
    in.fast = list[begin].fast;
    in.chain = static_cast<int>(code_.chains.size());
    code_.chains.push_back(std::move(made));
    joined->push_back(in);
    return true;
  }

  DType type_of(int value) const { return code_.values[static_cast<std::size_t>(value)].type; }

  /// Along rows, a chain folds the value; down columns, it adds each row to a row of partial results.
  template <class AddPlace>
  void add_reduction(const LoopInstruction& in, Chain::Link* step, Chain* chain, LoopChain* made, AddPlace add_place) {
    if (!code_.columns) {
      step->fold = static_cast<int>(chain->folds.size());
      chain->folds.push_back(in.in_chain->op);
      made->folds.push_back(in.out);
      return;
    }
    LoopChain::Place place;
    place.reduction = in.out;
    step->store = add_place(place, DType::f32, true);
    step->args[step->arg_count++] = step->args[0];
    step->args[0] = {true, step->store};
    made->reduces_columns = true;
  }

  /// Whether a result would overwrite, in a register that is reused, elements that later vectors still read.
  bool clashes(const LoopChain::Place& read, int written) const {
    if (read.access >= 0 || read.reduction >= 0) return false;
    const Value &a = code_.values[static_cast<std::size_t>(read.value.value)],
                &b = code_.values[static_cast<std::size_t>(written)];
    return a.place == Place::tile && b.place == Place::tile && a.offset == b.offset &&
           (a.slow != b.slow || a.fast != b.fast || a.type != b.type);
  }

  void drop_unused_registers() {
    std::set<int> used;
    each_list([&](const std::vector<LoopInstruction>& list) {
      for (const LoopInstruction& in : list) {
        if (in.action == Action::chain) {
          for (const LoopChain::Place& place : code_.chains[static_cast<std::size_t>(in.chain)].places)
            if (place.access < 0 && place.reduction < 0) used.insert(place.value.value);
          continue;
        }
        for (int k = 0; k < in.arg_count; ++k) used.insert(in.args[k].value);
        if (in.action != Action::reduce && in.action != Action::store) used.insert(in.out);
      }
    });
    const auto drop = [&](std::vector<int>& values) {
      std::erase_if(values, [&](int v) { return !used.contains(v); });
    };
    for (Phase& phase : code_.phases) drop(phase.inner_registers);
    drop(code_.outer_registers);
  }

  LoopProgram::Code& code_;
  std::vector<int> uses_;
  std::vector<int> next_;  // values of the phase whose next block no chain asks for yet
};

}  // namespace

void form_chains(LoopProgram::Code& code) { ChainFormer(code).run(); }

}  // namespace weft::cpu
