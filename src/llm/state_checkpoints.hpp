// Copies of the states of sequences at earlier tokens. A state cannot be cut back, so a text that differs from the last one can only
// go on from such a copy.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "text/token.hpp"
#include "weft/tensor.hpp"

namespace weft::llm::detail {

class StateCheckpoints {
 public:
  struct Checkpoint {
    std::vector<text::TokenId> tokens;  // that the states have seen
    int slot = 0;
    std::vector<Tensor> states;  // a row of each state
  };
  /// Checkpoints together take at most `bytes_max`; those that were used or made least recently go first. `bytes_each`: of one.
  StateCheckpoints(std::uint64_t bytes_max, std::uint64_t bytes_each) : count_max_(bytes_max / bytes_each) {}

  bool is_off() const { return count_max_ == 0; }
  /// Whether a copy exists for exactly these tokens of the slot.
  bool has(std::span<const text::TokenId> tokens, int slot) const;
  void add(Checkpoint checkpoint);
  /// The longest checkpoint that `prompt` begins with, of at most `longest` tokens; null if there is none. `slot`: only of this
  /// sequence, as the cache has keys and values of its own for each; -1: of any.
  const Checkpoint* best(std::span<const text::TokenId> prompt, std::size_t longest, int slot);

 private:
  std::uint64_t count_max_;
  std::list<Checkpoint> list_;  // most recent first
};

}  // namespace weft::llm::detail
