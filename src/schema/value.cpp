#include "weft/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

// Fewer members are searched one by one.
constexpr std::size_t kFewMembers = 12;

[[noreturn]] void wrong_kind(const Value& value, std::string_view wanted) {
  throw UsageError(fmt::format("a value is {}, not {}", name_of(value.kind()), wanted));
}

}  // namespace

// ---- Objects ------------------------------------------------------------------------------------------------------------

ValueObject::ValueObject(std::vector<Member> members) : members_(std::move(members)) {
  std::vector<std::string_view> keys;
  keys.reserve(members_.size());
  for (const Member& member : members_) keys.push_back(member.key);
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    throw UsageError(fmt::format("key {} is given twice", quote(*twice)));
  sort();
}

ValueObject::ValueObject(std::initializer_list<Member> members) : ValueObject(std::vector<Member>(members)) {}

void ValueObject::sort() {
  sorted_.clear();
  if (members_.size() <= kFewMembers) return;
  sorted_.resize(members_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::sort(sorted_.begin(), sorted_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return members_[a].key < members_[b].key; });
}

std::size_t ValueObject::index_of(std::string_view key) const {
  if (sorted_.empty()) {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].key == key) return i;
    return kNone;
  }
  const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), key,
                                      [&](std::uint32_t i, std::string_view k) { return members_[i].key < k; });
  return found != sorted_.end() && members_[*found].key == key ? *found : kNone;
}

const Value* ValueObject::find(std::string_view key) const {
  const std::size_t i = index_of(key);
  return i == kNone ? nullptr : &members_[i].value;
}

Value* ValueObject::find(std::string_view key) {
  const std::size_t i = index_of(key);
  return i == kNone ? nullptr : &members_[i].value;
}

void ValueObject::set(std::string_view key, Value value) {
  if (Value* member = find(key)) {
    *member = std::move(value);
    return;
  }
  members_.push_back({std::string(key), std::move(value)});
  if (sorted_.empty()) {
    sort();
    return;
  }
  const auto place = std::lower_bound(sorted_.begin(), sorted_.end(), key,
                                      [&](std::uint32_t i, std::string_view k) { return members_[i].key < k; });
  sorted_.insert(place, static_cast<std::uint32_t>(members_.size() - 1));
}

void ValueObject::remove(std::string_view key) {
  const std::size_t i = index_of(key);
  if (i == kNone) return;
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
  sort();
}

// ---- What a value holds ---------------------------------------------------------------------------------------------------

std::string_view name_of(Value::Kind kind) {
  constexpr std::string_view kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object", "tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

Value::Kind Value::kind() const {
  constexpr Kind kKinds[] = {Kind::null,   Kind::boolean, Kind::integer, Kind::integer, Kind::number,
                             Kind::string, Kind::array,   Kind::object,  Kind::tensor};
  return kKinds[data_.index()];
}

bool Value::is_integer() const {
  if (const double* number = std::get_if<double>(&data_))
    return std::isfinite(*number) && std::trunc(*number) == *number;
  return is_number();
}

bool Value::boolean() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value;
  wrong_kind(*this, "a boolean");
}

std::int64_t Value::integer() const {
  if (const std::int64_t* value = std::get_if<std::int64_t>(&data_)) return *value;
  if (!is_integer()) wrong_kind(*this, "an integer");
  if (const double* value = std::get_if<double>(&data_))
    if (*value >= -0x1p63 && *value < 0x1p63) return static_cast<std::int64_t>(*value);
  throw UsageError(fmt::format("{} is not an integer of 64 bits", to_json()));
}

std::uint64_t Value::unsigned_integer() const {
  if (const std::uint64_t* value = std::get_if<std::uint64_t>(&data_)) return *value;
  if (const std::int64_t* value = std::get_if<std::int64_t>(&data_); value && *value >= 0)
    return static_cast<std::uint64_t>(*value);
  if (!is_integer()) wrong_kind(*this, "an integer");
  if (const double* value = std::get_if<double>(&data_))
    if (*value >= 0 && *value < 0x1p64) return static_cast<std::uint64_t>(*value);
  throw UsageError(fmt::format("{} is not an unsigned integer of 64 bits", to_json()));
}

double Value::number() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  if (const std::int64_t* value = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*value);
  if (const std::uint64_t* value = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*value);
  wrong_kind(*this, "a number");
}

const std::string& Value::string() const {
  if (const std::string* value = std::get_if<std::string>(&data_)) return *value;
  wrong_kind(*this, "a string");
}

const Value::Array& Value::elements() const {
  if (const Array* value = std::get_if<Array>(&data_)) return *value;
  wrong_kind(*this, "an array");
}
Value::Array& Value::elements() { return const_cast<Array&>(std::as_const(*this).elements()); }

