#include "io/gguf_metadata.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
static_assert(std::variant_size_v<GgufValue> == std::size(kTypeNames));

}  // namespace

std::string_view name_of(GgufType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

GgufType type_of(const GgufValue& value) { return static_cast<GgufType>(value.index()); }

GgufType element_type_of(const GgufArray& array) {
  const std::size_t index = array.index();  // the list of element types omits arrays
  return static_cast<GgufType>(index < static_cast<std::size_t>(GgufType::array) ? index : index + 1);
}

std::size_t size_of(const GgufArray& array) {
  return std::visit([](const auto& elements) { return elements.size(); }, array);
}

std::string describe_type(const GgufValue& value) {
  if (const GgufArray* array = std::get_if<GgufArray>(&value))
    return fmt::format("array of {} {}", size_of(*array), name_of(element_type_of(*array)));
  return std::string(name_of(type_of(value)));
}

void GgufMetadata::set(std::string key, GgufValue value) {
  const auto [place, is_new] = index_.try_emplace(key, entries_.size());
  if (is_new)
    entries_.push_back({std::move(key), std::move(value)});
  else
    entries_[place->second].value = std::move(value);
}

void GgufMetadata::erase(std::string_view key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  const std::size_t at = found->second;
  index_.erase(found);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  for (auto& [name, place] : index_) place -= place > at;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

const GgufValue& GgufMetadata::required(std::string_view key) const {
  if (const GgufValue* value = find(key)) return *value;
  throw FileError(
      fmt::format("{}: metadata {} is missing; convert the model again with a current converter", source_, quote(key)));
}

void GgufMetadata::wrong_type(std::string_view key, std::string_view wanted) const {
  throw FileError(fmt::format("{}: metadata {} is {}; it must be {}. Convert the model again with a current converter",
                              source_, quote(key), describe_type(required(key)), wanted));
}

void GgufMetadata::does_not_fit(std::string_view key, std::string_view value, std::string_view range) const {
  throw FileError(fmt::format("{}: metadata {} is {}, which does not fit {}; the file is damaged or hostile", source_,
                              quote(key), value, range));
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  const GgufArray* array = std::get_if<GgufArray>(&required(key));
  if (!array) return {get<double>(key)};
  if (const auto* floats = std::get_if<std::vector<float>>(array)) return {floats->begin(), floats->end()};
  if (const auto* doubles = std::get_if<std::vector<double>>(array)) return *doubles;
  throw FileError(fmt::format("{}: {} is not an array of floats", source_, key));
}

std::vector<bool> GgufMetadata::flags(std::string_view key) const {
  const GgufArray* array = std::get_if<GgufArray>(&required(key));
  if (!array) return {get<bool>(key)};
  if (const auto* flags = std::get_if<std::vector<bool>>(array)) return *flags;
  wrong_type(key, "an array of booleans");
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufArray* array = std::get_if<GgufArray>(&required(key));
  if (!array) return {get<std::int64_t>(key)};
  return std::visit(
      [&](const auto& elements) -> std::vector<std::int64_t> {
        using V = typename std::remove_cvref_t<decltype(elements)>::value_type;
        if constexpr (std::integral<V> && !std::is_same_v<V, bool>) {
          std::vector<std::int64_t> result;
          result.reserve(elements.size());
          for (const V v : elements) {
            if (!std::in_range<std::int64_t>(v)) does_not_fit(key, std::to_string(v), "i64");
            result.push_back(static_cast<std::int64_t>(v));
          }
          return result;
        } else {
          wrong_type(key, "an array of whole numbers");
        }
      },
      *array);
}

}  // namespace weft::io
