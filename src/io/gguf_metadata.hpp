// Metadata of GGUF files: an ordered list of typed values by key.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace weft::io {

/// Types of values, by their numbers in files.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
/// "u8", ..., "bool", "string", "array".
std::string_view name_of(GgufType type);

/// An array; its element type is the vector's. Neither the format's reference reader nor this one supports arrays of arrays.
using GgufArray = std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                               std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>,
                               std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;
/// A value; its index is its type's number.
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                               float, bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

GgufType type_of(const GgufValue& value);
GgufType element_type_of(const GgufArray& array);
std::size_t size_of(const GgufArray& array);
/// "u32", "array of 49152 strings".
std::string describe_type(const GgufValue& value);

/// Values by key, in the order of the file. Look-ups of a type convert whole numbers to any type that holds them, and
/// f64 to f32; errors are FileErrors that name source, key, the type found and the cure.
class GgufMetadata {
 public:
  struct Entry {
    std::string key;
    GgufValue value;
    bool operator==(const Entry&) const = default;
  };
  GgufMetadata() = default;
  /// `source` opens the messages of look-ups.
  explicit GgufMetadata(std::string source) : source_(std::move(source)) {}

  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& source() const { return source_; }
  /// Adds a value or replaces the one of this key.
  void set(std::string key, GgufValue value);
  void erase(std::string_view key);

  const GgufValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// T: bool, a whole number, float, double or std::string. `get` throws if there is no such key; all throw if the value
  /// is of another kind or does not fit.
  template <class T>
  T get(std::string_view key) const {
    return convert<T>(key, required(key));
  }
  template <class T>
  std::optional<T> get_if(std::string_view key) const {
    const GgufValue* value = find(key);
    return value ? std::optional<T>(convert<T>(key, *value)) : std::nullopt;
  }
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    const GgufValue* value = find(key);
    return value ? convert<T>(key, *value) : fallback;
  }
  /// An array whose elements are exactly T.
  template <class T>
  const std::vector<T>& array(std::string_view key) const {
    const GgufArray* array = std::get_if<GgufArray>(&required(key));
    const std::vector<T>* exact = array ? std::get_if<std::vector<T>>(array) : nullptr;
    if (!exact) wrong_type(key, "an array of " + std::string(name_of(element_type_of(GgufArray(std::vector<T>())))));
    return *exact;
  }
  /// The same, or nullptr if there is no such key.
  template <class T>
  const std::vector<T>* array_if(std::string_view key) const {
    return find(key) ? &array<T>(key) : nullptr;
  }
  /// An array of whole numbers of any width, or a single one.
  std::vector<std::int64_t> integers(std::string_view key) const;
  /// An array of floats, or a single number.
  std::vector<double> numbers(std::string_view key) const;
  /// An array of booleans, or a single one.
  std::vector<bool> flags(std::string_view key) const;

 private:
  const GgufValue& required(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void does_not_fit(std::string_view key, std::string_view value, std::string_view range) const;

  template <class T>
  T convert(std::string_view key, const GgufValue& value) const {
    return std::visit(
        [&](const auto& v) -> T {
          using V = std::remove_cvref_t<decltype(v)>;
          if constexpr (std::is_same_v<V, T>) {
            return v;
          } else if constexpr (std::is_floating_point_v<T> && std::is_floating_point_v<V>) {
            return static_cast<T>(v);
          } else if constexpr (std::integral<T> && std::integral<V> && !std::is_same_v<T, bool> &&
                               !std::is_same_v<V, bool>) {
            if (!std::in_range<T>(v))
              does_not_fit(key, std::to_string(v), (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)));
            return static_cast<T>(v);
          } else {
            wrong_type(key, std::is_same_v<T, bool>       ? "a bool"
                            : std::integral<T>            ? "a whole number"
                            : std::is_floating_point_v<T> ? "a float"
                                                          : "a string");
          }
        },
        value);
  }

  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::string source_ = "metadata";
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> index_;
};

}  // namespace weft::io
