// Attributes of a call kernel, as the struct that the op's row describes; and its operands as words.
#pragma once

#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::kernel {

template <class S>
S attributes_of(const CallKernel& kernel) {
  return graph::struct_of<S>(kernel.op->attributes, kernel.attributes.data());
}

/// The kernel with its f16 and i8 operands as the u32 words that hold them. Kernels of caches read and write them this way;
/// rows of caches are whole words.
inline CallKernel with_words(CallKernel kernel) {
  const auto convert = [](std::vector<Operand>& operands, std::vector<Shape>& shapes) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Operand& operand = operands[i];
      if (operand.type != DType::f16 && operand.type != DType::i8) continue;
      const Extent elements = 32 / element(operand.type).bits;
      operand = {operand.buffer, DType::u32, operand.offset / elements, operand.count / elements};
      shapes[i][shapes[i].rank() - 1] /= elements;
    }
  };
  convert(kernel.reads, kernel.shapes);
  convert(kernel.outs, kernel.out_shapes);
  return kernel;
}

}  // namespace weft::kernel
