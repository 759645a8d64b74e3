// The API of Ollama: requests, which become chats or texts to continue, and answers in lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai.hpp"
#include "serve/openai_encoder.hpp"

namespace weft::serve {

/// The body with the name of its model as `names` has it: clients may add the tag ":latest". Errors: OpenAiError with status 400 for a
/// body without a name.
Value with_known_name(Value body, const std::vector<std::string>& names);

struct OllamaRequest {
  CompletionRequest completion;  ///< one text, in chunks; none: the model need only be there
  bool is_chat = false, streams = true;
};

/// Reads the bodies of POST /api/chat and /api/generate. Fields that are not known are ignored. Errors: OpenAiError with status 400 and
/// the name of the field; 404 for another model.
OllamaRequest read_ollama_chat(const Value& body, const OpenAiModel& model);
OllamaRequest read_ollama_generate(const Value& body, const OpenAiModel& model);

/// Makes the answer from the events of its text.
class OllamaAnswer {
 public:
  OllamaAnswer(OllamaRequest request, const OpenAiModel& model);

  /// The lines that follow from an event of the text; the last of them has "done": true.
  std::vector<Value> take(const GenerationEvent& event);
  /// The answer as one object, once the text has ended; or that of a request without a text.
  Value body() const;

 private:
  struct Part {
    std::string content, thinking;
    Value::Array calls, probabilities;
    bool is_empty() const { return content.empty() && thinking.empty() && calls.empty() && probabilities.empty(); }
  };
  Part read_chunks(const GenerationEvent& event);
  void end_call(Part& part);
  Value line(const Part& part, bool is_done) const;

  CompletionAnswer completion_;
  std::string model_;
  bool is_chat_, has_text_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::size_t prompt_tokens_ = 0, tokens_ = 0;
  double prompt_seconds_ = 0, seconds_ = 0, total_seconds_ = 0;
  std::string reason_ = "load";
  std::string call_name_, call_arguments_;  // of a call that is being told
  bool is_in_call_ = false;
  Part whole_;
};

/// What the API tells about a model.
struct OllamaModel {
  std::string name;
  std::string format, family;
  std::uint64_t bytes = 0;
  Value::Array capabilities;
  Value facts = Value::Object();  ///< model_info of /api/show
  Extent context = 0;             ///< 0: none
  bool is_on_cpu = true;
};
OllamaModel ollama_model(const OpenAiModel& model);
OllamaModel ollama_model(const EncoderDesk& desk);

/// Entries of /api/tags and /api/ps, and the answer of /api/show.
Value ollama_tag(const OllamaModel& model, std::int64_t created);
Value ollama_running(const OllamaModel& model, std::int64_t created);
Value ollama_show(const OllamaModel& model, std::int64_t created);

/// The answer of /api/embed, from that of /v1/embeddings.
Value ollama_embeddings(const Value& answer, double seconds);

}  // namespace weft::serve
