// The conversation of a request.
#pragma once

#include <vector>

#include "weft/llm.hpp"
#include "weft/value.hpp"

namespace weft::serve {

/// The member `messages`. Errors: OpenAiError with status 400 that names the message and its field.
std::vector<llm::Message> read_messages(const Value& body, bool reads_images);

}  // namespace weft::serve
