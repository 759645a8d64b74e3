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

/// The same, or any number of strides along each axis if that is better than a copy: for windows, and if neighbours of rows or
/// columns are neighbours in memory. Some elements may be the zeros of a pad.
struct MatrixOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0;
  kernel::MatrixView view;
};
std::optional<MatrixOperand> matrix_operand(const graph::Node* node, const PlaceOf& place);

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

/// A vector with any stride that chooses rows of a product with packed weights.
struct ChosenOperand {
  const graph::Node* owner = nullptr;
  Extent offset = 0, stride = 0;
};
std::optional<ChosenOperand> chosen_operand(const graph::Node* node, const PlaceOf& place);

}  // namespace weft::compiler
