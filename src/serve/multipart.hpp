// Forms with files, as browsers and API clients send them: multipart/form-data (RFC 7578).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::serve {

/// A field of a form, or a file of it. `content` is a part of the body.
struct FormPart {
  std::string name;
  std::string file_name;  ///< empty: a field
  std::string_view content;
};

/// The parts of a body, in their order. `type` is the header Content-Type.
/// Errors: OpenAiError with status 415 for another type, and 400 for a body that breaks a rule of the format, has more than 256 parts,
/// or a part without a name.
std::vector<FormPart> parse_form(std::string_view type, std::string_view body);

/// The last part of a name, or null.
const FormPart* find_part(std::span<const FormPart> parts, std::string_view name);

}  // namespace weft::serve
