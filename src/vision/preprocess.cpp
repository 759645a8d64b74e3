#include "vision/preprocess.hpp"

#include <cmath>
#include <string_view>

#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::vision {
namespace {

using io::ConfigKeys;

constexpr Extent kSideMax = 4096;  // of an image that is cut, before it is cut; and of every size in a file
constexpr Extent kPartsMax = 16;   // of an image that is cut, on a side; models have up to 6
constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{1} << 20, .max_values = 20'000};

using Color = std::array<double, 3>;
constexpr Color kClipMean = {0.48145466, 0.4578275, 0.40821073}, kClipDeviation = {0.26862954, 0.26130258, 0.27577711},
                kHalf = {0.5, 0.5, 0.5};

enum class Sizing : std::uint8_t { shortest, stretch, tiles, area, within };

/// What a class of processors in transformers does where its file says nothing.
struct ProcessorDefaults {
  std::string_view name;  // part of image_processor_type or feature_extractor_type
  Sizing sizing;
  bool crops;
  Extent size;
  Extent filter;
  Color mean, deviation;
};
constexpr ProcessorDefaults kProcessors[] = {
    {"CLIP", Sizing::shortest, true, 224, 3, kClipMean, kClipDeviation},
    {"Llava", Sizing::shortest, true, 224, 3, kClipMean, kClipDeviation},
    {"Siglip", Sizing::stretch, false, 224, 3, kHalf, kHalf},
    {"ViT", Sizing::stretch, false, 224, 2, kHalf, kHalf},
    {"Gemma3", Sizing::stretch, false, 224, 2, kHalf, kHalf},
    {"Idefics3", Sizing::tiles, false, 364, 1, kHalf, kHalf},
    {"SmolVLM", Sizing::tiles, false, 364, 1, kHalf, kHalf},
    {"Qwen2VL", Sizing::area, false, 14, 3, kClipMean, kClipDeviation},
    {"Pixtral", Sizing::within, false, 1024, 3, kClipMean, kClipDeviation},
};

Extent side_of(const ConfigKeys& keys, std::initializer_list<const char*> names, std::optional<Extent> fallback = {}) {
  const Extent side = keys.size(names, fallback);
  if (side < 1 || side > kSideMax) keys.fail(*names.begin(), fmt::format("is {}, not from 1 to {}", side, kSideMax));
  return side;
}

Color color(const ConfigKeys& keys, const char* key, const Color& fallback) {
  if (!keys.find({key})) return fallback;
  const std::vector<double> list = keys.numbers(key);
  if (list.size() != 3 || !std::isfinite(list[0] + list[1] + list[2])) keys.fail(key, "is not a list of 3 numbers");
  return {list[0], list[1], list[2]};
}

image::Filter filter_of(const ConfigKeys& keys, Extent fallback) {
  switch (const Extent number = keys.size({"resample"}, fallback)) {
    case 0: return image::Filter::nearest;
    case 1: return image::Filter::lanczos;
    case 2: return image::Filter::bilinear;
    case 3: return image::Filter::bicubic;
    default:
      keys.fail("resample",
                fmt::format("is {}; known are 0 (nearest), 1 (lanczos), 2 (bilinear) and 3 (bicubic)", number));
  }
}

/// Python's int(): towards zero.
Extent whole(double value) { return static_cast<Extent>(value); }
Extent rounded_up(Extent value, Extent step) { return (value + step - 1) / step * step; }

struct Size {
  Extent height, width;
};
double aspect_of(const Size& s) { return static_cast<double>(s.width) / static_cast<double>(s.height); }

/// The longer side to `longest`, the other to an even number, and neither above kSideMax.
Size with_longest(const Size& s, Extent longest) {
  const double aspect = aspect_of(s);
  const auto even = [](Extent n) { return n + n % 2; };
  Size to = s.width >= s.height ? Size{even(whole(static_cast<double>(longest) / aspect)), longest}
                                : Size{longest, even(whole(static_cast<double>(longest) * aspect))};
  return {std::max<Extent>(to.height, 1), std::max<Extent>(to.width, 1)};
}

/// Both sides up to multiples of a tile's.
Size whole_tiles(const Size& s, Extent tile) {
  const double aspect = aspect_of(s);
  if (s.width >= s.height) {
    const Extent width = rounded_up(s.width, tile);
    return {rounded_up(whole(static_cast<double>(width) / aspect), tile), width};
  }
  const Extent height = rounded_up(s.height, tile);
  return {height, rounded_up(whole(static_cast<double>(height) * aspect), tile)};
}

double longer_by(Extent height, Extent width) {
  return static_cast<double>(std::max(height, width)) / static_cast<double>(std::min(height, width));
}
/// Multiples of the step, near to the size, with least to most pixels in all.
Size in_area(const Size& s, Extent step, Extent least, Extent most) {
  const auto of = [&](double value, auto round) {
    return std::max(step, static_cast<Extent>(round(value / static_cast<double>(step))) * step);
  };
  const auto height = static_cast<double>(s.height), width = static_cast<double>(s.width);
  const auto even = [](double v) { return std::nearbyint(v); };  // halves to even, as Python's round
  const Size near{static_cast<Extent>(even(height / static_cast<double>(step))) * step,
                  static_cast<Extent>(even(width / static_cast<double>(step))) * step};
  if (near.height * near.width > most) {
    const double by = std::sqrt(height * width / static_cast<double>(most));
    const auto down = [](double v) { return std::floor(v); };
    return {of(height / by, down), of(width / by, down)};
  }
  if (near.height * near.width < least) {
    const double by = std::sqrt(static_cast<double>(least) / (height * width));
    const auto up = [](double v) { return std::ceil(v); };
    return {of(height * by, up), of(width * by, up)};
  }
  return near;
}

/// Made smaller until it fits a square of `longest`, then up to multiples of the step.
Size within(const Size& s, Extent step, Extent longest) {
  const auto most = static_cast<double>(longest);
  const double ratio = std::max(static_cast<double>(s.height) / most, static_cast<double>(s.width) / most);
  const auto fitted = [&](Extent side) {
    const Extent smaller = ratio > 1 ? static_cast<Extent>(std::floor(static_cast<double>(side) / ratio)) : side;
    return rounded_up(std::max<Extent>(smaller, 1), step);
  };
  return {fitted(s.height), fitted(s.width)};
}

}  // namespace

