// Filters of lists, dicts and other values with items.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "jinja/arguments.hpp"
#include "jinja/filters.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

Value filter_length(const Value& value, const Arguments& arguments) {
  Parameters("the filter length", arguments, {});
  const auto length = length_of(value);
  if (!length) fail(fmt::format("{} has no length", described(value)), "use | list first on what filters give");
  return static_cast<std::int64_t>(*length);
}

Value filter_list(const Value& value, const Arguments& arguments) {
  Parameters("the filter list", arguments, {});
  return Value::list(items_of(value));
}

Value filter_first(const Value& value, const Arguments& arguments) {
  Parameters("the filter first", arguments, {});
  Value item;
  if (iterate(value)->next(item)) return item;
  return Value::undefined("first: the sequence is empty", "test it with 'if' before");
}

// reversed(), for values that have an order from both ends.
std::optional<std::vector<Value>> reversed(const Value& value) {
  const bool is_view = value.object_as<DictView>() != nullptr, is_range = value.object_as<Range>() != nullptr;
  if (!value.is_undefined() && !value.is_text() && !value.is_sequence() && !value.is_dict() && !is_view && !is_range)
    return std::nullopt;
  auto items = items_of(value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value walk(std::string_view name, std::vector<Value> items) {
  const Value list = Value::list(std::move(items));
  return generator(name, list.depth(), [list, i = std::size_t{0}](Value& item) mutable {
    if (i == list.sequence()->items.size()) return false;
    item = list.sequence()->items[i++];
    return true;
  });
}

Value filter_last(const Value& value, const Arguments& arguments) {
  Parameters("the filter last", arguments, {});
  const auto items = reversed(value);
  if (!items) fail(fmt::format("last: {} has no end to begin from", described(value)), "use | list first");
  if (items->empty()) return Value::undefined("last: the sequence is empty", "test it with 'if' before");
  return items->front();
}

Value filter_reverse(const Value& value, const Arguments& arguments) {
  Parameters("the filter reverse", arguments, {});
  if (value.is_text()) return get_slice(value, Value(), Value(), Value(-1));
  if (auto items = reversed(value)) return walk("list_reverseiterator", std::move(*items));
  auto items = items_of(value);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value filter_items(const Value& value, const Arguments& arguments) {
  Parameters("the filter items", arguments, {});
  if (value.is_undefined()) return walk("generator", {});
  if (!value.is_dict())
    return generator("generator", value.depth(), [value](Value&) -> bool {
      fail(fmt::format("items: {} is not a dict", described(value)), "check it with 'is mapping'");
    });
  return walk("generator", DictView(value.dict(), DictView::Part::items).items());
}

Value filter_join(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter join", arguments, {"d", "attribute"});
  const TextPointer separator = p.given(0) ? to_text(*p[0]) : make_text("");
  TextBuilder out;
  bool first = true;
  const auto iteration = iterate(value);
  for (Value item; iteration->next(item); first = false) {
    if (!first) out.append(*separator);
    out.append(*to_text(p.set(1) ? get_path(item, *p[1]) : item));
  }
  return out.take();
}

// The key that sort, unique, min and max compare: the attribute; strings in lower case unless case counts.
Value key_of(const Value& item, const Value& attribute, bool case_sensitive, const Value* fallback = nullptr) {
  Value key = get_path(item, attribute, fallback);
  return key.is_text() && !case_sensitive ? Value(lowered(key.text())) : key;
}

struct Keyed {
  Value key, item;
};
void sort_keyed(std::vector<Keyed>& keyed, bool reverse) {
  // Reversed before and after sorting, so that equal items keep their order.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const Keyed& a, const Keyed& b) { return compare(a.key, b.key, "sorting") < 0; });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Value filter_sort(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (p.set(2) && p[2]->is_text()) {
    paths = items_of(call(get_attribute(*p[2], "split"), Arguments{{Value(std::string_view(","))}, {}}));
  } else {
    paths.push_back(p.given(2) ? *p[2] : Value());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(value)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(key_of(item, path, p.flag(1, false)));
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  sort_keyed(keyed, p.flag(0, false));
  std::vector<Value> items;
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

Value filter_dictsort(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = p.given(1) && p[1]->is_text() ? p[1]->text()->bytes : p.given(1) ? "" : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by \"key\" or by \"value\"", "give one of the two");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_dict()) fail(fmt::format("dictsort: {} is not a dict", described(value)), "check it with 'is mapping'");
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict()->items())
    keyed.push_back({key_of(by == "key" ? key : item, Value(), p.flag(0, false)), Value::tuple({key, item})});
  sort_keyed(keyed, p.flag(2, false));
  std::vector<Value> items;
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

Value filter_unique(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = p.flag(0, false);
  const Value attribute = p.given(1) ? *p[1] : Value();
  auto seen = std::make_shared<std::unordered_set<Value, KeyHash, KeyEqual>>();
  std::shared_ptr<Iteration> iteration;
  return generator("generator", value.depth(), [=](Value& item) mutable {
    if (!iteration) iteration = iterate(value);
    while (iteration->next(item))
      if (seen->insert(key_of(item, attribute, case_sensitive)).second) return true;
    return false;
  });
}

template <bool kLargest>
Value filter_extreme(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter min or max", arguments, {"case_sensitive", "attribute"});
  const Value attribute = p.given(1) ? *p[1] : Value();
  const auto iteration = iterate(value);
  Value best;
  if (!iteration->next(best)) return Value::undefined("min or max: the sequence is empty", "test it with 'if' before");
  Value best_key = key_of(best, attribute, p.flag(0, false));
  for (Value item; iteration->next(item);) {
    Value key = key_of(item, attribute, p.flag(0, false));
    const auto order = compare(key, best_key, "min or max");
    if (kLargest ? order > 0 : order < 0) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value filter_sum(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter sum", arguments, {"attribute", "start"});
  Value total = p.given(1) ? *p[1] : Value(0);
  if (total.is_text()) fail("sum does not add strings", "use | join");
  const auto iteration = iterate(value);
  for (Value item; iteration->next(item);) total = add(total, p.set(0) ? get_path(item, *p[0]) : item);
  return total;
}

// A generator over the items of `make`, which is called when the first item is needed.
template <class F>
Value walk_later(int depth, F make) {
  std::optional<std::vector<Value>> items;
  return generator("generator", depth, [=, i = std::size_t{0}](Value& item) mutable {
    if (!items) items = make();
    if (i == items->size()) return false;
    item = (*items)[i++];
    return true;
  });
}

std::vector<Value> batches_of(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = p.integer(0, 1);
  std::vector<Value> batches, batch;
  for (const Value& item : items_of(value)) {
    if (static_cast<std::int64_t>(batch.size()) == size) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (p.set(1) && size > static_cast<std::int64_t>(batch.size())) {
      const Charge charge(static_cast<std::size_t>(std::min<std::int64_t>(size, INT32_MAX)) * sizeof(Value));
      batch.resize(static_cast<std::size_t>(size), *p[1]);
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return batches;
}
Value filter_batch(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter batch", arguments, {"linecount", "fill_with"}, 1);
  return walk_later(depth_of(value, arguments) + 1, [=] { return batches_of(value, arguments); });
}

std::vector<Value> slices_of(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter slice", arguments, {"slices", "fill_with"}, 1);
  const auto items = items_of(value);
  const std::int64_t slices = p.integer(0, 1), length = static_cast<std::int64_t>(items.size());
  if (slices == 0) fail("slice: the number of slices is 0", "give another");
  std::vector<Value> out;
  for (std::int64_t i = 0, begin = 0; i < slices; ++i) {
    work();
    const Charge charge(sizeof(Value));
    const std::int64_t end = begin + length / slices + (i < length % slices ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (p.set(1) && i >= length % slices) part.push_back(*p[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return out;
}
Value filter_slice(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter slice", arguments, {"slices", "fill_with"}, 1);
  return walk_later(depth_of(value, arguments) + 1, [=] { return slices_of(value, arguments); });
}

Value filter_groupby(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = p.set(1) ? p[1] : nullptr;
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(value)) keyed.push_back({key_of(item, *p[0], p.flag(2, false), fallback), item});
  sort_keyed(keyed, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    while (end < keyed.size() && equal(keyed[end].key, keyed[begin].key)) members.push_back(keyed[end++].item);
    Value key = get_path(members.front(), *p[0], fallback);
    auto pair = std::make_shared<Sequence>(std::vector<Value>{std::move(key), Value::list(std::move(members))}, true);
    pair->group = true;
    groups.push_back(SequencePointer(std::move(pair)));
    begin = end;
  }
  return Value::list(std::move(groups));
}

constexpr FilterRow kSequenceFilters[] = {
    {"batch", filter_batch},     {"count", filter_length},      {"dictsort", filter_dictsort},
    {"first", filter_first},     {"groupby", filter_groupby},   {"items", filter_items},
    {"join", filter_join},       {"last", filter_last},         {"length", filter_length},
    {"list", filter_list},       {"max", filter_extreme<true>}, {"min", filter_extreme<false>},
    {"reverse", filter_reverse}, {"slice", filter_slice},       {"sort", filter_sort},
    {"sum", filter_sum},         {"unique", filter_unique},
};

}  // namespace

std::span<const FilterRow> sequence_filters() { return kSequenceFilters; }

}  // namespace weft::jinja
