// Declarations of "weft" for TypeScript that are written by hand.
#pragma once

#include <string_view>

namespace weft::script {

/// The beginning of the module: values, transforms, modules and optimisers. "%DTYPES%" stands for the names of dtypes.
extern const std::string_view kNounDeclarations;
/// The further nouns of the module, without its end.
extern const std::string_view kServiceDeclarations;
/// What is outside of the module.
extern const std::string_view kGlobalDeclarations;

}  // namespace weft::script