bool ImageProcessor::is_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / "preprocessor_config.json", ignored)) return true;
  const auto shared = folder / "processor_config.json";
  if (!std::filesystem::exists(shared, ignored)) return false;
  const Json json = read_json_file(shared, kLimits);
  return json.is_object() && json.contains("image_processor");
}

ImageProcessor ImageProcessor::from_folder(const std::filesystem::path& folder) {
  const auto own = folder / "preprocessor_config.json", shared = folder / "processor_config.json";
  if (std::filesystem::exists(own)) return from_json(read_json_file(own, kLimits), own.string());
  if (std::filesystem::exists(shared)) {
    const Json json = read_json_file(shared, kLimits);
    if (const auto part = json.find("image_processor"); json.is_object() && part != json.end())
      return from_json(*part, shared.string());
  }
  throw FileError(
      fmt::format("{}: the folder has no preprocessor_config.json, which says how images are resized; download it "
                  "beside the weights",
                  folder.string()));
}

ImageProcessor ImageProcessor::from_json(const Json& json, const std::string& source) {
  const ConfigKeys keys(json, source);
  const std::string type = keys.text({"image_processor_type", "feature_extractor_type"});
  const ProcessorDefaults* defaults = nullptr;
  for (const ProcessorDefaults& each : kProcessors)
    if (type.starts_with(each.name)) defaults = &each;
  // LlavaNext, LlavaOnevision and the like cut images in ways of their own.
  if (!defaults || type.starts_with("LlavaNext") || type.starts_with("LlavaOnevision") || type.starts_with("ViTPose"))
    keys.fail("image_processor_type",
              fmt::format("is \"{}\"; Weft has those of CLIP, Llava, Siglip, ViT, Idefics3, SmolVLM, Gemma3, Qwen2VL "
                          "and Pixtral",
                          type));
  ImageProcessor p;
  p.filter_ = filter_of(keys, defaults->filter);
  const Sizing sizing = defaults->sizing;
  if (keys.flag("do_resize", true)) {
    const Json* size = keys.find({"size"});
    if (sizing == Sizing::area) {
      p.fit_ = Fit::area;
      const Extent step = keys.size({"patch_size"}, defaults->size) * keys.size({"merge_size"}, 2);
      const auto pixels = [&](const char* own, const char* edge, Extent fallback) {
        if (size && size->is_object()) fallback = ConfigKeys(*size, source, "size").size({edge, own}, fallback);
        const Extent count = keys.size({own}, fallback);
        if (count < 1 || count > kSideMax * kSideMax)
          keys.fail(own, fmt::format("is {}, not from 1 to {}", count, kSideMax * kSideMax));
        return count;
      };
      p.height_ = pixels("min_pixels", "shortest_edge", 56 * 56);
      p.longest_ = pixels("max_pixels", "longest_edge", 28 * 28 * 1280);
      if (p.height_ > p.longest_)
        keys.fail("min_pixels", fmt::format("is {}, above max_pixels {}", p.height_, p.longest_));
      p.step_ = step;
    } else if (sizing == Sizing::within) {
      p.fit_ = Fit::within;
      p.longest_ = size ? side_of(ConfigKeys(*size, source, "size"), {"longest_edge", "height"}) : defaults->size;
      if (size && size->is_object() && size->contains("width") && (*size)["width"] != p.longest_ &&
          !size->contains("longest_edge"))
        keys.fail("size", "has sides that differ, which Weft does not support here");
    } else if (sizing == Sizing::tiles) {
      p.fit_ = Fit::tiles;
      p.longest_ = size ? side_of(ConfigKeys(*size, source, "size"), {"longest_edge"}) : 4 * defaults->size;
      const Json* tile = keys.find({"max_image_size"});
      p.height_ = p.width_ =
          tile ? side_of(ConfigKeys(*tile, source, "max_image_size"), {"longest_edge"}) : defaults->size;
      p.splits_ = keys.flag("do_image_splitting", true);
      if (p.splits_ && p.longest_ / p.height_ > kPartsMax)
        keys.fail("size", fmt::format("cuts {} pixels into parts of {}; Weft has at most {} of them on a side",
                                      p.longest_, p.height_, kPartsMax));
    } else if (!size || size->is_number()) {
      p.fit_ = sizing == Sizing::shortest ? Fit::shortest : Fit::stretch;
      p.height_ = p.width_ = side_of(keys, {"size"}, defaults->size);
    } else {
      const ConfigKeys sizes(*size, source, "size");
      p.fit_ = sizes.find({"shortest_edge"}) ? Fit::shortest : Fit::stretch;
      p.height_ = side_of(sizes, {p.fit_ == Fit::shortest ? "shortest_edge" : "height"});
      p.width_ = p.fit_ == Fit::shortest ? p.height_ : side_of(sizes, {"width"});
      if (sizes.find({"longest_edge"})) sizes.fail("longest_edge", "is given, which Weft does not support here");
    }
  } else if (sizing != Sizing::shortest && sizing != Sizing::stretch) {
    keys.fail("do_resize", "is false; without it Weft cannot cut the image into equal parts");
  }
  if (defaults->name == "Gemma3" && keys.flag("do_pan_and_scan", false)) {
    PanAndScan& s = p.pan_and_scan_;
    s.is_on = true;
    s.least_side = side_of(keys, {"pan_and_scan_min_crop_size"}, s.least_side);
    s.crops_max = keys.size({"pan_and_scan_max_num_crops"}, s.crops_max);
    s.least_ratio = keys.number({"pan_and_scan_min_ratio_to_activate"}, s.least_ratio);
    if (s.crops_max < 1 || s.crops_max > kPartsMax)
      keys.fail("pan_and_scan_max_num_crops", fmt::format("is {}, not from 1 to {}", s.crops_max, kPartsMax));
  }
  if (keys.flag("do_center_crop", defaults->crops)) {
    const Json* crop = keys.find({"crop_size"});
    if (crop && crop->is_object()) {
      const ConfigKeys sizes(*crop, source, "crop_size");
      p.crop_height_ = side_of(sizes, {"height"});
      p.crop_width_ = side_of(sizes, {"width"});
    } else {
      p.crop_height_ = p.crop_width_ = side_of(keys, {"crop_size"}, defaults->size);
    }
  }
  if (keys.flag("do_pad", false) && sizing != Sizing::tiles && sizing != Sizing::within)
    keys.fail("do_pad", "is true, which Weft supports only where images are cut");
  const double factor = keys.flag("do_rescale", true) ? keys.number({"rescale_factor"}, 1.0 / 255) : 1.0;
  const bool normalizes = keys.flag("do_normalize", true);
  const Color mean = normalizes ? color(keys, "image_mean", defaults->mean) : Color{0, 0, 0},
              deviation = normalizes ? color(keys, "image_std", defaults->deviation) : Color{1, 1, 1};
  p.mean_.assign(mean.begin(), mean.end());
  p.deviation_.assign(deviation.begin(), deviation.end());
  for (std::size_t c = 0; c < 3; ++c) {
    if (!(deviation[c] > 0)) keys.fail("image_std", fmt::format("has {}, which is not above 0", deviation[c]));
    for (std::size_t v = 0; v < 256; ++v)
      p.table_[c][v] = (static_cast<float>(static_cast<double>(v) * factor) - static_cast<float>(mean[c])) /
                       static_cast<float>(deviation[c]);
  }
  return p;
}

