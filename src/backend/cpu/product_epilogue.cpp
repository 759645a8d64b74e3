#include "backend/cpu/product_epilogue.hpp"

#include <fmt/format.h>

namespace weft::cpu {
namespace {

bool stores_the_product_alone(const kernel::LoopKernel& epilogue) {
  return epilogue.stores.size() == 1 &&
         epilogue.steps.at(static_cast<std::size_t>(epilogue.stores[0].value)).kind == kernel::StepKind::accumulator;
}

}  // namespace

/// Finds an output of the product's type that is stored row by row without gaps and that nothing else in this kernel reads. The
/// product is written there, and the epilogue changes it in place.
int ProductEpilogue::output_for(const Product& k, Extent* offset) {
  for (const kernel::Store& store : k.epilogue.stores) {
    const kernel::Operand& output = k.epilogue.outputs.at(static_cast<std::size_t>(store.output));
    if (output.type != k.type || overlap(output, k.a) || overlap(output, k.b)) continue;
    bool read = false;
    for (const kernel::Operand& input : k.epilogue.inputs) read = read || overlap(output, input);
    int stores = 0;
    for (const kernel::Store& other : k.epilogue.stores) stores += other.output == store.output;
    const Access access = make_access(store.view, 1, k.batch * k.m * k.n, false);
    if (read || stores != 1 || !access.plain_fast() || Access::stride(access.fast) != 1) continue;
    *offset = access.offset;
    return store.output;
  }
  return -1;
}

ProductEpilogue::ProductEpilogue(const kernel::MatmulKernel& k)
    : ProductEpilogue(Product{k.epilogue, k.batch, k.m, k.n, k.type(), k.a, k.b, false}) {}

ProductEpilogue::ProductEpilogue(const kernel::PackedMatmulKernel& k)
    : ProductEpilogue(Product{k.epilogue, 1, k.m, k.n, DType::f32, k.a, k.weights, true}) {}

ProductEpilogue::ProductEpilogue(const Product& k)
    : m_(k.m),
      element_bytes_(size_bytes(k.type)),
      output_(output_for(k, &offset_)),
      plain_(output_ >= 0 && stores_the_product_alone(k.epilogue)),
      program_(k.epilogue, k.n, k.type, output_),
      in_tiles_(k.gives_tiles && output_ < 0 && program_.takes_product_rows(k.n)),
      operands_(k.epilogue) {
  if (output_ < 0 && !in_tiles_) scratch_.resize(static_cast<std::size_t>(k.batch * k.m * k.n) * element_bytes_);
}

char* ProductEpilogue::bind(const Memory& memory) {
  operands_.bind(memory);
  binding_ = operands_.binding();
  if (in_tiles_) return nullptr;
  char* product = scratch_.data();
  if (output_ >= 0)
    product = binding_.outputs[static_cast<std::size_t>(output_)] + offset_ * static_cast<Extent>(element_bytes_);
  binding_.product = product;
  return product;
}

void ProductEpilogue::operator()(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end,
                                 std::int64_t column_begin, std::int64_t column_end) const {
  const Extent first = batch * m_;
  program_.run_rectangle(binding_, first + row_begin, first + row_end, column_begin, column_end);
}

void ProductEpilogue::operator()(const float* y, std::int64_t y_row, std::int64_t row_begin, std::int64_t row_end,
                                 std::int64_t column_begin, std::int64_t column_end) const {
  LoopBinding binding = binding_;
  binding.product = reinterpret_cast<const char*>(y);
  binding.product_row = y_row;
  program_.run_rectangle(binding, row_begin, row_end, column_begin, column_end);
}

std::string ProductEpilogue::to_string() const {
  std::string text = output_ >= 0 ? fmt::format(" into out{}\n", output_)
                     : in_tiles_  ? " into tiles\n"
                                  : " into scratch\n";
  if (!plain_) text += program_.to_string();
  return text;
}

}  // namespace weft::cpu
