// A stable sort by radix of lines in memory.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/sort_shader.hpp"

namespace weft::webgpu {

/// Sorts lines of `n` keys and the places that belong to them, four bits at a time: keys are counted by their lowest four bits,
/// the counts are added up, and keys and places move. A move turns the key by those bits, so that every pass has the same shaders.
class MemoryRadix {
 public:
  struct Sorted {
    kernel::Operand keys, places;
    int turned = 0;  // bits by which keys are turned to the right: the sorted bits are the highest

    /// A key, which had no bits above the sorted ones.
    std::string key(const std::string& word) const;
  };

  MemoryRadix(std::string name, Extent lines, Extent n, const Target& target, Scratch& scratch);
  /// Where the caller writes keys and places before the sort.
  const kernel::Operand& keys() const { return keys_; }
  const kernel::Operand& places() const { return places_; }
  /// Appends the dispatches of a sort by the lowest `bits` bits.
  Sorted sort(int bits, Scratch& scratch, Rendered& rendered) const;

 private:
  void begin_tile(SortShader& s) const;
  std::string counter(const std::string& digit) const;
  RenderedDispatch count_digits(const kernel::Operand& keys, const kernel::Operand& counts) const;
  void add_up(const kernel::Operand& counts, const kernel::Operand& starts, Scratch& scratch, Rendered& rendered) const;
  RenderedDispatch move(const Sorted& before, const kernel::Operand& starts, const Sorted& after) const;

  const std::string name_;
  const Extent lines_, n_, tiles_;
  const Target& target_;
  const kernel::Operand keys_, places_;
};

}  // namespace weft::webgpu
