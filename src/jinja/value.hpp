// The values of a template at run time, with Python's rules for truth, equality, order and text.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/text.hpp"

namespace weft::jinja {

class Value;
class Dict;
class Object;

/// The reason why a value is missing; it becomes the message of operations on the value.
struct Undefined {
  std::string reason;
  std::string cure;
  bool forbidden = false;  ///< there is such a method, but it changes its object
};
struct None {};
/// A list or a tuple; immutable, since templates run in Jinja2's immutable sandbox.
struct Sequence {
  explicit Sequence(std::vector<Value> items, bool tuple = false);
  ~Sequence();
  std::vector<Value> items;
  bool tuple;
  bool group = false;  // a pair of groupby: its items are also called grouper and list
  int depth;
  Charge charge;
};

using UndefinedPointer = std::shared_ptr<const Undefined>;
using SequencePointer = std::shared_ptr<const Sequence>;
using DictPointer = std::shared_ptr<const Dict>;
using ObjectPointer = std::shared_ptr<Object>;

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(double value) : data_(value) {}
  Value(TextPointer text) : data_(std::move(text)) {}
  Value(std::string_view text) : data_(make_text(text)) {}
  Value(const char*) = delete;  // would be a bool
  Value(SequencePointer sequence) : data_(std::move(sequence)) {}
  Value(DictPointer dict) : data_(std::move(dict)) {}
  Value(ObjectPointer object) : data_(std::move(object)) {}
  Value(UndefinedPointer undefined) : data_(std::move(undefined)) {}
  static Value undefined(std::string reason, std::string cure = {});
  static Value list(std::vector<Value> items) { return std::make_shared<const Sequence>(std::move(items)); }
  static Value tuple(std::vector<Value> items) { return std::make_shared<const Sequence>(std::move(items), true); }

  bool is_undefined() const { return std::holds_alternative<UndefinedPointer>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_text() const { return std::holds_alternative<TextPointer>(data_); }
  bool is_sequence() const { return std::holds_alternative<SequencePointer>(data_); }
  bool is_dict() const { return std::holds_alternative<DictPointer>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectPointer>(data_); }

  const UndefinedPointer& undefined() const { return std::get<UndefinedPointer>(data_); }
  double real() const { return std::get<double>(data_); }
  const TextPointer& text() const { return std::get<TextPointer>(data_); }
  const SequencePointer& sequence() const { return std::get<SequencePointer>(data_); }
  const DictPointer& dict() const { return std::get<DictPointer>(data_); }
  const ObjectPointer& object() const { return std::get<ObjectPointer>(data_); }
  /// The integer of an int or, as in Python, of a bool.
  std::optional<std::int64_t> integer() const;
  /// The number of an int, bool or float.
  std::optional<double> number() const;
  template <class T>
  std::shared_ptr<T> object_as() const {
    return is_object() ? std::dynamic_pointer_cast<T>(object()) : nullptr;
  }

  /// The nesting depth of its containers; 0 if it is not a container.
  int depth() const;

 private:
  std::variant<None, bool, std::int64_t, double, TextPointer, SequencePointer, DictPointer, ObjectPointer,
               UndefinedPointer>
      data_;
};

/// Hash and equality of keys: 1, 1.0 and true are one key.
struct KeyHash {
  std::size_t operator()(const Value& key) const;
};
struct KeyEqual {
  bool operator()(const Value& a, const Value& b) const;
};

/// A dict in order of insertion. It grows while it is built, and is immutable through a DictPointer.
class Dict {
 public:
  Dict() = default;
  /// Fault for a key that cannot be hashed (lists and dicts).
  void set(Value key, Value value);
  void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void clear();
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  int depth() const { return depth_; }

 private:
  std::optional<std::size_t> position_of(const Value& key) const;

  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<Value, std::size_t, KeyHash, KeyEqual> index_;  // made for dicts of more than a few items
  int depth_ = 1;
  Charge charge_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A walk over the items of a value.
class Iteration {
 public:
  virtual ~Iteration() = default;
  virtual bool next(Value& item) = 0;
};

/// A value that is neither scalar, text, list, tuple nor dict. A method that returns nothing means that objects of this kind
/// lack the ability.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual void represent(TextBuilder& out) const;
  virtual bool truth() const { return true; }
  virtual std::optional<std::size_t> length() const { return std::nullopt; }
  virtual std::unique_ptr<Iteration> iterate() { return nullptr; }
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  virtual std::optional<Value> item(const Value&) { return std::nullopt; }
  virtual std::optional<bool> contains(const Value&) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Arguments&&);
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual int depth() const { return 0; }
};

