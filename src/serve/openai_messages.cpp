#include "serve/openai_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/quote.hpp"
#include "serve/image_url.hpp"
#include "serve/openai_fields.hpp"

namespace weft::serve {
namespace {

/// Images of one request, which may be hostile.
class ImageBudget {
 public:
  /// The image of a part of type image_url: {"url": "data:image/png;base64,..."}, or the text alone.
  Tensor take(const Value& part, const std::string& field) {
    const Value* image = part.find("image_url");
    const Value* url = image && image->is_object() ? image->find("url") : image;
    if (!url || !url->is_string()) refuse_field(field, "has no url that is a string");
    if (++images_ > kImagesMax)
      refuse_field(field, fmt::format("is one of more than {} images in a request", kImagesMax));
    try {
      const Tensor pixels = image_of_url(url->string(), {.file_bytes_max = kFileBytesMax, .pixels_max = pixels_});
      pixels_ -= static_cast<std::uint64_t>(pixels.numel()) / 3;
      return pixels;
    } catch (const Error& error) {
      refuse_field(field, error.what());
    }
  }

 private:
  static constexpr int kImagesMax = 32;
  static constexpr std::uint64_t kFileBytesMax = std::uint64_t{20} << 20;
  int images_ = 0;
  std::uint64_t pixels_ = std::uint64_t{1} << 26;  // that are left for all
};

// A string, or a list of parts: texts, and images if the model reads them.
void read_content(const Value& value, const std::string& place, bool reads_images, ImageBudget& budget,
                  llm::Message& message) {
  if (value.is_string()) {
    message.content = value.string();
    return;
  }
  const std::string field = place + ".content";
  if (!value.is_array()) refuse_field(field, "is neither a string nor a list of parts");
  bool has_images = false;
  for (std::size_t i = 0; i < value.elements().size(); ++i) {
    const Value& part = value[i];
    const Value* type = part.is_object() ? part.find("type") : nullptr;
    const Value* inner = part.is_object() ? part.find("text") : nullptr;
    if (!type || !type->is_string()) refuse_field(field, "has a part without a type");
    if (reads_images && type->string() == "image_url") {
      message.parts.emplace_back(budget.take(part, fmt::format("{}[{}].image_url", field, i)));
      has_images = true;
      continue;
    }
    if (type->string() != "text" || !inner || !inner->is_string())
      refuse_field(field, fmt::format("has a part of type {}; this model reads {}", quote(type->string(), 40),
                                      reads_images ? "text and image_url" : "text"));
    message.parts.emplace_back(inner->string());
  }
  if (has_images) return;
  for (const llm::ContentPart& part : message.parts) message.content += part.text;
  message.parts.clear();
}

// Templates want arguments as an object; the API has them as JSON text.
std::string tool_calls_of(const Value& calls, std::string_view place) {
  const std::string field = fmt::format("{}.tool_calls", place);
  if (!calls.is_array()) refuse_field(field, "is not a list");
  Value::Array list;
  for (const Value& call : calls.elements()) {
    const Value* function = call.is_object() ? call.find("function") : nullptr;
    const Value* name = function && function->is_object() ? function->find("name") : nullptr;
    if (!name || !name->is_string()) refuse_field(field, "has a call without a function's name");
    Value arguments = Value::Object();
    if (const Value* given_arguments = function->find("arguments")) {
      arguments = *given_arguments;
      if (arguments.is_string() && !arguments.string().empty()) try {
          arguments = Value::parse(arguments.string());
        } catch (const Error&) {
          refuse_field(field, "has arguments that are not JSON");
        }
    }
    Value copy =
        Value::object({{"type", "function"}, {"function", Value::object({{"name", *name}, {"arguments", arguments}})}});
    if (const Value* id = call.find("id"); id && id->is_string()) copy.members().set("id", *id);
    list.push_back(std::move(copy));
  }
  return Value(std::move(list)).to_json();
}

}  // namespace

std::vector<llm::Message> read_messages(const Value& body, bool reads_images) {
  const Value* list = given(body, "messages");
  if (!list || !list->is_array() || list->elements().empty())
    refuse_field("messages", "is not a list of one message or more");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  std::vector<llm::Message> messages;
  ImageBudget budget;
  for (std::size_t i = 0; i < list->elements().size(); ++i) {
    const Value& json = (*list)[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!json.is_object()) refuse_field(place, "is not an object with \"role\" and \"content\"");
    const Value* role = given(json, "role");
    if (!role || !role->is_string() ||
        std::find(std::begin(kRoles), std::end(kRoles), role->string()) == std::end(kRoles))
      refuse_field(place + ".role", "is none of system, developer, user, assistant and tool");
    llm::Message message{role->string() == "developer" ? "system" : role->string(), ""};
    const Value *content = given(json, "content"), *calls = given(json, "tool_calls");
    if (content)
      read_content(*content, place, reads_images, budget, message);
    else if (!calls || message.role != "assistant")
      refuse_field(place + ".content", "is missing");
    if (calls) message.tool_calls = tool_calls_of(*calls, place);
    if (const Value* v = given(json, "reasoning_content"))
      message.reasoning = string_in(*v, place + ".reasoning_content");
    if (const Value* v = given(json, "name")) message.name = string_in(*v, place + ".name");
    if (const Value* v = given(json, "tool_call_id")) message.tool_call_id = string_in(*v, place + ".tool_call_id");
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace weft::serve
