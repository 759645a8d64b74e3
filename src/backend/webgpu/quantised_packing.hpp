// What all that pack weights by quantised_pack.hpp have in common.
#pragma once

#include "backend/contract.hpp"
#include "backend/webgpu/quantised_pack.hpp"

namespace weft::webgpu {

class QuantisedPacking : public backend::WeightPacking {
 public:
  bool supports(BlockType type) const override { return has_quantised_products(type); }
  std::size_t packed_bytes(BlockType type, Extent n, Extent k) const override {
    return static_cast<std::size_t>(quant_layout(quant_form(type), n, k).words) * 4;
  }
};

}  // namespace weft::webgpu
