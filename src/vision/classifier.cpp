// Classes of images: ViT with a linear head.
#include <fmt/format.h>

#include "layers/rows.hpp"
#include "vision/images.hpp"
#include "vision/tower.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/vision.hpp"

namespace weft::vision {
namespace detail {

struct ClassifierState {
  Device device;
  std::vector<std::string> names;
  ImageProcessor processor;
  Tower tower;
  Linear head;
  Compiled pass;

  static std::vector<std::string> names_of(const Json& json, const std::string& source) {
    const io::ConfigKeys keys(json, source);
    if (const std::string type = keys.text({"model_type"}); type != "vit")
      throw FileError(
          fmt::format("{}: model_type is \"{}\"; vision::Classifier reads vit", source, type.substr(0, 64)));
    const Json* labels = keys.find({"id2label"});
    if (!labels || !labels->is_object() || labels->empty())
      keys.fail("id2label", "is missing; without names of classes the model is not a classifier");
    std::vector<std::string> names;
    for (std::size_t i = 0; i < labels->size(); ++i) {
      const auto name = labels->find(std::to_string(i));
      if (name == labels->end() || !name->is_string())
        keys.fail("id2label", fmt::format("has {} names, and none for class {}", labels->size(), i));
      names.push_back(name->get<std::string>());
    }
    return names;
  }

  ClassifierState(const std::filesystem::path& folder, const Json& json, const std::string& source,
                  ModelWeights& weights)
      : device(weights.device()),
        names(names_of(json, source)),
        processor(ImageProcessor::from_folder(folder)),
        tower(tower_config(TowerKind::vit, json, source, ""), weights, "vit.", true),
        head(linear_of(weights, "classifier", static_cast<Extent>(names.size()), tower.config().stack.hidden)),
        pass([this](std::span<const Tensor> a) { return std::vector<Tensor>{head(tower.pooled(a[0]))}; }) {
    weights.require_all();
  }
};

}  // namespace detail

Classifier Classifier::load(const std::filesystem::path& folder, Device device) {
  try {
    const io::TensorSource files = io::TensorSource::open(folder);
    ModelWeights weights(files, device);
    return Classifier(std::make_shared<detail::ClassifierState>(folder, read_model_config(folder),
                                                                (folder / "config.json").string(), weights));
  } catch (Error& error) {
    error.add_context("loading the vision model " + folder.string());
    throw;
  }
}

Tensor Classifier::logits(std::span<const Tensor> images) const {
  if (images.empty()) throw UsageError("vision: there are no images; give at least one");
  const std::vector<float> rows =
      in_passes(images, state_->processor, state_->tower.config().image_size, state_->tower.tokens(), state_->device,
                [&](const Tensor& pixels) { return state_->pass(std::span<const Tensor>(&pixels, 1))[0]; });
  return tensor_from_bytes(rows.data(), {static_cast<Extent>(images.size()), static_cast<Extent>(state_->names.size())},
                           DType::f32, kCpu);
}

std::vector<Label> Classifier::classify(const Tensor& image, std::size_t count) const {
  const std::vector<float> shares = softmax(logits({&image, 1}), 1).to_vector<float>();
  std::vector<Label> labels;
  for (const std::size_t i : layers::places_of_largest(std::span<const float>(shares), count))
    labels.push_back({static_cast<Extent>(i), state_->names[i], shares[i]});
  return labels;
}

}  // namespace weft::vision
