#include "weft/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/quote.hpp"
#include "schema/value_options.hpp"
#include "weft/error.hpp"

namespace weft::tree {
namespace {

constexpr int kTreeDepthMax = 60;
constexpr std::size_t kTreeElementsMax = 100'000, kTreeChildrenMax = 10'000;

[[noreturn]] void refuse_at(const std::string& path, std::string_view fact) {
  throw UsageError(fmt::format("{}: {}", path.empty() ? "the element" : path, fact));
}

const std::string& type_of(const Value& element) { return element["type"].string(); }
const Value::Array& children_of(const Value& element) { return element["children"].elements(); }
const Value* key_of(const Value& element) {
  const Value& props = element["props"];
  for (const char* name : {"key", "id"})
    if (const Value* key = props.find(name)) return key;
  return type_of(element) == "Field" ? props.find("name") : nullptr;
}
std::string child_path(const std::string& path, std::size_t i) { return fmt::format("{}/children/{}", path, i); }

Value normal_form(const Value& element, const std::string& path, int depth, std::size_t& count) {
  if (depth > kTreeDepthMax) refuse_at(path, fmt::format("elements are nested deeper than {}", kTreeDepthMax));
  if (++count > kTreeElementsMax) refuse_at(path, fmt::format("the tree has more than {} elements", kTreeElementsMax));
  if (!element.is_object()) refuse_at(path, "is not {type, props, children}");
  const Value *type = nullptr, *props = nullptr, *children = nullptr;
  for (const auto& [name, value] : element.members()) {
    if (name == "type")
      type = &value;
    else if (name == "props")
      props = &value;
    else if (name == "children")
      children = &value;
    else
      refuse_at(path, fmt::format("has a member {}; an element has type, props and children", quote(name)));
  }
  if (!type || !type->is_string()) refuse_at(path, "has no type that is a text");
  if (props && !props->is_null() && !props->is_object()) refuse_at(path, "has props that are not an object");
  if (children && !children->is_null() && !children->is_array()) refuse_at(path, "has children that are not a list");
  Value::Array made;
  if (children && children->is_array()) {
    if (children->elements().size() > kTreeChildrenMax)
      refuse_at(path, fmt::format("has more than {} children", kTreeChildrenMax));
    std::set<std::string> keys;
    for (std::size_t i = 0; i < children->elements().size(); ++i) {
      made.push_back(normal_form((*children)[i], child_path(path, i), depth + 1, count));
      const Value* key = key_of(made.back());
      if (!key) continue;
      if (!key->is_string() && !key->is_integer())
        refuse_at(child_path(path, i), "has a key that is neither a text nor a whole number");
      if (!keys.insert(key->to_json()).second)
        refuse_at(child_path(path, i), fmt::format("has the key {} of a sibling", key->to_json()));
    }
  }
  return Value::object({{"type", *type},
                        {"props", props && props->is_object() ? *props : Value(Value::Object())},
                        {"children", std::move(made)}});
}

/// Which of the numbers are in one of the longest increasing subsequences.
std::vector<bool> longest_increasing(const std::vector<std::size_t>& numbers) {
  std::vector<std::size_t> ends, before(numbers.size());  // places in `numbers`
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto at = std::lower_bound(ends.begin(), ends.end(), numbers[i],
                                     [&](std::size_t place, std::size_t n) { return numbers[place] < n; });
    before[i] = at == ends.begin() ? i : *(at - 1);
    if (at == ends.end())
      ends.push_back(i);
    else
      *at = i;
  }
  std::vector<bool> is_in(numbers.size());
  if (!ends.empty())
    for (std::size_t i = ends.back(), left = ends.size(); left > 0; --left, i = before[i]) is_in[i] = true;
  return is_in;
}

void find_edits(const Value& older, const Value& newer, const std::string& path, std::vector<Edit>& edits) {
  if (type_of(older) != type_of(newer)) {
    edits.push_back({.kind = Edit::Kind::replace, .path = path, .element = newer});
    return;
  }
  if (older["props"] != newer["props"])
    edits.push_back({.kind = Edit::Kind::update, .path = path, .element = newer["props"]});
  const Value::Array &before = children_of(older), &after = children_of(newer);
  const auto versions = match(before, after);

  // Removed, from the last on; the rest keep their order.
  std::vector<bool> is_kept(before.size());
  for (const auto& version : versions)
    if (version) is_kept[*version] = true;
  for (std::size_t i = before.size(); i-- > 0;)
    if (!is_kept[i]) edits.push_back({.kind = Edit::Kind::remove, .path = path, .from = i});

  // Moved, from the last place on: each goes before the one that follows it, which is in place already.
  std::vector<std::size_t> current, wanted;  // numbers of old children
  for (std::size_t i = 0; i < before.size(); ++i)
    if (is_kept[i]) current.push_back(i);
  for (const auto& version : versions)
    if (version) wanted.push_back(*version);
  const std::vector<bool> stays = longest_increasing(wanted);
  for (std::size_t i = wanted.size(); i-- > 0;) {
    if (stays[i]) continue;
    const auto from = std::find(current.begin(), current.end(), wanted[i]);
    const auto from_index = static_cast<std::size_t>(from - current.begin());
    current.erase(from);
    const auto to = i + 1 < wanted.size() ? std::find(current.begin(), current.end(), wanted[i + 1]) : current.end();
    const auto to_index = static_cast<std::size_t>(to - current.begin());
    current.insert(to, wanted[i]);
    if (from_index != to_index)
      edits.push_back({.kind = Edit::Kind::move, .path = path, .from = from_index, .to = to_index});
  }
  for (std::size_t i = 0; i < after.size(); ++i)
    if (!versions[i]) edits.push_back({.kind = Edit::Kind::insert, .path = path, .to = i, .element = after[i]});
  for (std::size_t i = 0; i < after.size(); ++i)
    if (versions[i]) find_edits(before[*versions[i]], after[i], child_path(path, i), edits);
}

/// The element at a path. Errors: UsageError.
Value& element_at(Value& root, const std::string& path) {
  Value* at = &root;
  std::string_view rest = path;
  constexpr std::string_view kStep = "/children/";
  while (!rest.empty()) {
    std::size_t index = 0;
    const char* const end = rest.data() + rest.size();
    const auto digits = rest.starts_with(kStep) ? std::from_chars(rest.data() + kStep.size(), end, index)
                                                : std::from_chars_result{rest.data(), std::errc::invalid_argument};
    Value::Array& children = at->members().find("children")->elements();
    if (digits.ec != std::errc() || index >= children.size())
      throw UsageError(fmt::format("there is no element {}", quote(path)));
    at = &children[index];
    rest.remove_prefix(static_cast<std::size_t>(digits.ptr - rest.data()));
  }
  return *at;
}

void apply_edit(Value& root, const Edit& edit) {
  Value& at = element_at(root, edit.path);
  if (edit.kind == Edit::Kind::replace) {
    at = normalised(edit.element);
    return;
  }
  if (edit.kind == Edit::Kind::update) {
    if (!edit.element.is_object()) refuse_at(edit.path, "the new props are not an object");
    at.members().set("props", edit.element);
    return;
  }
  Value::Array& children = at.members().find("children")->elements();
  const auto check = [&](std::size_t place, std::size_t count) {
    if (place >= count)
      refuse_at(edit.path, fmt::format("there is no place {} among {} children", place, children.size()));
    return static_cast<std::ptrdiff_t>(place);
  };
  Value moved;
  if (edit.kind != Edit::Kind::insert) {
    const auto from = children.begin() + check(edit.from, children.size());
    moved = std::move(*from);
    children.erase(from);
  } else {
    moved = normalised(edit.element);
  }
  if (edit.kind != Edit::Kind::remove)
    children.insert(children.begin() + check(edit.to, children.size() + 1), std::move(moved));
}

constexpr const char* kEditKinds[] = {"replace", "update", "remove", "move", "insert"};

}  // namespace