const Value::Object& Value::members() const {
  if (const Object* value = std::get_if<Object>(&data_)) return *value;
  wrong_kind(*this, "an object");
}
Value::Object& Value::members() { return const_cast<Object&>(std::as_const(*this).members()); }

const Tensor& Value::tensor() const {
  if (const Tensor* value = std::get_if<Tensor>(&data_)) return *value;
  wrong_kind(*this, "a tensor");
}

const Value& Value::operator[](std::string_view key) const {
  if (const Value* member = members().find(key)) return *member;
  throw UsageError(fmt::format("an object has no member {}", quote(key)));
}

const Value& Value::operator[](std::size_t index) const {
  const Array& all = elements();
  if (index >= all.size()) throw UsageError(fmt::format("element {} of an array of {}", index, all.size()));
  return all[index];
}

// ---- Comparison -------------------------------------------------------------------------------------------------------------

namespace {

int compare(std::int64_t a, double b) {
  if (b >= 0x1p63) return -1;
  if (b < -0x1p63) return 1;
  const auto whole = static_cast<std::int64_t>(b);  // towards zero
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int compare(std::uint64_t a, double b) {  // a > INT64_MAX
  if (b >= 0x1p64) return -1;
  if (b < 0x1p63) return 1;
  const auto whole = static_cast<std::uint64_t>(b);  // so large a double has no fraction
  return a < whole ? -1 : a > whole ? 1 : 0;
}

template <class T>
int order(T a, T b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  const auto with = [&]<class X>(const X& x) {
    if (const auto* y = std::get_if<std::int64_t>(&b.data_)) {
      if constexpr (std::is_same_v<X, double>)
        return -compare(*y, x);
      else
        return std::is_same_v<X, std::uint64_t> ? 1 : order(static_cast<std::int64_t>(x), *y);
    }
    if (const auto* y = std::get_if<std::uint64_t>(&b.data_)) {
      if constexpr (std::is_same_v<X, double>)
        return -compare(*y, x);
      else
        return std::is_same_v<X, std::int64_t> ? -1 : order(static_cast<std::uint64_t>(x), *y);
    }
    if (const auto* y = std::get_if<double>(&b.data_)) {
      if constexpr (std::is_same_v<X, double>)
        return order(x, *y);
      else
        return compare(x, *y);
    }
    throw InternalError("compare_numbers: the second value is not a number");
  };
  if (const auto* x = std::get_if<std::int64_t>(&a.data_)) return with(*x);
  if (const auto* x = std::get_if<std::uint64_t>(&a.data_)) return with(*x);
  if (const auto* x = std::get_if<double>(&a.data_)) return with(*x);
  throw InternalError("compare_numbers: the first value is not a number");
}

bool Value::operator==(const Value& other) const {
  if (is_number() && other.is_number()) {
    const bool any_nan = std::isnan(number()) || std::isnan(other.number());
    return !any_nan && compare_numbers(*this, other) == 0;
  }
  if (data_.index() != other.data_.index()) return false;
  switch (kind()) {
    case Kind::boolean: return std::get<bool>(data_) == std::get<bool>(other.data_);
    case Kind::string: return std::get<std::string>(data_) == std::get<std::string>(other.data_);
    case Kind::array: return std::get<Array>(data_) == std::get<Array>(other.data_);
    case Kind::tensor: return std::get<Tensor>(data_).node() == std::get<Tensor>(other.data_).node();
    case Kind::object: {
      const Object &a = std::get<Object>(data_), &b = std::get<Object>(other.data_);
      return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const ValueObject::Member& member) {
               const Value* found = b.find(member.key);
               return found && *found == member.value;
             });
    }
    default: return true;
  }
}

std::size_t Value::hash() const {
  const auto mix = [](std::size_t a, std::size_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 31;
  };
  switch (kind()) {
    case Kind::null: return 1;
    case Kind::boolean: return boolean() ? 3 : 2;
    case Kind::integer:
    case Kind::number: return mix(4, std::hash<double>{}(number()));
    case Kind::string: return mix(5, std::hash<std::string>{}(string()));
    case Kind::tensor: return mix(8, std::hash<const void*>{}(tensor().node().get()));
    case Kind::array: {
      std::size_t h = 6;
      for (const Value& element : elements()) h = mix(h, element.hash());
      return h;
    }
    case Kind::object: {
      std::size_t h = 7;  // a sum, because order does not count
      for (const auto& [key, value] : members()) h += mix(std::hash<std::string>{}(key), value.hash());
      return h;
    }
  }
  return 0;
}

}  // namespace weft
