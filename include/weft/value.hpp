// Values that operations take and return: JSON, and tensors, which stay on their device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

class Value;

/// Members of an object in the order in which they were given. Keys are unique. A lookup takes O(log n).
class ValueObject {
 public:
  struct Member;

  // Defined below, where a member is complete.
  ValueObject();
  ValueObject(const ValueObject&);
  ValueObject(ValueObject&&) noexcept;
  ValueObject& operator=(const ValueObject&);
  ValueObject& operator=(ValueObject&&) noexcept;
  ~ValueObject();
  /// Errors: UsageError for a key that is given twice.
  explicit ValueObject(std::vector<Member> members);
  ValueObject(std::initializer_list<Member> members);

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  std::vector<Member>::const_iterator begin() const;
  std::vector<Member>::const_iterator end() const;
  const Member& operator[](std::size_t i) const;
  Value& value(std::size_t i);

  /// Null if there is no such member.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  /// The index of a member; kNone if there is no such member.
  std::size_t index_of(std::string_view key) const;

  /// Adds a member, or replaces its value.
  void set(std::string_view key, Value value);
  /// Removes a member, if it exists.
  void remove(std::string_view key);

 private:
  void sort();
  std::vector<Member> members_;
  std::vector<std::uint32_t> sorted_;  // places of the members in the order of their keys; empty while they are few
};

/// Null, a boolean, a number, a string, an array, an object, or a tensor. Numbers are integers of 64 bits or doubles; 3 and
/// 3.0 are equal. Copies are deep, except that tensors are shared.
/// Thread safety: as std::vector.
class Value {
 public:
  using Array = std::vector<Value>;
  using Object = ValueObject;
  enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object, tensor };

  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>) Value(T value) : data_(integer_of(value)) {}
  Value(double value) : data_(value) {}
  Value(float value) : data_(static_cast<double>(value)) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string_view text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(Array elements) : data_(std::move(elements)) {}
  Value(Object members) : data_(std::move(members)) {}
  Value(Tensor tensor) : data_(std::move(tensor)) {}

  static Value array(std::initializer_list<Value> elements) { return Array(elements); }
  static Value object(std::initializer_list<ValueObject::Member> members) { return Object(members); }

  /// JSON text (RFC 8259). `source` names it in errors. Errors: FileError with line and column, for text that is not JSON,
  /// repeats a key, nests deeper than 64, is larger than 256 MB, or has more than `values_max` keys and values, of about 50
  /// bytes each in memory.
  static Value parse(std::string_view text, std::string_view source = "JSON", std::uint64_t values_max = 20'000'000);
  /// JSON text; an indent gives several lines. A tensor becomes {"$tensor": {"dtype": ..., "shape": ...}} without its elements.
  /// NaN and infinities, which JSON lacks, become "nan", "inf" and "-inf".
  std::string to_json(int indent = -1) const;

  Kind kind() const;
  bool is_null() const { return data_.index() == 0; }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  /// Any number.
  bool is_number() const { return data_.index() >= 2 && data_.index() <= 4; }
  /// A number without a fraction: 3, and 3.0.
  bool is_integer() const;
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }
  bool is_tensor() const { return std::holds_alternative<Tensor>(data_); }

  // The content, if it has this kind. Errors: UsageError that says which kind it has.
  bool boolean() const;
  /// Errors: UsageError also for a number with a fraction, or outside of 64 bits.
  std::int64_t integer() const;
  /// Errors: UsageError also for a number that is negative, has a fraction, or is above 2^64 - 1.
  std::uint64_t unsigned_integer() const;
  double number() const;
  const std::string& string() const;
  const Array& elements() const;
  Array& elements();
  const Object& members() const;
  Object& members();
  const Tensor& tensor() const;

  /// A member. Errors: UsageError if the value is not an object, or the object has no such member.
  const Value& operator[](std::string_view key) const;
  /// A member, or null if there is none. Errors: UsageError if the value is not an object.
  const Value* find(std::string_view key) const { return members().find(key); }
  /// An element. Errors: UsageError if the value is not an array, or the array is too short.
  const Value& operator[](std::size_t index) const;

  /// Equal as JSON: numbers by their value, objects without regard to order. Tensors are equal if they are the same node of the
  /// graph.
  bool operator==(const Value& other) const;
  /// Equal values have equal hashes.
  std::size_t hash() const;

 private:
  friend int compare_numbers(const Value& a, const Value& b);
  using Data =
      std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object, Tensor>;
  template <std::integral T>
  static Data integer_of(T value) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
      if (value > static_cast<T>(INT64_MAX)) return static_cast<std::uint64_t>(value);
    }
    return static_cast<std::int64_t>(value);
  }
  Data data_;  // u64 only above INT64_MAX
};

struct ValueObject::Member {
  std::string key;
  Value value;
};

/// Negative, zero or positive as a < b, a = b or a > b, exactly. Both must be numbers, and not NaN.
int compare_numbers(const Value& a, const Value& b);
/// "null", "boolean", "integer", "number", "string", "array", "object", "tensor".
std::string_view name_of(Value::Kind kind);

inline ValueObject::ValueObject() = default;
inline ValueObject::ValueObject(const ValueObject&) = default;
inline ValueObject::ValueObject(ValueObject&&) noexcept = default;
inline ValueObject& ValueObject::operator=(const ValueObject&) = default;
inline ValueObject& ValueObject::operator=(ValueObject&&) noexcept = default;
inline ValueObject::~ValueObject() = default;
inline std::size_t ValueObject::size() const { return members_.size(); }
inline std::vector<ValueObject::Member>::const_iterator ValueObject::begin() const { return members_.begin(); }
inline std::vector<ValueObject::Member>::const_iterator ValueObject::end() const { return members_.end(); }
inline const ValueObject::Member& ValueObject::operator[](std::size_t i) const { return members_[i]; }
inline Value& ValueObject::value(std::size_t i) { return members_[i].value; }

}  // namespace weft
