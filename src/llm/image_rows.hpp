// The images that a model has been shown, and the ids that stand for their rows in prompts and in what the cache is known to
// hold.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "text/token.hpp"
#include "vision/preprocess.hpp"

namespace weft::llm::detail {

/// Row i of the image has the id first - i, below kNoToken.
struct ImageRows {
  text::TokenId first = text::kNoToken;
  Extent count = 0;
  vision::PreparedImage image;
  std::size_t bytes = 0;  ///< that it takes, with its values
  /// Of each tile [rows of a tile, width]; empty until a pass needs one of them. Of the thread that runs the model.
  std::vector<std::vector<float>> values;
};

inline bool is_image_row(text::TokenId id) { return id < text::kNoToken; }

/// The same image gets the same ids, so that a cache that holds its rows is used again; another image never does. Images are
/// compared by all their pixels. The images seen last are kept, and those that a prompt refers to. Thread safe.
class ImageStore {
 public:
  /// `held`: rows of all its tiles, where they are more than those of a prompt.
  std::shared_ptr<ImageRows> put(vision::PreparedImage image, Extent rows, Extent width, Extent held = 0);
  /// The image of a row; null once it has been dropped.
  std::shared_ptr<ImageRows> find(text::TokenId row) const;
  std::size_t size() const;

  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

 private:
  void drop_old();

  mutable std::mutex mutex_;
  std::map<Extent, std::shared_ptr<ImageRows>> images_;  // by -2 - first, in the order they came
  Extent next_ = 0;
};

}  // namespace weft::llm::detail
