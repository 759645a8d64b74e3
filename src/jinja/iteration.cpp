// Walks over the items of values.
#include "jinja/unicode.hpp"
#include "jinja/value.hpp"

namespace weft::jinja {

namespace {

class EmptyIteration : public Iteration {
 public:
  bool next(Value&) override { return false; }
};

class SequenceIteration : public Iteration {
 public:
  explicit SequenceIteration(SequencePointer sequence) : sequence_(std::move(sequence)) {}
  bool next(Value& item) override {
    if (position_ == sequence_->items.size()) return false;
    item = sequence_->items[position_++];
    return true;
  }

 private:
  SequencePointer sequence_;
  std::size_t position_ = 0;
};

class TextIteration : public Iteration {
 public:
  explicit TextIteration(TextPointer text) : text_(std::move(text)) {}
  bool next(Value& item) override {
    if (position_ == text_->bytes.size()) return false;
    const std::size_t end = position_ + decode(text_->bytes, position_).bytes;
    // Characters of Markup are plain strings.
    TextBuilder builder;
    builder.append(*text_, position_, end);
    item = Value(builder.take());
    position_ = end;
    return true;
  }

 private:
  TextPointer text_;
  std::size_t position_ = 0;
};

class DictIteration : public Iteration {
 public:
  DictIteration(DictPointer dict, DictView::Part part) : dict_(std::move(dict)), part_(part) {}
  bool next(Value& item) override {
    if (position_ == dict_->size()) return false;
    const auto& [key, value] = dict_->items()[position_++];
    if (part_ == DictView::Part::items) {
      item = Value::tuple({key, value});
    } else {
      item = part_ == DictView::Part::keys ? key : value;
    }
    return true;
  }

 private:
  DictPointer dict_;
  DictView::Part part_;
  std::size_t position_ = 0;
};

}  // namespace

std::unique_ptr<Iteration> DictView::iterate() { return std::make_unique<DictIteration>(dict_, part_); }

std::unique_ptr<Iteration> try_iterate(const Value& value) {
  if (value.is_undefined()) return std::make_unique<EmptyIteration>();
  if (value.is_text()) return std::make_unique<TextIteration>(value.text());
  if (value.is_sequence()) return std::make_unique<SequenceIteration>(value.sequence());
  if (value.is_dict()) return std::make_unique<DictIteration>(value.dict(), DictView::Part::keys);
  if (value.is_object()) return value.object()->iterate();
  return nullptr;
}

std::unique_ptr<Iteration> iterate(const Value& value) {
  auto iteration = try_iterate(value);
  if (!iteration) fail(fmt::format("{} has no items to go through", described(value)), "check it with 'is iterable'");
  return iteration;
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_sequence()) return value.sequence()->items;
  std::vector<Value> items;
  Charge charge;
  const auto iteration = iterate(value);
  for (Value item; iteration->next(item);) {
    work();
    charge.add(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace weft::jinja
