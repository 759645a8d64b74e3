// Prompts that ask a model for what stands between two texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/llm.hpp"

namespace weft::serve {

/// Whether the model was trained for it: its vocabulary has the tokens that mark the two texts and the gap.
bool can_fill_in(const llm::Model& model);

/// The prompt; nothing for a model that cannot. Source: M. Bavarian et al., "Efficient Training of Language Models to Fill in the
/// Middle", 2022; the marks are those of the models' tokenizers.
std::optional<std::vector<std::int32_t>> fill_in_prompt(const llm::Model& model, std::string_view before,
                                                        std::string_view after);

}  // namespace weft::serve
