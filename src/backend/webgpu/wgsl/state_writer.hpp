// What kernels on states have in common: their text, their operands, and the rows of a cache.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "backend/webgpu/wgsl/cache.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class StateWriter {
 protected:
  StateWriter(const kernel::CallKernel& kernel, const Target& target, bool cached)
      : kernel_(kernel), target_(target), cached_(cached), bindings_(target, kernel.name) {}

  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  std::string load(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }
  std::string store(int handle, const std::string& index, const std::string& value) const {
    return bindings_.store(handle, fmt::format("{} + {}u", index, bindings_.base(handle)), value);
  }
  /// has_row, has_state and slot of sequence s; the state is the operand of that number.
  void declare_row(std::size_t state) {
    if (cached_) {
      line(fmt::format("let row = {};", load(sequence_, "s")));
      line(fmt::format("let has_row = row >= 0 && row < {};", kernel_.shapes[state][0]));
      line(fmt::format("let has_state = has_row && {} <= 0;", load(is_first_, "s")));
      line("let slot = u32(max(row, 0));");
    } else {
      line("let has_row = true;");
      line("let has_state = true;");
      line("let slot = s;");
    }
  }
  struct Stretch {
    Extent steps, groups, width, padded, count;  // of the operands [B, steps, groups, width]; rows and steps in memory
    Extent threads;
  };
  /// The steps from `first` on of operands, for the group `shared_by`, in workgroup memory; zeros behind the last column.
  void stage(const Stretch& s, std::initializer_list<std::pair<std::string_view, int>> operands) {
    line(fmt::format("  for (var i = thread; i < {}u; i += {}u) {{", s.count * s.padded, s.threads));
    line(fmt::format("    let step = first + {};", divided("i", s.padded)));
    line(fmt::format("    let n = {};", modulo("i", s.padded)));
    line(fmt::format("    let is_inside = step < {}u && n < {}u;", s.steps, s.width));
    line(fmt::format("    let at = select(0u, ((s * {}u + step) * {}u + shared_by) * {}u + n, is_inside);", s.steps,
                     s.groups, s.width));
    for (const auto& [name, handle] : operands)
      line(fmt::format("    ${}[i] = select(0f, {}, is_inside);", name, load(handle, "at")));
    line("  }");
  }
  /// The operands of the cache, which come behind the state.
  void bind_rows(std::size_t state) {
    if (!cached_) return;
    sequence_ = bindings_.add(kernel_.reads[state + 1], false);
    is_first_ = bindings_.add(kernel_.reads[state + 2], false);
  }

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const bool cached_;
  Bindings bindings_;
  int sequence_ = 0, is_first_ = 0;
  std::string text_;
};

inline constexpr std::size_t kScanState = 5;  // the operand of a scan that is the state before the first step

/// A scan: five operands of steps, then the state; results are the state after the last step, and y.
class SequenceScanWriter : protected StateWriter {
 protected:
  using StateWriter::StateWriter;

  void bind_scan() {
    const kernel::Operand &before = kernel_.reads[kScanState], &after = kernel_.outs[0];
    for (std::size_t i = 0; i < kScanState; ++i) reads_[i] = bindings_.add(kernel_.reads[i], false);
    after_ = bindings_.add(after, true);
    state_ = after == before || cached_ ? after_ : bindings_.add(before, false);
    y_ = bindings_.add(kernel_.outs[1], true);
    bind_rows(kScanState);
    bindings_.forbid_vectors(after_);
    bindings_.forbid_vectors(y_);
    bindings_.resolve();
  }

  int reads_[kScanState] = {}, state_ = 0, after_ = 0, y_ = 0;
};

/// A cache that must stay is copied, and the copy changed in place.
inline void copy_cache(const kernel::CallKernel& kernel, std::size_t state, const Target& target, Scratch& scratch,
                       Rendered& rendered) {
  if (!(kernel.outs[0] == kernel.reads[state]))
    render_copy(kernel.reads[state], kernel.outs[0], target, scratch, rendered);
}

}  // namespace weft::webgpu
