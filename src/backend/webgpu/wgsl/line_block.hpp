// Lines along an axis whose places a workgroup keeps in its own memory while updates arrive.
#pragma once

#include <optional>
#include <string>

#include "backend/webgpu/wgsl/axis_lines.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// What a workgroup owns: a part of the places of `lines` whole lines of rows, or of `columns` neighbouring columns. It goes
/// through all indices of these lines.
struct LineBlock {
  Extent lines = 1, columns = 1, places = 0, parts = 1;
  int threads = 256;

  Extent slots() const { return lines * places * columns; }
  Extent groups(const AxisLines& along) const {
    return divide_up(along.outer, lines) * divide_up(along.inner, columns) * parts;
  }
};

/// What a kernel asks of blocks.
struct BlockNeeds {
  Extent slot_bytes = 4, bytes_most = 0;  // of a place, and of a workgroup
  int threads_most = 512;                 // of a workgroup with many places
  Extent turned_parts_most = 1;           // of a row that was a column
};

/// The block of a device, or none if lines are too long for it, or too few for its compute units.
std::optional<LineBlock> line_block(const AxisLines& along, const Target& target, const BlockNeeds& needs);
/// Whether columns are turned to rows, which then have blocks.
bool turns_columns(const AxisLines& along, const Target& target, const BlockNeeds& needs);

/// Writes what a workgroup does with each place and each update of its block.
class LineBlockWriter {
 public:
  /// Begins the body. All operands are words of 32 bits.
  LineBlockWriter(const kernel::CallKernel& kernel, const AxisLines& along, const LineBlock& block,
                  const Target& target)
      : kernel_(kernel), along_(along), block_(block), target_(target), bindings_(target, kernel.name) {
    shader.threads = block.threads;
  }
  int bind(const kernel::Operand& operand, bool written);
  /// Ends the binding of operands. `updates` is -1 if only indices count.
  void resolve(int indices, int updates, int out);

  /// The element of an operand; 0 where it is not bound, as of tensors without elements.
  std::string load(int handle, const std::string& at) const;
  /// A statement that stores the result's element `at`.
  std::string store(const std::string& value) const;
  /// The place of update t of a line and column of the block.
  std::string update_place(const std::string& l, const std::string& c, const std::string& t) const;

  void line(const std::string& statement) { shader.body += "  " + statement + "\n"; }
  void barrier() { line("workgroupBarrier();"); }
  /// Statements for each slot s, whether its place exists or not.
  void each_slot(const std::string& statement);
  /// Statements for each place of the block that exists: its slot s, its line l and column c, its place `at` in the result, and the
  /// number of its turn, `bit`.
  void each_place(const std::string& statement);
  /// Has the threads read all indices and updates now, for each_update to go through them several times, if these are few.
  void hold_updates();
  /// Statements for each update that goes to a place of the block: its number t in the line, its slot s, and with `reads` its value.
  void each_update(const std::string& statement, bool reads = false);
  RenderedDispatch dispatch();

  ShaderPieces shader;

 private:
  std::string inside() const;
  std::string update_item() const;
  std::string places_here() const;
  Extent items() const { return block_.lines * along_.taken * block_.columns; }
  void turns(Extent count, const std::string& number, const std::string& text);

  const kernel::CallKernel& kernel_;
  const AxisLines along_;
  const LineBlock block_;
  const Target& target_;
  Bindings bindings_;
  bool holds_ = false;
  int indices_ = -1, updates_ = -1, out_ = -1;
};

}  // namespace weft::webgpu
