// The tiled product: a workgroup computes a tile of C from tiles of A and B in workgroup memory.
#pragma once

#include <fmt/format.h>

#include <string>

#include "backend/webgpu/wgsl/matmul/product_writer.hpp"
#include "backend/webgpu/wgsl/matmul/tile.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The staging of one operand from its buffer to workgroup memory, where each line has one k.
struct StagedOperand {
  char name;  // 'a' or 'b'
  int handle = -1;
  Extent extent = 0;                // rows of A or columns of B
  int tile = 0;                     // of that extent
  kernel::MatrixView view;          // [batch, extent, k]
  Extent stride = 0, k_stride = 0;  // of a plain view
  bool along_k = false;             // neighbouring elements follow k: transposed on the way
  bool vectors = false;             // read in aligned groups of four
  bool reordered = false;           // rows come in another order
  std::string batch_offset;

  int pitch() const { return tile / 4 + (along_k ? 1 : 0); }                  // groups of four from one k to the next
  int line_vectors(int depth) const { return (along_k ? depth : tile) / 4; }  // in one line as read
  bool guarded() const { return extent % tile != 0; }
  bool plain() const { return view.is_plain(); }
};

class TileWriter : ProductWriter {
 public:
  /// `groups`: ProductWriter's; or null. `k_ends`: i32 [batch], as of grouped_outer: a batch sums over k from the largest end before
  /// it to its own; or null. Neighbours of neither operand then follow k, and k is not split.
  TileWriter(const kernel::MatmulKernel& kernel, const RowGroups* groups, const kernel::Operand* k_ends,
             const Tile& tile, int split, const Target& target, Scratch& scratch, Rendered& rendered);
  void render();

 private:
  static bool by_fours(const kernel::View& view);
  StagedOperand stage(char name, const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent,
                      int tile, Bindings& bindings);
  void locate_batch(StagedOperand& s, const Bindings& bindings);
  ShaderPieces::Function load_function(const StagedOperand& s, const Bindings& bindings);
  void write_place_in_view(const StagedOperand& s, int number, const std::string& at);
  void write_place();
  int loads(const StagedOperand& s) const { return s.tile * tile_.depth / 4 / tile_.threads(); }  // of a thread, a tile
  int lines_apart(const StagedOperand& s) const {
    return tile_.threads() / s.line_vectors(tile_.depth);
  }  // from one load to the next

  /// Whether all loads are inside the operand at fixed distances. One address then serves all, which saves registers.
  bool is_flat(const StagedOperand& s) const {
    return s.plain() && s.vectors && !s.reordered && !s.guarded() && !k_ends_ && kernel_.k % tile_.depth == 0;
  }
  // Vectors from one line of a flat operand to the next.
  static std::string line_stride(const StagedOperand& s) {
    return fmt::format("{}u", static_cast<std::uint32_t>((s.along_k ? s.stride : s.k_stride) / 4));
  }

  void write_staging_places(const StagedOperand& s);
  std::string k_end() const { return k_ends_ ? "k_last" : fmt::format("{}u", kernel_.k); }
  /// The first k of a step.
  std::string k_of(const std::string& step) const {
    return fmt::format("{}{} * {}u", k_ends_ ? "k_first + " : "", step, tile_.depth);
  }
  void write_k_range(int ends, const Bindings& bindings);

  void write_loads(const StagedOperand& s, const std::string& step, const Bindings& bindings,
                   const std::string& indent);
  void write_shared(const StagedOperand& s, const std::string& indent);
  int row_groups() const { return tile_.thread_rows / 4; }
  int column_groups() const { return tile_.thread_columns / 4; }

  void write_multiply(const StagedOperand& a, const StagedOperand& b, const std::string& indent);
  void write_registers(const StagedOperand& a, const StagedOperand& b);
  void write_product(const StagedOperand& a, const StagedOperand& b, const Bindings& bindings);
  bool compact() const;
  bool written_twice() const;
  double products() const;
  std::string opaque_depth() const;
  void write_plain_loop(const StagedOperand& a, const StagedOperand& b, const Bindings& bindings,
                        const std::string& first, const std::string& end);
  void write_results();
  void write_results_in_loop();

  const kernel::Operand* k_ends_;
  const Tile& tile_;
};

}  // namespace weft::webgpu