Extent ImageProcessor::side() const {
  if (crop_height_ > 0) return crop_height_ == crop_width_ ? crop_height_ : 0;
  return (fit_ == Fit::stretch && height_ == width_) || fit_ == Fit::tiles ? height_ : 0;
}

image::Pixels ImageProcessor::fitted(const image::Pixels& image) const {
  if (fit_ == Fit::stretch) return resized(image, height_, width_, filter_);
  if (keeps_proportions()) {
    constexpr double kRatioMax = 200;  // transformers refuses longer images for Qwen's models
    if (longer_by(image.height, image.width) > kRatioMax)
      throw UsageError(fmt::format("vision: an image of {} x {} pixels is too narrow a strip; crop it first",
                                   image.height, image.width));
    const Size own{image.height, image.width};
    const Size size = fit_ == Fit::area ? in_area(own, step_, height_, longest_) : within(own, step_, longest_);
    return resized(image, size.height, size.width, filter_);
  }
  if (fit_ != Fit::shortest) return image;
  const bool is_wide = image.width > image.height;
  const Extent shorter = is_wide ? image.height : image.width, longer = is_wide ? image.width : image.height;
  const Extent other = height_ * longer / shorter;
  // A strip whose long side would be cropped away all the same.
  if (other > Extent{16} * kSideMax)
    throw UsageError(fmt::format("vision: an image of {} x {} pixels is too narrow a strip; crop it first",
                                 image.height, image.width));
  return is_wide ? resized(image, height_, other, filter_) : resized(image, other, height_, filter_);
}

