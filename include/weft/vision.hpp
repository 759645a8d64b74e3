// Vision models from Hugging Face folders: embeddings of images and texts in one space (CLIP, SigLIP), and classes of images
// (ViT). Models that talk about images are in weft/llm.hpp.
//
//   auto model = vision::Encoder::load("clip-vit-base-patch32");
//   Tensor images = model.embed_images({image::read("cat.jpg")}), texts = model.embed_texts({"a cat", "a dog"});
//   Tensor shares = model.probabilities(images, texts);  // f32 [images, texts]
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft::vision {

namespace detail {
struct EncoderState;
struct ClassifierState;
}  // namespace detail

struct EncoderOptions {
  bool normalize = true;  ///< to length 1, so that products of rows are cosines
};

/// A model of two towers: images and texts with the same meaning get vectors of similar direction. A cheap handle; one thread
/// at a time.
class Encoder {
 public:
  /// A folder with config.json (model_type clip or siglip), preprocessor_config.json, tokenizer.json and safetensors. Errors:
  /// FileError that names file, place and cure, for files that are missing, damaged, or do not fit the configuration.
  static Encoder load(const std::filesystem::path& folder, Device device = default_device());

  /// A row for each image u8 [height, width, 3], which is resized, cropped and normalised as the folder's
  /// preprocessor_config.json says; or f32 [3, side, side], which is taken as it is.
  /// Shapes f32 [images, width] on the CPU. Errors: UsageError for no images, and for another shape or dtype.
  Tensor embed_images(std::span<const Tensor> images, const EncoderOptions& options = {}) const;
  Tensor embed_images(std::initializer_list<Tensor> images, const EncoderOptions& options = {}) const {
    return embed_images(std::span<const Tensor>(images.begin(), images.size()), options);
  }
  /// A row for each text. Shapes: f32 [texts, width] on the CPU. Errors: UsageError for no texts, and for a text with more tokens
  /// than the model's context.
  Tensor embed_texts(std::span<const std::string> texts, const EncoderOptions& options = {}) const;
  Tensor embed_texts(std::initializer_list<std::string> texts, const EncoderOptions& options = {}) const {
    return embed_texts(std::span<const std::string>(texts.begin(), texts.size()), options);
  }
  /// e^s times the cosines of rows of images [m, width] and rows of texts [n, width], plus b for SigLIP, where s and b are the
  /// model's own -> [m, n]. Errors: ShapeError for rows of another width.
  Tensor scores(const Tensor& images, const Tensor& texts) const;
  /// The probability of each text for each image: for CLIP the softmax of the scores over the texts; for SigLIP, which judges each
  /// text alone, their sigmoid.
  Tensor probabilities(const Tensor& images, const Tensor& texts) const;

  Extent width() const;
  /// Sizes of the towers, bytes on the device.
  std::string describe() const;

 private:
  explicit Encoder(std::shared_ptr<detail::EncoderState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::EncoderState> state_;
};

struct Label {
  Extent index = 0;
  std::string name;
  float probability = 0;
};

/// A classifier of images: ViT. A cheap handle; one thread at a time.
class Classifier {
 public:
  /// As Encoder::load, for model_type vit with a head of classes.
  static Classifier load(const std::filesystem::path& folder, Device device = default_device());
  /// The scores of the classes, f32 [images, classes] on the CPU. Images as Encoder::embed_images.
  Tensor logits(std::span<const Tensor> images) const;
  /// The most probable classes of an image, in order.
  std::vector<Label> classify(const Tensor& image, std::size_t count = 5) const;

 private:
  explicit Classifier(std::shared_ptr<detail::ClassifierState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::ClassifierState> state_;
};

}  // namespace weft::vision
