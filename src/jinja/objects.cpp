// Values of the language that Python has as classes: generators, views of dicts, ranges.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/value.hpp"

namespace weft::jinja {

void Object::represent(TextBuilder& out) const { out.append(fmt::format("<{} object>", type_name())); }

Value Object::call(Arguments&&) {
  fail(fmt::format("a {} cannot be called", type_name()), "leave out the parentheses");
}

std::unique_ptr<Iteration> Generator::iterate() {
  class Shared : public Iteration {
   public:
    explicit Shared(std::shared_ptr<Iteration> iteration) : iteration_(std::move(iteration)) {}
    bool next(Value& item) override {
      work();
      return iteration_->next(item);
    }

   private:
    std::shared_ptr<Iteration> iteration_;
  };
  return std::make_unique<Shared>(iteration_);
}

std::string_view DictView::type_name() const {
  return part_ == Part::keys ? "dict_keys" : part_ == Part::values ? "dict_values" : "dict_items";
}
void DictView::represent(TextBuilder& out) const {
  out.append(type_name());
  out.append("(");
  jinja::represent(Value::list(items()), out);
  out.append(")");
}
std::vector<Value> DictView::items() const {
  std::vector<Value> items;
  DictIteration iteration(dict_, part_);
  for (Value item; iteration.next(item);) items.push_back(item);
  return items;
}
std::optional<bool> DictView::contains(const Value& item) {
  if (part_ == Part::keys) return dict_->find(item) != nullptr;
  return std::nullopt;
}
bool DictView::equals(const Object& other) const {
  const auto* view = dynamic_cast<const DictView*>(&other);
  if (!view || part_ == Part::values || view->part_ == Part::values) return this == &other;
  // Views of keys and items compare as sets.
  const auto mine = items(), theirs = view->items();
  return mine.size() == theirs.size() && std::all_of(mine.begin(), mine.end(), [&](const Value& a) {
           return std::any_of(theirs.begin(), theirs.end(), [&](const Value& b) { return equal(a, b); });
         });
}

Range::Range(std::int64_t start, std::int64_t stop, std::int64_t step) : start_(start), stop_(stop), step_(step) {
  if (step == 0) fail("the step of a range is 0", "give another, or leave it out");
  const __int128 distance = static_cast<__int128>(stop) - start;
  if ((step > 0) == (distance > 0) && distance != 0) {
    const __int128 count = (distance + step + (step > 0 ? -1 : 1)) / step;
    constexpr int kLongest = 100'000;  // as in Jinja2's sandbox
    if (count > kLongest) fail(fmt::format("the range is longer than {} numbers", kLongest));
    count_ = static_cast<std::size_t>(count);
  }
}
void Range::represent(TextBuilder& out) const {
  out.append(step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                        : fmt::format("range({}, {}, {})", start_, stop_, step_));
}
std::unique_ptr<Iteration> Range::iterate() {
  class Numbers : public Iteration {
   public:
    explicit Numbers(const Range& range) : start_(range.start_), step_(range.step_), left_(range.count_) {}
    bool next(Value& item) override {
      if (left_ == 0) return false;
      item = Value(start_);
      if (--left_ > 0) start_ += step_;
      return true;
    }

   private:
    std::int64_t start_, step_;
    std::size_t left_;
  };
  return std::make_unique<Numbers>(*this);
}
std::optional<Value> Range::item(const Value& index) {
  auto i = index.integer();
  if (!i) return std::nullopt;
  const auto count = static_cast<std::int64_t>(count_);
  if (*i < 0) *i += count;
  if (*i < 0 || *i >= count) return std::nullopt;
  return Value(at(static_cast<std::size_t>(*i)));
}
std::optional<bool> Range::contains(const Value& item) {
  const auto iteration = iterate();
  for (Value each; iteration->next(each);)
    if (equal(each, item)) return true;
  return false;
}
bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (!range || count_ != range->count_) return false;
  return count_ == 0 || (start_ == range->start_ && (count_ == 1 || step_ == range->step_));
}
ObjectPointer Range::sliced(std::int64_t start, std::int64_t step, std::int64_t count) const {
  const auto first = static_cast<std::int64_t>(start_ + start * step_);
  return std::make_shared<Range>(first, first + count * step * step_, step * step_);
}

}  // namespace weft::jinja
