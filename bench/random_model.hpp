// Models of well-known shapes with random weights, for speed where the real ones cannot be had: their time is the same.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace weft::bench {

/// Names of the shapes, separated by commas.
std::string random_model_names();
bool is_random_model(std::string_view name);
/// As tables name it: "smollm2-135m in Q4_1, random weights".
std::string random_model_title(std::string_view name);

/// A Hugging Face folder with such a model in f16, the same on every machine; for NAME:TYPE, a GGUF file whose matrices are all of
/// that type. It is written to the temporary folder, and used again if it is there. FileError if there is no room; UsageError for
/// a type that there is not.
std::filesystem::path random_model(std::string_view name);

}  // namespace weft::bench