/// Whether a value can be a key: it is not a list or dict, nor a tuple that contains one.
bool is_hashable(const Value& value);

/// Refuses values that are nested too deep for recursion.
int checked_depth(int depth);

/// Python's name of the type: "str", "int", "NoneType".
std::string type_name(const Value& value);
/// "the str 'abc'", "none", "a dict": for messages.
std::string described(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
/// Fault if the two have no order; `operation` is named in the message.
std::partial_ordering compare(const Value& a, const Value& b, std::string_view operation);
/// `item in container`.
bool contains(const Value& container, const Value& item);
/// len(); nothing for a value without a length.
std::optional<std::size_t> length_of(const Value& value);
/// A walk over the items (characters, keys, ...), or nullptr.
std::unique_ptr<Iteration> try_iterate(const Value& value);
/// The same; Fault for a value that has no items.
std::unique_ptr<Iteration> iterate(const Value& value);
std::vector<Value> items_of(const Value& value);
/// Fault with the reason of an undefined value.
[[noreturn]] void fail_undefined(const Value& value);

/// str(): the printed form.
TextPointer to_text(const Value& value);
/// repr(): the printed form inside a list.
void represent(const Value& value, TextBuilder& out);
std::string float_text(double value);

/// An iterator as from filters such as map: walked once, always true, without a length.
class Generator : public Object {
 public:
  Generator(std::string name, int depth, std::unique_ptr<Iteration> iteration)
      : name_(std::move(name)), depth_(checked_depth(depth + 1)), iteration_(std::move(iteration)) {}
  std::string_view type_name() const override { return name_; }
  std::unique_ptr<Iteration> iterate() override;
  int depth() const override { return depth_; }

 private:
  std::string name_;
  int depth_;
  std::shared_ptr<Iteration> iteration_;
  Charge charge_{128};
};

/// A Generator whose items come from calling `next(item)` until it returns false; its values have this depth.
template <class F>
Value generator(std::string_view name, int depth, F next) {
  class Function : public Iteration {
   public:
    explicit Function(F next) : next_(std::move(next)) {}
    bool next(Value& item) override { return next_(item); }

   private:
    F next_;
  };
  return ObjectPointer(
      std::make_shared<Generator>(std::string(name), depth, std::make_unique<Function>(std::move(next))));
}

/// keys(), values(), items() of a dict.
class DictView : public Object {
 public:
  enum class Part { keys, values, items };
  DictView(DictPointer dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  void represent(TextBuilder& out) const override;
  bool truth() const override { return dict_->size() > 0; }
  std::optional<std::size_t> length() const override { return dict_->size(); }
  std::unique_ptr<Iteration> iterate() override;
  std::optional<bool> contains(const Value& item) override;
  bool equals(const Object& other) const override;
  int depth() const override { return dict_->depth() + 1; }
  /// The items as a list, for reverse and last.
  std::vector<Value> items() const;

 private:
  DictPointer dict_;
  Part part_;
};

class Range : public Object {
 public:
  Range(std::int64_t start, std::int64_t stop, std::int64_t step);
  std::string_view type_name() const override { return "range"; }
  void represent(TextBuilder& out) const override;
  bool truth() const override { return count_ > 0; }
  std::optional<std::size_t> length() const override { return count_; }
  std::unique_ptr<Iteration> iterate() override;
  std::optional<Value> item(const Value& index) override;
  std::optional<bool> contains(const Value& item) override;
  bool equals(const Object& other) const override;
  std::int64_t at(std::size_t i) const { return start_ + static_cast<std::int64_t>(i) * step_; }
  /// range(...)[start:stop:step] for positions already clamped.
  ObjectPointer sliced(std::int64_t start, std::int64_t step, std::int64_t count) const;

 private:
  std::int64_t start_, stop_, step_;
  std::size_t count_ = 0;
};

}  // namespace weft::jinja
