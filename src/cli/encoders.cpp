// weft rerank, weft answer, weft classify
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/text_encoder.hpp"
#include "weft/device.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

struct EncoderRequest {
  ModelOptions model;
  std::string text, pair, precision = "f32";
  std::vector<std::string> documents;
  std::filesystem::path lines;
  std::size_t count = 0;
  bool json = false, cut = false;
  std::filesystem::path file;  // of answer
  encoder::AnswerOptions answer;
};

encoder::Model load_encoder(const EncoderRequest& request) {
  use_threads(request.model);
  return load_text_encoder(model_path(request.model.path), parse_device(request.model.device), request.precision);
}

void put_json(const nlohmann::ordered_json& json) { put_text(json_text(json, -1) + "\n"); }

int rerank(const EncoderRequest& request) {
  require_utf8_text(request.text, "the query");
  const std::vector<std::string> documents =
      texts_and_lines("weft rerank", "--document", request.documents, request.lines);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const encoder::Ranked& each : load_encoder(request).rerank(request.text, documents, request.count)) {
    if (request.json)
      json.push_back({{"index", each.index},
                      {"score", each.score},
                      {"probability", each.probability},
                      {"text", documents[each.index]}});
    else
      put_foreign(fmt::format("{:8.4f}  {}\n", each.score, documents[each.index]));
  }
  if (request.json) put_json(json);
  return kOk;
}

int answer(const EncoderRequest& request) {
  require_utf8_text(request.text, "the question");
  if (request.file.empty() == request.pair.empty())
    throw UsageError("weft answer: give the text to read with --text, or its file with --file; not both");
  const std::string text = request.file.empty() ? request.pair : read_text(request.file, std::uint64_t{64} << 20);
  require_utf8_text(text, "the text");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const encoder::Answer& each : load_encoder(request).answer(request.text, text, request.answer)) {
    if (request.json)
      json.push_back(
          {{"text", each.text}, {"begin", each.begin}, {"end", each.end}, {"probability", each.probability}});
    else
      put_foreign(fmt::format("{:6.2f} %  {}\n", 100 * each.probability, each.text.empty() ? "(none)" : each.text));
  }
  if (request.json) put_json(json);
  return kOk;
}

void put_share(double probability, const std::string& name) {
  put_foreign(fmt::format("{:6.2f} %  {}\n", 100 * probability, name));
}

int classify_text(const EncoderRequest& request, const encoder::Model& model) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const encoder::Label& label : model.classify(request.text, request.count, request.pair,
                                                    request.cut ? encoder::TooLong::cut : encoder::TooLong::error)) {
    if (request.json)
      json.push_back({{"name", label.name}, {"index", label.index}, {"probability", label.probability}});
    else
      put_share(label.probability, label.name);
  }
  if (request.json) put_json(json);
  return kOk;
}

int label_words(const EncoderRequest& request, const encoder::Model& model) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const encoder::Entity& each : model.entities(request.text)) {
    if (request.json)
      json.push_back({{"name", each.name},
                      {"text", each.text},
                      {"probability", each.probability},
                      {"first_token", each.first_token},
                      {"tokens", each.tokens}});
    else
      put_share(each.probability, fmt::format("{}  {}", each.name, each.text));
  }
  if (request.json) put_json(json);
  return kOk;
}

int fill_masks(const EncoderRequest& request, const encoder::Model& model) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::size_t mask = 0;
  for (const std::vector<encoder::Fill>& fills : model.fill_masks(request.text, request.count)) {
    if (!request.json && mask++ > 0) put_text("\n");
    nlohmann::ordered_json row = nlohmann::ordered_json::array();
    for (const encoder::Fill& each : fills) {
      if (request.json)
        row.push_back({{"token", each.token}, {"text", each.text}, {"probability", each.probability}});
      else
        put_share(each.probability, each.text);
    }
    json.push_back(std::move(row));
  }
  if (request.json) put_json(json);
  return kOk;
}

int classify(const EncoderRequest& request) {
  require_utf8_text(request.text, "the text");
  require_utf8_text(request.pair, "--pair");
  const encoder::Model model = load_encoder(request);
  if (!request.pair.empty() && model.task() != encoder::Task::classify)
    throw UsageError("weft classify: --pair is for models that classify texts");
  switch (model.task()) {
    case encoder::Task::classify: return classify_text(request, model);
    case encoder::Task::label_tokens: return label_words(request, model);
    case encoder::Task::fill_masks: return fill_masks(request, model);
    case encoder::Task::answer: throw UsageError("weft classify: the model finds answers; see weft answer");
    case encoder::Task::embed: break;
  }
  throw UsageError(
      "weft classify: the model embeds texts, and has no head of classes, labels or masks; see weft embed");
}

void add_common(CLI::App& app, EncoderRequest& r) {
  app.footer("docs/encoders.md lists the models.");
  app.add_flag("--json", r.json, "as JSON");
  add_encoder_precision(app, r.precision);
  app.add_option("--device", r.model.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--threads", r.model.threads, "CPU threads; 0: one for each core")->capture_default_str();
}

}  // namespace

void set_up_rerank(CLI::App& app, Action& action) {
  auto request = std::make_shared<EncoderRequest>();
  EncoderRequest& r = *request;
  app.add_option("model", r.model.path, std::string("folder of a cross-encoder") + kOrName)->required();
  app.add_option("query", r.text, "what the documents should answer")->required();
  app.add_option("--document", r.documents, "a document; may be given several times")->allow_extra_args(false);
  app.add_option("--lines", r.lines, "file with a document on each line; - for standard input");
  app.add_option("--count", r.count, "the best ones alone; 0: all")->capture_default_str();
  add_common(app, r);
  app.callback([&action, request] { action = [request] { return rerank(*request); }; });
}

void set_up_answer(CLI::App& app, Action& action) {
  auto request = std::make_shared<EncoderRequest>();
  EncoderRequest& r = *request;
  app.add_option("model", r.model.path, std::string("folder of a text encoder for answers") + kOrName)->required();
  app.add_option("question", r.text, "what the text should answer")->required();
  app.add_option("--text", r.pair, "the text");
  app.add_option("--file", r.file, "file of the text; - for standard input");
  app.add_option("--count", r.answer.count, "answers, the best ones")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--none", r.answer.may_be_none, "that the text has no answer is an answer too");
  app.add_option("--longest", r.answer.longest, "most tokens of an answer")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--window", r.answer.window, "most tokens of the question with a part of the text")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--stride", r.answer.stride, "tokens that neighbouring parts share")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  add_common(app, r);
  app.callback([&action, request] { action = [request] { return answer(*request); }; });
}

void set_up_classify(CLI::App& app, Action& action) {
  auto request = std::make_shared<EncoderRequest>();
  EncoderRequest& r = *request;
  r.count = 5;
  app.add_option("model", r.model.path, std::string("folder of a text encoder with a head") + kOrName)->required();
  app.add_option("text", r.text, "the text; of a model that fills masks, with masks such as [MASK]")->required();
  app.add_option("--pair", r.pair, "a second text, such as a hypothesis");
  app.add_option("--count", r.count, "classes, or tokens for each mask")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--cut", r.cut, "cut a text that has more tokens than the model reads");
  add_common(app, r);
  app.callback([&action, request] { action = [request] { return classify(*request); }; });
}

}  // namespace weft::cli