Value normalised(const Value& element) {
  std::size_t count = 0;
  return normal_form(element, "", 0, count);
}

std::vector<std::optional<std::size_t>> match(const Value::Array& older, const Value::Array& newer) {
  // Children with a key are found by key and type, the others by type and number.
  const auto names_of = [](const Value::Array& children) {
    std::map<std::string, std::size_t> counts;
    std::vector<std::string> names;
    for (const Value& child : children) {
      const Value* key = key_of(child);
      const std::string type = quote(type_of(child), 1000);
      names.push_back(key ? fmt::format("key {} {}", key->to_json(), type)
                          : fmt::format("{} {}", counts[type]++, type));
    }
    return names;
  };
  std::map<std::string, std::size_t> places;
  const std::vector<std::string> old_names = names_of(older);
  for (std::size_t i = 0; i < old_names.size(); ++i) places.emplace(old_names[i], i);
  std::vector<std::optional<std::size_t>> versions;
  for (const std::string& name : names_of(newer)) {
    const auto found = places.find(name);
    versions.push_back(found == places.end() ? std::nullopt : std::optional(found->second));
  }
  return versions;
}

std::vector<Edit> difference(const Value& older, const Value& newer) {
  std::vector<Edit> edits;
  find_edits(normalised(older), normalised(newer), "", edits);
  return edits;
}

Value patched(const Value& tree, const std::vector<Edit>& edits) {
  Value made = normalised(tree);
  for (const Edit& edit : edits) apply_edit(made, edit);
  return normalised(made);
}

Value to_value(const std::vector<Edit>& edits) {
  Value::Array all;
  for (const Edit& edit : edits) {
    Value::Object made{{"kind", kEditKinds[static_cast<int>(edit.kind)]}, {"path", edit.path}};
    if (edit.kind == Edit::Kind::remove || edit.kind == Edit::Kind::move) made.set("from", edit.from);
    if (edit.kind == Edit::Kind::move || edit.kind == Edit::Kind::insert) made.set("to", edit.to);
    if (edit.kind == Edit::Kind::replace || edit.kind == Edit::Kind::insert) made.set("element", edit.element);
    if (edit.kind == Edit::Kind::update) made.set("props", edit.element);
    all.push_back(std::move(made));
  }
  return all;
}

std::vector<Edit> edits_from(const Value& value) {
  std::vector<Edit> edits;
  for (const Value& each : value.elements()) {
    Value::Object rest = each.members();
    Edit edit;
    for (const char* name : {"element", "props"})
      if (const Value* given = rest.find(name)) {
        edit.element = *given;
        rest.remove(name);
      }
    std::string kind;
    const Value given(std::move(rest));
    ValueOptions(given, "an edit")
        .read("kind", kind)
        .read("path", edit.path)
        .read("from", edit.from)
        .read("to", edit.to)
        .finish();
    const auto found = std::find(std::begin(kEditKinds), std::end(kEditKinds), kind);
    if (found == std::end(kEditKinds))
      throw UsageError(
          fmt::format("an edit: the kind {} is none of replace, update, remove, move, insert", quote(kind)));
    edit.kind = static_cast<Edit::Kind>(found - std::begin(kEditKinds));
    edits.push_back(std::move(edit));
  }
  return edits;
}

}  // namespace weft::tree
