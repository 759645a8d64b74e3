// Texts that see a storage array as another one: with other elements, or from a later place on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/webgpu/wgsl/shader.hpp"

namespace weft::webgpu {

/// The scalar type of an array's elements and their number: {"f32", 4} of "vec4<f32>". Nothing for atomics.
struct ArrayElement {
  std::string scalar;
  int lanes = 1;
  bool operator==(const ArrayElement&) const = default;
};
std::optional<ArrayElement> array_element(std::string_view type);

/// Whether the text does more with the array `name` than assigning to whole elements.
bool is_read(std::string_view text, std::string_view name);

/// A storage array of scalars, in which a text sees an array of `lanes` scalars each that begins `base` scalars later.
struct ArrayView {
  std::string name;    // in the text: "data2"
  std::string target;  // the array of scalars
  ArrayElement element;
  std::uint32_t base = 0;
  std::string functions;  // the prefix of names of functions that read and write vectors
};

/// The text with the accesses to `view.name` written as accesses to the array of scalars. Vectors go through functions, which
/// `declare_view` declares. Nothing if the text takes the address of an element, or changes a part of a vector.
std::optional<std::string> with_view(std::string_view text, const ArrayView& view);
void declare_view(const ArrayView& view, ShaderPieces& shader);

}  // namespace weft::webgpu
