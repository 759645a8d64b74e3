// The tiled product on subgroup matrices: f16 operands pass through workgroup memory, sums stay in f32 fragments.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
#include "backend/webgpu/wgsl/matmul/packed_operand.hpp"
#include "backend/webgpu/wgsl/matmul/product_writer.hpp"

namespace weft::webgpu {

/// The staging of one operand: eight neighbours make a vector, and lines of vectors have the same order in workgroup memory as
/// in the operand. Lines are padded by one vector, so that neighbouring lines share no bank.
struct StagedMatrix {
  char name = 'a';
  int handle = -1;
  DType type = DType::f16;
  Extent extent = 0;           // rows of A or columns of B
  kernel::MatrixView view;     // [batch, extent, k]
  bool along_k = false;        // neighbours follow k: a line is a row of A or a column of B; else it is one k
  int tile = 0;                // of that extent
  int group = 1;               // elements that are read together: 8, 4 or 1
  int slices = 1;              // steps of k in a chunk
  int lines = 0, vectors = 0;  // of a chunk
  int halves = 1;              // staged side by side: 2 where high and low ones are multiplied together
  std::string batch_at;        // where the batch begins, in elements

  int pitch() const { return vectors + 1; }
  int half_size() const { return lines * pitch(); }
  int size() const { return halves * half_size(); }
  int slice_lines() const { return lines / slices; }
  Extent chunk_k() const { return along_k ? 8 * vectors : lines; }
  bool guarded() const { return extent % tile != 0; }
};

/// Operands that hold scaled halves of other numbers (scaled_product.cpp): lines of one k, padded to whole tiles. Or only A holds
/// such halves (quantised/halved_product.cpp), or both are scaled as they are staged (staged_product.cpp), and neither is padded.
struct ScaledOperands {
  int products = 1;  // 1; or 3, of high and low halves
  /// With three products: whether a step multiplies the high and low halves of its k, which are in this order in both
  /// operands. Else k runs over low * high, high * low, high * high; A's low halves are first, and B's high ones.
  bool together = false;
  Extent part = 0;  // k of one product
  /// f32 [batch or 1, parts, extent]: the largest size in each part of each row of A and column of B.
  kernel::Operand largest_a, largest_b;
  Extent parts_a = 1, parts_b = 1;
  bool batched_a = false, batched_b = false;
  bool scaled_b = true;  // else B is as it is, and there is one product
  bool padded = true;    // else the operands are plain views
  bool staged = false;   // numbers of bf16 in eights become halves as they are staged
  /// The B of a second product with the same A and size: the first half of a tile's columns is of B, the second of this. Not
  /// together with a split, and only where suits_pair says so.
  std::optional<kernel::Operand> second_b = {};
  kernel::Operand second_largest_b = {};  // its largest sizes, if B is scaled
  std::size_t steps_of_first = 0;         // GatedPair's
  /// B and that second B in blocks, in place of operands of halves. Neighbours follow k, and tiles have whole steps of it.
  std::optional<PackedOperand> packed_b = {}, packed_second_b = {};
};

class MatrixWriter : ProductWriter {
 public:
  /// `scaled`: what the operands hold, if they are such; or null. `groups`: ProductWriter's, and rows of A are slots; or null.
  MatrixWriter(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
               Scratch& scratch, Rendered& rendered, const ScaledOperands* scaled = nullptr,
               const RowGroups* groups = nullptr);
  void render();

 private:
  StagedMatrix stage(char name, const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent, int tile,
                     Bindings& bindings) const;
  ShaderPieces::Function load_function(const StagedMatrix& o, const Bindings& bindings);
  ShaderPieces::Function halves_function();
  std::string scales(const StagedMatrix& o, int slice, int i) const;
  int loads(const StagedMatrix& o) const { return divide_up(o.slice_lines() * o.vectors, tile_.threads()); }
  int lines_apart(const StagedMatrix& o) const { return tile_.threads() / o.vectors; }
  bool guards_k() const { return steps_per_split_ * split_ * tile_.depth > kernel_.k; }

  /// The place of step `it + ahead` of an operand: its chunk, the slice of the chunk, and the buffer.
  struct Place {
    std::string chunk;
    int slice, buffer;
  };
  Place place(const StagedMatrix& o, const std::string& it, int ahead) const;

  void write_place();
  void write_exponents(const Bindings& bindings);
  void write_bases(const StagedMatrix& o);
  void write_packed_rows(const StagedMatrix& o);
  void write_scales(const StagedMatrix& o);
  void write_fragments();
  void load(const StagedMatrix& o, const std::string& it, int ahead, int set, const Bindings& bindings);
  void store(const StagedMatrix& o, int ahead, int set);
  void load_fragments(const StagedMatrix& o, int half, const std::string& prefix, int ahead, int k_part,
                      const char* declare);
  void load_fragments(const std::string& prefix, int ahead, int k_part, const char* declare);
  void multiply(const std::string& prefix_a, const std::string& prefix_b);
  void write_pipelined(const Bindings& bindings, const std::string& first);
  void write_together(const Bindings& bindings, const std::string& first);
  void begin_pipeline(const Bindings& bindings, const std::string& first);
  std::string turns(const std::string& first) const;
  void write_single(const Bindings& bindings, const std::string& first);
  void write_results();

  bool together() const { return scaled_ && scaled_->together; }
  bool paired() const { return scaled_ && (scaled_->second_b || scaled_->packed_second_b); }
  bool unpacks(const StagedMatrix& o) const { return o.name == 'b' && scaled_ && scaled_->packed_b; }
  void bind_second_b(Bindings& bindings);
  void declare_packed(ShaderPieces& shader, const Bindings& bindings);
  bool scales_in_staging() const { return scaled_ && scaled_->staged; }
  std::string stored_at(const StagedMatrix& o, const std::string& at, Extent part) const;
  ShaderPieces::Function rescale_function() const;

  const MatrixTile& tile_;
  const ScaledOperands* scaled_;
  StagedMatrix a_, b_;
  int largest_a_ = -1, largest_b_ = -1, second_b_ = -1, second_largest_b_ = -1;
};

}  // namespace weft::webgpu
