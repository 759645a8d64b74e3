// Language models from GGUF files: a text is generated piece by piece.
#include "browser/src/module.hpp"
#include "weft/llm.hpp"

using namespace weft;
using namespace weft::browser;

namespace {

llm::Model& model_of(std::uint64_t id) { return object_of<llm::Model, Kind::model>(id, "model"); }

// A generation and its place in the text.
struct Writing {
  llm::Generation generation;
  std::optional<llm::Generation::iterator> at;
};

// `numbers`: tokens at most, temperature, top_k, top_p, min_p, seed; a NaN keeps the default.
llm::GenerateOptions options_of(const double* numbers) {
  capi::required(numbers, "numbers");
  llm::GenerateOptions options;
  const auto whole = [&](int index, const char* what) {
    if (!(numbers[index] >= 0 && numbers[index] <= 9007199254740992.0))
      throw UsageError(fmt::format("{}: {} is not a whole number from 0", what, numbers[index]));
    return static_cast<std::int64_t>(numbers[index]);
  };
  if (is_given(numbers[0])) options.max_tokens = whole(0, "maxTokens");
  if (is_given(numbers[1])) options.sampling.temperature = numbers[1];
  if (is_given(numbers[2])) options.sampling.top_k = whole(2, "topK");
  if (is_given(numbers[3])) options.sampling.top_p = numbers[3];
  if (is_given(numbers[4])) options.sampling.min_p = numbers[4];
  if (is_given(numbers[5])) options.sampling.seed = static_cast<std::uint64_t>(whole(5, "seed"));
  return options;
}

std::uint64_t begin(llm::Generation generation) {
  return objects<Writing, Kind::generation>().add(std::make_shared<Writing>(Writing{std::move(generation), {}}));
}

}  // namespace

/// Loads a model. `context` 0: the model's own, or what memory holds.
WEFT_EXPORT(weft_browser_model_load)
weft_status weft_browser_model_load(const char* path, const char* device, double context, std::uint64_t* result) {
  return capi::guarded([&] {
    llm::LoadOptions options;
    options.device = capi::device_named(device);
    if (!(context >= 0 && context <= 1e9)) throw UsageError(fmt::format("a context of {} positions", context));
    options.context = static_cast<Extent>(context);
    options.keep_packed = false;
    auto model = std::make_shared<llm::Model>(llm::load(capi::required(path, "path"), options));
    *capi::required(result, "result") = objects<llm::Model, Kind::model>().add(std::move(model));
  });
}
/// Architecture and sizes. The text is valid until the next function that gives a text.
WEFT_EXPORT(weft_browser_model_describe)
weft_status weft_browser_model_describe(std::uint64_t model, const char** text) {
  return capi::guarded([&] { *capi::required(text, "text") = capi::keep_text(model_of(model).describe()); });
}
WEFT_EXPORT(weft_browser_model_release) weft_status weft_browser_model_release(std::uint64_t model) {
  return release<llm::Model, Kind::model>(model, "model");
}

/// Begins the continuation of a text.
WEFT_EXPORT(weft_browser_generate)
weft_status weft_browser_generate(std::uint64_t model, const char* prompt, const double* numbers,
                                  std::uint64_t* result) {
  return capi::guarded([&] {
    const llm::GenerateOptions options = options_of(numbers);
    *capi::required(result, "result") = begin(model_of(model).generate(capi::required(prompt, "prompt"), options));
  });
}
/// Begins the reply to a conversation: roles and contents take turns in `texts`, `count` of them in all.
WEFT_EXPORT(weft_browser_chat)
weft_status weft_browser_chat(std::uint64_t model, const char* const* texts, std::size_t count, const double* numbers,
                              std::uint64_t* result) {
  return capi::guarded([&] {
    const std::span list = capi::list_of(texts, count, "texts");
    std::vector<llm::Message> messages;
    for (std::size_t i = 0; i + 1 < list.size(); i += 2)
      messages.push_back({capi::required(list[i], "a role"), capi::required(list[i + 1], "a content")});
    const llm::GenerateOptions options = options_of(numbers);
    *capi::required(result, "result") = begin(model_of(model).chat(messages, options));
  });
}
/// The next piece of the text, or null at its end. It is valid until the next function that gives a text.
WEFT_EXPORT(weft_browser_generation_next)
weft_status weft_browser_generation_next(std::uint64_t generation, const char** piece) {
  return capi::guarded([&] {
    auto& writing = object_of<Writing, Kind::generation>(generation, "generation");
    if (writing.at)
      ++*writing.at;
    else
      writing.at = writing.generation.begin();
    const bool is_over = *writing.at == writing.generation.end();
    *capi::required(piece, "piece") = is_over ? nullptr : capi::keep_text(std::string(**writing.at));
  });
}
WEFT_EXPORT(weft_browser_generation_release) weft_status weft_browser_generation_release(std::uint64_t generation) {
  return release<Writing, Kind::generation>(generation, "generation");
}
