// weft embed
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/threads.hpp"
#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/image.hpp"
#include "weft/vision.hpp"

namespace weft::cli {
namespace {

struct EmbedRequest {
  ModelOptions model;
  std::vector<std::filesystem::path> images;
  std::vector<std::string> texts;
  bool json = false;
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

int embed(const EmbedRequest& request) {
  if (request.images.empty() && request.texts.empty())
    throw UsageError("weft embed: give images with --image, texts with --text, or both");
  for (const std::string& text : request.texts) require_utf8_text(text, "--text");
  if (!request.json && (request.images.empty() || request.texts.empty()))
    throw UsageError(
        "weft embed: images are compared with texts, so give both; --json prints the embeddings of either");
  std::vector<Tensor> images;
  for (const std::filesystem::path& path : request.images) images.push_back(image::read(path));
  use_threads(request.model);
  const vision::Encoder model =
      vision::Encoder::load(model_path(request.model.path), parse_device(request.model.device));
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
  app.footer("docs/vision.md lists the models.");
  app.add_option("model", r.model.path, std::string("folder of CLIP or SigLIP") + kOrName)->required();
  app.add_option("--image", r.images, "PNG or JPEG file; may be given several times")->allow_extra_args(false);
  app.add_option("--text", r.texts, "a text, such as \"a photo of a cat\"; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--json", r.json, "embeddings and probabilities as JSON");
  app.add_option("--device", r.model.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--threads", r.model.threads, "CPU threads; 0: one for each core")->capture_default_str();
  app.callback([&action, request] { action = [request] { return embed(*request); }; });
}

}  // namespace weft::cli
