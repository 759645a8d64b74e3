#include "llm/image_rows.hpp"

#include <algorithm>
#include <limits>

#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

constexpr Extent kFirstRow = text::kNoToken - 1;

bool is_same(const vision::PreparedImage& a, const vision::PreparedImage& b) {
  if (a.rows != b.rows || a.columns != b.columns || a.height != b.height || a.width != b.width || a.ready != b.ready ||
      a.ready_height != b.ready_height || a.tiles.size() != b.tiles.size())
    return false;
  for (std::size_t i = 0; i < a.tiles.size(); ++i)
    if (a.tiles[i].height != b.tiles[i].height || a.tiles[i].values != b.tiles[i].values) return false;
  return true;
}

std::size_t bytes_of(const vision::PreparedImage& image) {
  std::size_t bytes = image.ready.size() * sizeof(float);
  for (const image::Pixels& tile : image.tiles) bytes += tile.values.size();
  return bytes;
}

}  // namespace

std::shared_ptr<ImageRows> ImageStore::put(vision::PreparedImage image, Extent rows, Extent width, Extent held) {
  const std::lock_guard lock(mutex_);
  for (auto it = images_.rbegin(); it != images_.rend(); ++it)
    if (it->second->count == rows && is_same(it->second->image, image)) return it->second;
  if (next_ > std::numeric_limits<text::TokenId>::max() - 2 - rows)
    throw UsageError("llm: the model has been shown two thousand million rows of images; load it again");
  auto made = std::make_shared<ImageRows>();
  made->first = static_cast<text::TokenId>(kFirstRow - next_);
  made->count = rows;
  made->bytes = bytes_of(image) + static_cast<std::size_t>(std::max(rows, held) * width) * sizeof(float);
  made->image = std::move(image);
  images_.emplace(next_, made);
  next_ += rows;
  drop_old();
  return made;
}

std::shared_ptr<ImageRows> ImageStore::find(text::TokenId row) const {
  const std::lock_guard lock(mutex_);
  const Extent place = kFirstRow - row;
  auto it = images_.upper_bound(place);
  if (it == images_.begin()) return nullptr;
  --it;
  return place < it->first + it->second->count ? it->second : nullptr;
}

std::size_t ImageStore::size() const {
  const std::lock_guard lock(mutex_);
  return images_.size();
}

void ImageStore::drop_old() {
  std::size_t bytes = 0;
  for (const auto& [place, rows] : images_) bytes += rows->bytes;
  for (auto it = images_.begin(); it != images_.end() && bytes > kBytesMax;) {
    if (it->second.use_count() > 1) {
      ++it;
      continue;
    }
    bytes -= it->second->bytes;
    it = images_.erase(it);
  }
}

}  // namespace weft::llm::detail
