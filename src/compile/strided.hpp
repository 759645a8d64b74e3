// Operands that kernels read through strides, without a copy.
#pragma once

#include <optional>
#include <vector>

#include "compile/emit.hpp"
#include "compile/kernel.hpp"

namespace weft::compiler {

/// The value in separate memory, row-major.
Place contiguous_place(const graph::Node* node);

/// All functions below return the owner of the memory and the start of the value in it; nullopt if the value must be copied.

/// [batch, row, column], where one of the two strides is 1.
struct MatmulOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0, row = 0, column = 0;
  kernel::View batch;
};
std::optional<MatmulOperand> matmul_operand(const graph::Node* node, const PlaceOf& place);

/// The same, or any number of strides along each axis. Some elements may be the zeros of a pad.
struct MatrixOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0;
  kernel::MatrixView view;
};
std::optional<MatrixOperand> matrix_operand(const graph::Node* node, const PlaceOf& place);
/// Whether some view from the value to memory is one of windows.
bool reads_windows(const graph::Node* node);
/// Whether every product reads the operand of `node` at least as fast as a copy of it: windows, which repeat elements, and values
/// whose neighbours along rows or columns are neighbours in memory.
bool is_read_well(const graph::Node* node, const MatrixOperand& operand);
/// Whether the elements of a matrix fill a block of memory, in any order, as those of turned weights do.
bool is_dense(const kernel::MatrixView& view);

/// [batch, position, head, channel], with contiguous channels.
struct AttentionOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0, batch = 0, row = 0, head = 0;
};
std::optional<AttentionOperand> attention_operand(const graph::Node* node, const PlaceOf& place);

/// Row-major elements.
struct ContiguousOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0;
};
std::optional<ContiguousOperand> contiguous_operand(const graph::Node* node, const PlaceOf& place);

}  // namespace weft::compiler
