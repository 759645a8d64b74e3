// Files of other versions of a schema.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "weft/metatensor.hpp"

namespace weft::metatensor {
namespace {

const Node* node_at(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (node && !path.empty()) {
    const auto dot = path.find('.');
    node = node->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return node;
}

/// Whether the node at a path, or a struct that it is in, may be missing.
bool may_lack(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (node && !path.empty()) {
    const auto dot = path.find('.');
    node = node->find(path.substr(0, dot));
    if (node && node->is_optional) return true;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return false;
}

}  // namespace

Reader::Reader(File file, Node schema, std::map<std::string, Migration> migrations)
    : file_(std::move(file)), schema_(std::move(schema)), migrations_(std::move(migrations)) {
  changes_ = difference(file_.schema(), schema_);
  std::string faults;
  for (const Change& change : changes_) {
    if (change.kind == Change::Kind::added && !may_lack(schema_, change.path))
      faults += fmt::format("\n  {} is missing; it is not optional", quote(change.path));
    if (change.kind == Change::Kind::changed && !migrations_.contains(change.path))
      faults += fmt::format("\n  {} was {} and is {}; it needs a migration", quote(change.path),
                            change.before.to_json(), change.after.to_json());
  }
  if (!faults.empty()) throw FileError(fmt::format("the file has another version of the schema:{}", faults));
}

std::optional<Tensor> Reader::tensor(std::string_view path, Device device) const {
  const Node* wanted = node_at(schema_, path);
  if (!wanted || wanted->kind != Kind::flat)
    throw FileError(fmt::format("{} is not a tensor of the schema", quote(path)));
  for (const Change& change : changes_) {
    const bool is_within = path == change.path || (path.starts_with(change.path) && path[change.path.size()] == '.');
    if (change.kind == Change::Kind::added && is_within) return std::nullopt;
    if (change.kind != Change::Kind::changed || path != change.path) continue;
    const Tensor migrated = migrations_.at(change.path)(file_.tensor(path, device));
    if (migrated.dtype() != wanted->dtype || migrated.shape() != wanted->shape)
      throw FileError(fmt::format("the migration of {} gives {} {}, and the schema has {} {}", quote(path),
                                  name_of(migrated.dtype()), migrated.shape().to_string(), name_of(wanted->dtype),
                                  wanted->shape.to_string()));
    return migrated;
  }
  return file_.tensor(path, device);
}

}  // namespace weft::metatensor
