// The tiled product on subgroup matrices: f16 operands pass through workgroup memory, sums stay in f32 fragments.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/matmul/matrix_tile.hpp"
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
  std::string batch_at;        // where the batch begins, in elements

  int pitch() const { return vectors + 1; }
  int size() const { return lines * pitch(); }
  int slice_lines() const { return lines / slices; }
  Extent chunk_k() const { return along_k ? 8 * vectors : lines; }
  bool guarded() const { return extent % tile != 0; }
};

class MatrixWriter : ProductWriter {
 public:
  MatrixWriter(const kernel::MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
               Scratch& scratch, Rendered& rendered);
  void render();

 private:
  StagedMatrix stage(char name, const kernel::Operand& operand, const kernel::MatrixView& view, Extent extent, int tile,
                     Bindings& bindings) const;
  ShaderPieces::Function load_function(const StagedMatrix& o, const Bindings& bindings);
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
  void write_bases(const StagedMatrix& o);
  void write_fragments();
  void load(const StagedMatrix& o, const std::string& it, int ahead, int set, const Bindings& bindings);
  void store(const StagedMatrix& o, int ahead, int set);
  void load_fragments(const std::string& prefix, int ahead, int k_part, const char* declare);
  void multiply(const std::string& prefix);
  void write_pipelined(const Bindings& bindings, const std::string& first);
  void write_single(const Bindings& bindings, const std::string& first);
  void write_results();

  const MatrixTile& tile_;
  StagedMatrix a_, b_;
};

}  // namespace weft::webgpu
