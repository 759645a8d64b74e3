// Rows of images in the passes of an engine: what they hold, where they stand, and what they see.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "llm/engine.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {

void Engine::see_images(std::span<const PositionedToken> batch) {
  if (!image_reader_) return;
  // Of each shape, the tiles that the tower has not seen.
  struct Unseen {
    std::vector<ImageReader::Tile> tiles = {};
    std::vector<std::vector<float>*> values = {};
  };
  std::map<std::pair<Extent, Extent>, Unseen> unseen;
  std::vector<std::shared_ptr<ImageRows>> held;  // until they have been seen
  std::shared_ptr<ImageRows> image;              // of the last row, and its tile
  Extent last = -1;
  for (const PositionedToken& token : batch) {
    if (!is_image_row(token.token)) continue;
    if (!image || token.token > image->first || token.token <= image->first - image->count) {
      image = images_.find(token.token);
      last = -1;
    }
    if (!image) continue;
    const Extent tile = image_reader_->place_of(image->image, image->first - token.token).tile;
    if (tile == std::exchange(last, tile)) continue;
    image->values.resize(static_cast<std::size_t>(ImageReader::tiles_of(image->image)));
    std::vector<float>& values = image->values[static_cast<std::size_t>(tile)];
    const RowGrid shape = image_reader_->shape_of(image->image);
    Unseen& group = unseen[{shape.height, shape.width}];
    if (!values.empty() || std::find(group.values.begin(), group.values.end(), &values) != group.values.end()) continue;
    group.tiles.push_back({&image->image, static_cast<std::size_t>(tile)});
    group.values.push_back(&values);
    held.push_back(image);
  }
  for (const auto& [shape, group] : unseen) {
    if (group.tiles.empty()) continue;
    std::vector<std::vector<float>> made = image_reader_->see(group.tiles);
    for (std::size_t i = 0; i < made.size(); ++i) *group.values[i] = std::move(made[i]);
  }
}

void Engine::copy_image_row(text::TokenId id, std::span<float> out) {
  const std::shared_ptr<ImageRows> image = images_.find(id);
  if (!image || !image_reader_)
    throw UsageError(fmt::format("llm: {} is neither a token nor a row of an image that the model still has", id));
  const auto [number, row] = image_reader_->place_of(image->image, image->first - id);
  const auto tile = static_cast<std::size_t>(number);
  image->values.resize(static_cast<std::size_t>(ImageReader::tiles_of(image->image)));
  std::vector<float>& values = image->values[tile];
  if (const ImageReader::Tile one{&image->image, tile}; values.empty()) values = image_reader_->see({&one, 1})[0];
  std::copy_n(values.begin() + row * static_cast<Extent>(row_width()), out.size(), out.begin());
}

std::array<Extent, 3> Engine::places_of(const PositionedToken& token) {
  if (!has_axes()) return {token.position, token.position, token.position};
  std::vector<Cached::Shift>& shifts = cached_[static_cast<std::size_t>(token.slot)].shifts;
  while (!shifts.empty() && shifts.back().from > token.position) shifts.pop_back();
  const Extent place = token.position + (shifts.empty() ? 0 : shifts.back().by);
  const std::shared_ptr<ImageRows> image = is_image_row(token.token) ? images_.find(token.token) : nullptr;
  const RowGrid grid = image ? image_reader_->grid_of(image->image) : RowGrid{};
  if (grid.width == 0) return {place, place, place};
  // All rows of an image have the same place in time. The text behind it goes on after the longer side.
  const Extent row = image->first - token.token, first = place - row;
  if (row + 1 == image->count)
    shifts.push_back({token.position + 1, first + std::max(grid.height, grid.width) - (token.position + 1)});
  return {first, first + row / grid.width, first + row % grid.width};
}

Extent Engine::end_of_image(const PositionedToken& token, std::span<const PositionedToken> batch) const {
  const std::shared_ptr<ImageRows> image = images_.find(token.token);
  const Extent rows = image_reader_->tile_rows(image->image), row = (image->first - token.token) % rows;
  Extent last = token.position;
  for (const PositionedToken& each : batch)
    if (each.slot == token.slot) last = std::max(last, each.position);
  return std::min(token.position - row + rows, last + 1);
}

std::size_t Engine::part_of(std::span<const text::TokenId> tokens, std::size_t most) const {
  most = std::min(most, tokens.size());
  if (!sees_images_whole() || most == tokens.size() || most == 0 || !is_image_row(tokens[most])) return most;
  const std::shared_ptr<ImageRows> image = images_.find(tokens[most]);
  if (!image) return most;
  const Extent rows = image_reader_->tile_rows(image->image);
  const Extent begin = static_cast<Extent>(most) - (image->first - tokens[most]) % rows;
  return begin > 0 ? static_cast<std::size_t>(begin)
                   : std::min(tokens.size(), static_cast<std::size_t>(std::max<Extent>(begin + rows, 1)));
}

std::size_t Engine::whole_images(std::span<const PositionedToken> batch, std::size_t most) const {
  std::vector<text::TokenId> tokens;
  for (const PositionedToken& each : batch) tokens.push_back(each.token);
  return part_of(tokens, most);
}

}  // namespace weft::llm::detail
