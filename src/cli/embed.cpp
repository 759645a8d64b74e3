// weft embed
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/threads.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/text_encoder.hpp"
#include "weft/device.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"
#include "weft/image.hpp"
#include "weft/ops.hpp"
#include "weft/vision.hpp"

namespace weft::cli {
namespace {

struct EmbedRequest {
  ModelOptions model;
  std::vector<std::filesystem::path> images;
  std::filesystem::path lines;
  std::vector<std::string> texts;
  std::string prompt, precision = "f32";
  Extent width = 0;
  bool json = false, cut = false;
};

nlohmann::ordered_json rows_json(const Tensor& rows, std::size_t row) {
  const std::vector<float> values = rows.to_vector<float>();
  const auto width = static_cast<std::size_t>(rows.dim(1));
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * width);
  return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(width));
}

void put_shares(const EmbedRequest& request, const std::vector<float>& shares) {
  const std::size_t count = request.texts.size();
  for (std::size_t i = 0; i < request.images.size(); ++i) {
    put_foreign(request.images[i].string() + "\n");
    std::vector<std::size_t> order(count);
    for (std::size_t t = 0; t < count; ++t) order[t] = t;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shares[i * count + a] > shares[i * count + b]; });
    for (const std::size_t t : order)
      put_foreign(fmt::format("  {:6.2f} %  {}\n", 100 * double{shares[i * count + t]}, request.texts[t]));
  }
}

/// How alike each text is to all texts.
void put_cosines(const std::vector<std::string>& texts, const Tensor& rows) {
  const std::vector<float> cosines = matmul(rows, transpose(rows)).to_vector<float>();
  const std::size_t count = texts.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::string line;
    for (std::size_t k = 0; k < count; ++k) line += fmt::format("{:6.3f} ", cosines[i * count + k]);
    put_foreign(fmt::format("{} {}\n", line, texts[i]));
  }
}

int embed_texts(const EmbedRequest& request, const std::filesystem::path& path) {
  if (!request.images.empty()) throw UsageError("weft embed: the model embeds texts; images want a model such as CLIP");
  const std::vector<std::string> texts = texts_and_lines("weft embed", "--text", request.texts, request.lines);
  use_threads(request.model);
  const encoder::Model model = load_text_encoder(path, parse_device(request.model.device), request.precision);
  encoder::EmbedOptions how{.width = request.width,
                            .too_long = request.cut ? encoder::TooLong::cut : encoder::TooLong::error};
  if (!request.prompt.empty()) how.prompt = request.prompt;
  const Tensor rows = model.embed(texts, how);
  if (!request.json) {
    put_cosines(texts, rows);
    return kOk;
  }
  nlohmann::ordered_json json{{"texts", nlohmann::ordered_json::array()}};
  for (std::size_t t = 0; t < texts.size(); ++t)
    json["texts"].push_back({{"text", texts[t]}, {"embedding", rows_json(rows, t)}});
  put_text(json_text(json, -1) + "\n");
  return kOk;
}

int embed(const EmbedRequest& request) {
  const std::filesystem::path path = model_path(request.model.path);
  if (encoder::is_encoder(path)) return embed_texts(request, path);
  if (!request.prompt.empty() || request.width != 0 || request.cut || request.precision != "f32" ||
      !request.lines.empty())
    throw UsageError(
        "weft embed: --prompt, --width, --cut, --precision and --lines are for text encoders, such as BERT");
  if (request.images.empty() && request.texts.empty())
    throw UsageError("weft embed: give images with --image, texts with --text, or both");
  for (const std::string& text : request.texts) require_utf8_text(text, "--text");
  if (!request.json && (request.images.empty() || request.texts.empty()))
    throw UsageError(
        "weft embed: images are compared with texts, so give both; --json prints the embeddings of either");
  std::vector<Tensor> images;
  for (const std::filesystem::path& path : request.images) images.push_back(image::read(path));
  use_threads(request.model);
  const vision::Encoder model = vision::Encoder::load(path, parse_device(request.model.device));
  const Tensor image_rows = images.empty() ? Tensor() : model.embed_images(images);
  const Tensor text_rows = request.texts.empty() ? Tensor() : model.embed_texts(request.texts);
  std::vector<float> shares;
  if (image_rows.defined() && text_rows.defined())
    shares = model.probabilities(image_rows, text_rows).to_vector<float>();
  if (!request.json) {
    put_shares(request, shares);
    return kOk;
  }
  nlohmann::ordered_json json{{"images", nlohmann::ordered_json::array()}, {"texts", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < images.size(); ++i) {
    json["images"].push_back({{"file", request.images[i].string()}, {"embedding", rows_json(image_rows, i)}});
    if (shares.empty()) continue;
    const auto begin = shares.begin() + static_cast<std::ptrdiff_t>(i * request.texts.size());
    json["images"].back()["probabilities"] =
        std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(request.texts.size()));
  }
  for (std::size_t t = 0; t < request.texts.size(); ++t)
    json["texts"].push_back({{"text", request.texts[t]}, {"embedding", rows_json(text_rows, t)}});
  put_text(json_text(json, -1) + "\n");
  return kOk;
}

}  // namespace

void set_up_embed(CLI::App& app, Action& action) {
  auto request = std::make_shared<EmbedRequest>();
  EmbedRequest& r = *request;
  app.footer(
      "Without --json: how alike texts are, or what share of an image each has. docs/encoders.md and docs/vision.md "
      "list the models.");
  app.add_option("model", r.model.path, std::string("folder of a text encoder, of CLIP or of SigLIP") + kOrName)
      ->required();
  app.add_option("--image", r.images, "PNG or JPEG file; may be given several times")->allow_extra_args(false);
  app.add_option("--text", r.texts, "a text, such as \"a photo of a cat\"; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--lines", r.lines, "file with a text on each line; - for standard input");
  app.add_option("--prompt", r.prompt, "name of one of the text encoder's prompts, such as query");
  app.add_option("--width", r.width, "the first columns alone; 0: all")->check(CLI::NonNegativeNumber);
  app.add_flag("--cut", r.cut, "cut texts that have more tokens than the text encoder reads");
  add_encoder_precision(app, r.precision);
  app.add_flag("--json", r.json, "embeddings and probabilities as JSON");
  app.add_option("--device", r.model.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--threads", r.model.threads, "CPU threads; 0: one for each core")->capture_default_str();
  app.callback([&action, request] { action = [request] { return embed(*request); }; });
}

}  // namespace weft::cli
