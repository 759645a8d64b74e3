// Shaders in other languages than WGSL, by naga.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/kernels.hpp"

namespace weft::cli {

/// wgsl, spirv, msl, hlsl, glsl.
std::span<const std::string_view> shader_languages();
/// Translates with naga, which is $WEFT_NAGA, or in the PATH, or where script/setup --kernels puts it beside a build tree. UsageError
/// for another name, FileError if naga is not installed; `translate` throws an InternalError with what naga says.
KernelLanguage shader_language(std::string_view name);

}  // namespace weft::cli
