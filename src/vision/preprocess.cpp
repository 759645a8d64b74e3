#include "vision/preprocess.hpp"

#include <cmath>
#include <string_view>

#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::vision {
namespace {

using io::ConfigKeys;

constexpr Extent kSideMax = ImageProcessor::kSideMax, kPartsMax = ImageProcessor::kPartsMax;
constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{1} << 20, .max_values = 20'000};

using Color = std::array<double, 3>;
constexpr Color kClipMean = {0.48145466, 0.4578275, 0.40821073}, kClipDeviation = {0.26862954, 0.26130258, 0.27577711},
                kHalf = {0.5, 0.5, 0.5};

enum class Sizing : std::uint8_t { shortest, stretch, tiles, padded, canvas, area, within };

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
    {"LlavaNext", Sizing::padded, true, 224, 3, kClipMean, kClipDeviation},
    {"GotOcr2", Sizing::canvas, false, 384, 3, kClipMean, kClipDeviation},  // which InternVL's folders name
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

/// A number, {"shortest_edge"}, or {"height", "width"} that are the same.
Extent square_side(const ConfigKeys& keys, const Json* size, const char* key, Extent fallback) {
  if (!size || size->is_number()) return side_of(keys, {key}, fallback);
  const ConfigKeys sizes(*size, keys.source(), key);
  const Extent side = side_of(sizes, {"shortest_edge", "height"});
  if (sizes.size({"width"}, side) != side) keys.fail(key, "has sides that differ, which Weft does not support here");
  return side;
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
  // LlavaOnevision and the like cut images in ways of their own.
  if (!defaults || type.starts_with("LlavaNextVideo") || type.starts_with("LlavaOnevision") ||
      type.starts_with("ViTPose"))
    keys.fail(
        "image_processor_type",
        fmt::format("is \"{}\"; Weft has those of CLIP, Llava, LlavaNext, Siglip, ViT, Idefics3, SmolVLM, Gemma3, "
                    "Qwen2VL, Pixtral and GotOcr2",
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
      p.read_tiles(keys, size, defaults->size);
    } else if (sizing == Sizing::padded) {
      p.read_padded(keys, size, defaults->size);
    } else if (sizing == Sizing::canvas) {
      p.read_canvas(keys, size, defaults->size);
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
  if (sizing != Sizing::padded && keys.flag("do_center_crop", defaults->crops)) {
    const Json* crop = keys.find({"crop_size"});
    if (crop && crop->is_object()) {
      const ConfigKeys sizes(*crop, source, "crop_size");
      p.crop_height_ = side_of(sizes, {"height"});
      p.crop_width_ = side_of(sizes, {"width"});
    } else {
      p.crop_height_ = p.crop_width_ = side_of(keys, {"crop_size"}, defaults->size);
    }
  }
  if (keys.flag("do_pad", false) && sizing != Sizing::tiles && sizing != Sizing::padded && sizing != Sizing::within)
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

void ImageProcessor::read_tiles(const ConfigKeys& keys, const Json* size, Extent usual) {
  fit_ = Fit::tiles;
  longest_ = size ? side_of(ConfigKeys(*size, keys.source(), "size"), {"longest_edge"}) : 4 * usual;
  const Json* tile = keys.find({"max_image_size"});
  height_ = width_ = tile ? side_of(ConfigKeys(*tile, keys.source(), "max_image_size"), {"longest_edge"}) : usual;
  splits_ = keys.flag("do_image_splitting", true);
  if (splits_ && longest_ / height_ > kPartsMax)
    keys.fail("size", fmt::format("cuts {} pixels into parts of {}; Weft has at most {} of them on a side", longest_,
                                  height_, kPartsMax));
}

void ImageProcessor::read_padded(const ConfigKeys& keys, const Json* size, Extent usual) {
  fit_ = Fit::padded;
  height_ = width_ = square_side(keys, size, "size", usual);
  const Extent crop =
      keys.flag("do_center_crop", true) ? square_side(keys, keys.find({"crop_size"}), "crop_size", usual) : height_;
  if (crop != height_)
    keys.fail("crop_size",
              fmt::format("is {}, and size is {}; Weft cuts images into parts that are as large as the whole", crop,
                          height_));
  constexpr std::array<std::array<Extent, 2>, 5> kUsual = {
      {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}};
  sizes_.assign(kUsual.begin(), kUsual.end());
  if (const Json* list = keys.find({"image_grid_pinpoints"})) {
    if (!list->is_array() || list->empty() || list->size() > 1000)
      keys.fail("image_grid_pinpoints", "is not a list of 1 to 1000 sizes");
    sizes_.clear();
    for (const Json& each : *list) {
      const bool is_size =
          each.is_array() && each.size() == 2 && each[0].is_number_integer() && each[1].is_number_integer();
      sizes_.push_back(is_size ? std::array<Extent, 2>{each[0].get<Extent>(), each[1].get<Extent>()}
                               : std::array<Extent, 2>{0, 0});
    }
  }
  for (const auto& [high, wide] : sizes_)
    if (const Extent most = std::min(kPartsMax * height_, 2 * kSideMax);
        high < 1 || wide < 1 || high > most || wide > most || high % height_ != 0 || wide % height_ != 0)
      keys.fail("image_grid_pinpoints",
                fmt::format("has a size that is not [height, width] in multiples of {} up to {}", height_, most));
}

void ImageProcessor::read_canvas(const ConfigKeys& keys, const Json* size, Extent usual) {
  fit_ = Fit::canvas;
  height_ = width_ = square_side(keys, size, "size", usual);
  // InternVL's processor cuts whatever crop_to_patches says here.
  least_parts_ = keys.size({"min_patches"}, 1);
  most_parts_ = keys.size({"max_patches"}, 12);
  const Extent limit = std::min(kPartsMax * kPartsMax, 4 * kSideMax * kSideMax / (height_ * height_));
  if (least_parts_ < 1 || most_parts_ < least_parts_ || most_parts_ > limit)
    keys.fail("max_patches",
              fmt::format("is {}, and min_patches is {}; give numbers from 1 to {}, the larger one as max_patches",
                          most_parts_, least_parts_, limit));
}

Extent ImageProcessor::side() const {
  if (crop_height_ > 0) return crop_height_ == crop_width_ ? crop_height_ : 0;
  return (fit_ == Fit::stretch && height_ == width_) || cut() != Cut::none ? height_ : 0;
}

std::vector<float> ImageProcessor::normalized(const image::Pixels& tile) const {
  const auto area = static_cast<std::size_t>(tile.height * tile.width);
  std::vector<float> planes(3 * area);
  for (std::size_t i = 0; i < area; ++i)
    for (std::size_t c = 0; c < 3; ++c) planes[c * area + i] = table_[c][tile.values[3 * i + c]];
  return planes;
}

}  // namespace weft::vision
