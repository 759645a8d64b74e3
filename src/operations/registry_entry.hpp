// An operation as the exchange uses it. Entries never change; a registry replaces them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "weft/operations/registry.hpp"
#include "weft/schema.hpp"

namespace weft::operations {

struct Registry::Entry {
  std::shared_ptr<const Specification> specification;
  std::string id;
  schema::Schema input, output;
  std::shared_ptr<const Handler> handler;  // null: none
};

}  // namespace weft::operations