PreparedImage ImageProcessor::prepare(const image::Pixels& image) const {
  if (fit_ == Fit::tiles) return cut(image);
  image::Pixels whole = fitted(image);
  if (crop_height_ > 0) whole = center_cropped(whole, crop_height_, crop_width_);
  PreparedImage prepared{{std::move(whole)}, 0, 0};
  for (const image::Pixels& crop : crops_of(image)) prepared.tiles.push_back(fitted(crop));
  return prepared;
}

std::vector<image::Pixels> ImageProcessor::crops_of(const image::Pixels& image) const {
  const PanAndScan& s = pan_and_scan_;
  if (!s.is_on || longer_by(image.height, image.width) < s.least_ratio) return {};
  const bool is_wide = image.width >= image.height;
  const Extent longer = std::max(image.height, image.width), shorter = std::min(image.height, image.width);
  Extent count = static_cast<Extent>(std::floor(longer_by(image.height, image.width) + 0.5));
  count = std::min(s.crops_max, std::max<Extent>(2, std::min(longer / s.least_side, count)));
  const Extent side = rounded_up(longer, count) / count;
  if (std::min(side, shorter) < s.least_side) return {};
  std::vector<image::Pixels> crops;
  for (Extent i = 0; i < count && i * side < longer; ++i) {
    const Extent at = i * side, size = std::min(side, longer - at);
    crops.push_back(is_wide ? image::cropped(image, 0, at, shorter, size)
                            : image::cropped(image, at, 0, size, shorter));
  }
  return crops;
}

PreparedImage ImageProcessor::cut(const image::Pixels& image) const {
  const Extent tile = height_;
  const Size size = with_longest({image.height, image.width}, longest_);
  image::Pixels whole = resized(image, size.height, size.width, filter_);
  if (!splits_) return {{resized(whole, tile, tile, filter_)}, 0, 0};
  const Size tiled = whole_tiles(size, tile);
  whole = resized(whole, tiled.height, tiled.width, filter_);
  PreparedImage prepared;
  if (tiled.height == tile && tiled.width == tile) return {{std::move(whole)}, 0, 0};
  prepared.rows = tiled.height / tile;
  prepared.columns = tiled.width / tile;
  for (Extent y = 0; y < prepared.rows; ++y)
    for (Extent x = 0; x < prepared.columns; ++x)
      prepared.tiles.push_back(image::cropped(whole, y * tile, x * tile, tile, tile));
  prepared.tiles.push_back(resized(whole, tile, tile, filter_));
  return prepared;
}

std::vector<float> ImageProcessor::normalized(const image::Pixels& tile) const {
  const auto area = static_cast<std::size_t>(tile.height * tile.width);
  std::vector<float> planes(3 * area);
  for (std::size_t i = 0; i < area; ++i)
    for (std::size_t c = 0; c < 3; ++c) planes[c * area + i] = table_[c][tile.values[3 * i + c]];
  return planes;
}

}  // namespace weft::vision
